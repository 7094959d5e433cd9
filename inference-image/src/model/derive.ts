import { compareModels, embedWith, syntheticImages } from "./compare-models.ts";
import { type ModelForm, modelForms, rewriterVersion } from "./model-form.ts";
import { type ModelInfo, modelInfo, readSidecar } from "./model-info.ts";
import { onnxChunks } from "./onnx-writer.ts";
import { sizeOf, writeModelFile } from "./publish-file.ts";

/** A form in float32 differs from its original by the order of additions only. */
export const exactness = { minCosine: 0.999_999, maxDifference: 1e-5 } as const;

/**
 * Make the file of `openclip_vit_b32_u8` from the standard one: the same weights, 8-bit pixels as input, ONNX's own
 * operators only. It is made when it is missing, or was made of other weights or by an older version; a file that somebody
 * else put there is left alone. Safe to call from several processes at once.
 *
 * @param standardFile - Input `image` FP32 [N, 3, 224, 224], output `embedding` FP32 [N, 512].
 * @returns What the file is.
 * @throws {Error} one line, when the standard file cannot be read or the other not be written.
 */
export async function ensureU8Model(standardFile: string, u8File: string): Promise<ModelInfo> {
  const [standard, size, before] = await Promise.all([
    modelInfo(standardFile),
    sizeOf(u8File),
    readSidecar(u8File),
  ]);
  if (size !== undefined && size > 0) {
    const isOurs = before?.source === "derived";
    const isCurrent =
      before?.derivedFrom === standard.sha256 && before.rewriter === rewriterVersion;
    if (!isOurs) return modelInfo(u8File);
    if (isCurrent && before.bytes === size) return before;
  }

  const images = syntheticImages(2);
  const expected = await embedWith(standardFile, images);
  let reason = "";
  for (const form of modelForms(standardFile, { operators: "portable", precision: "fp32" })) {
    try {
      return await writeModelFile({
        file: u8File,
        chunks: onnxChunks(form.model),
        info: (sha256, bytes) => derivedInfo(standard, form, sha256, bytes),
        check: async (part) => {
          const { minCosine, maxDifference } = compareModels(
            expected,
            await embedWith(part, images),
          );
          if (minCosine < exactness.minCosine || maxDifference > exactness.maxDifference) {
            throw new InexactForm(`cosine ${minCosine}, difference ${maxDifference}`);
          }
        },
      });
    } catch (error) {
      if (!(error instanceof InexactForm)) throw error;
      reason = error.message;
    }
  }
  throw new Error(`${standardFile}: its form with 8-bit pixels differs: ${reason}`);
}

class InexactForm extends Error {}

function derivedInfo(
  standard: ModelInfo,
  form: ModelForm,
  sha256: string,
  bytes: number,
): ModelInfo {
  const { weights, seed, architecture } = standard;
  return {
    schema: 1,
    sha256,
    bytes,
    source: "derived",
    weights,
    seed,
    architecture,
    opset: form.model.opset,
    derivedFrom: standard.sha256,
    rewriter: rewriterVersion,
    parts: [...form.parts],
  };
}
