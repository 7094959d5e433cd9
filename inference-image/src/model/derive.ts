import { chooseForm } from "./choose-form.ts";
import { type ModelForm, rewriterVersion } from "./model-form.ts";
import { type ModelInfo, modelInfo, readSidecar } from "./model-info.ts";
import { onnxChunks } from "./onnx-writer.ts";
import { draftModelFile, sizeOf } from "./publish-file.ts";
import { sourceChecksum } from "./source-checksum.ts";

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
  const checksum = await sourceChecksum(standardFile, standard);
  if (size !== undefined && size > 0) {
    const isOurs = before?.source === "derived";
    const isCurrent = before?.derivedFrom === checksum && before.rewriter === rewriterVersion;
    if (!isOurs) return modelInfo(u8File);
    if (isCurrent && before.bytes === size) return before;
  }

  const draft = await draftModelFile(u8File);
  try {
    const { form } = await chooseForm(
      standardFile,
      { operators: "portable", precision: "fp32" },
      async (model) => {
        await draft.write(onnxChunks(model));
        return draft.path;
      },
    );
    return await draft.publish((sha256, bytes) =>
      derivedInfo({ ...standard, sha256: checksum }, form, sha256, bytes),
    );
  } finally {
    await draft.discard();
  }
}

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
