import {
  type ModelSignature,
  openclipVitB32,
  openclipVitB32Jpeg,
  openclipVitB32U8,
} from "../../contract/model-signature.ts";
import type { Tensor, TensorSpec } from "../../contract/tensor.ts";
import { imageTensor, pixelTensor } from "../preprocess/image-tensor.ts";

/** Encoding in which a model receives images. */
export interface PayloadFormat {
  readonly signature: ModelSignature;
  /** Input of {@link tensor}: preprocessed pixels or encoded files. */
  readonly input: "pixels" | "encoded";
  tensor(images: readonly Uint8Array[]): Tensor;
}

const payloadFormats: readonly PayloadFormat[] = [
  { signature: openclipVitB32U8, input: "pixels", tensor: pixelTensor },
  { signature: openclipVitB32, input: "pixels", tensor: imageTensor },
  { signature: openclipVitB32Jpeg, input: "encoded", tensor: encodedTensor },
];

/**
 * Returns the payload format of a model.
 *
 * @param metadata - Inputs and outputs, with the batch dimension.
 * @param createError - Creates the error thrown for an unsupported model from its message.
 */
export function payloadFormatOf(
  model: string,
  { inputs, outputs }: Pick<ModelSignature, "inputs" | "outputs">,
  createError: (problem: string) => Error,
): PayloadFormat {
  const [actualInputs, actualOutputs] = [inputs, outputs].map(formatSpecs);
  const format = payloadFormats.find(
    ({ signature }) =>
      inputText(signature) === actualInputs && outputText(signature) === actualOutputs,
  );
  if (format !== undefined) return format;
  const rule = payloadFormats.map(({ signature }) => inputText(signature)).join(", or ");
  throw createError(
    `${model} must take ${rule} and give ${outputText(openclipVitB32)}, got ${actualInputs} and ${actualOutputs}`,
  );
}

/** `image UINT8 [-1, 224, 224, 3]` */
export function inputText({ inputs }: ModelSignature): string {
  return formatSpecs(inputs.map(batched));
}

function outputText({ outputs }: ModelSignature): string {
  return formatSpecs(outputs.map(batched));
}

function batched({ dims, ...spec }: TensorSpec): TensorSpec {
  return { ...spec, dims: [-1, ...dims] };
}

function formatSpecs(specs: readonly TensorSpec[]): string {
  return specs
    .map(({ name, dataType, dims }) => `${name} ${dataType} [${dims.join(", ")}]`)
    .join(", ");
}

/** Encoded images as the input of `openclip_vit_b32_jpeg`: `[B, 1]` BYTES. */
function encodedTensor(images: readonly Uint8Array[]): Tensor {
  const [{ name, dims }] = openclipVitB32Jpeg.inputs;
  return { name, dataType: "BYTES", shape: [images.length, ...dims], data: images };
}
