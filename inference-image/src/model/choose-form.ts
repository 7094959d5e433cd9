import { type Agreement, compareModels, embedWith, syntheticImages } from "./compare-models.ts";
import { type FormOptions, type ModelForm, modelForms } from "./model-form.ts";
import { type OnnxFile, readOnnx, tensorTypes } from "./onnx-reader.ts";
import type { OnnxModel } from "./onnx-writer.ts";

/** A form in float32 differs from its original by the order of additions only. */
const exactness = { minCosine: 0.999_999, maxDifference: 5e-6 } as const;

/** Of a file in half precision: its own rounding moves with the order of operations. */
const halfExactness = { minCosine: 0.999_99, maxDifference: 2e-3 } as const;

/** A form in 8-bit integers whose embeddings are further away than this was not understood. */
const int8MinCosine = 0.98;

/** Images that the forms are compared on: enough for a figure where it is not the same to the last bits. */
const imageCounts = { fp32: 2, int8: 16 } as const;

export interface ChosenForm {
  readonly form: ModelForm;
  readonly agreement: Agreement & { readonly images: number };
}

/**
 * The first form of a model file that computes what the file computes.
 *
 * @param write - Puts a model where it can be opened: a path, or the bytes of the file.
 * @throws {Error} one line, when the file cannot be read, or no form agrees with it.
 */
export async function chooseForm(
  path: string,
  options: FormOptions,
  write: (model: OnnxModel) => Promise<string | Uint8Array<ArrayBuffer>>,
): Promise<ChosenForm> {
  const limits = isHalf(readOnnx(path)) ? halfExactness : exactness;
  const images = syntheticImages(imageCounts[options.precision]);
  const expected = await embedWith(path, images);
  let reason = "it was not recognised as an image tower";
  for (const form of modelForms(path, options)) {
    const vectors = await embedWith(await write(form.model), images);
    const agreement = { images: images.length, ...compareModels(expected, vectors) };
    const { minCosine, maxDifference } = agreement;
    const agrees =
      options.precision === "int8"
        ? minCosine >= int8MinCosine
        : minCosine >= limits.minCosine && maxDifference <= limits.maxDifference;
    if (agrees) return { form, agreement };
    reason = `cosine ${minCosine}, difference ${maxDifference}`;
  }
  throw new Error(`${path}: no form of precision ${options.precision} agrees with it: ${reason}`);
}

function isHalf({ initializers }: OnnxFile): boolean {
  return [...initializers.values()].some(({ dataType }) => dataType === tensorTypes.half);
}
