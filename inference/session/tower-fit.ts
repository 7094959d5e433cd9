import {
  embeddingTensor,
  imagePixels,
  normalisedImage,
  tokenIds,
} from "../../contract/model-shapes.ts";
import type { Modality, ModelSpec } from "../../contract/model-spec.ts";
import type { TensorSpec } from "../../contract/tensor.ts";
import { InferenceError } from "./types.ts";

/** Inputs and outputs of a model file, without the batch dimension; -1 is any size. */
export interface FileTensors {
  readonly inputs: readonly TensorSpec[];
  readonly outputs: readonly TensorSpec[];
}

/** Tensors that a tower of a model must have. */
export interface TowerTensors {
  /** Accepted inputs: normalised or uint8 images, or token ids. */
  readonly inputs: readonly TensorSpec[];
  readonly output: TensorSpec;
}

/**
 * Returns the tensors of a tower.
 *
 * @throws {InferenceError} `model` if the model has no such tower
 */
export function towerTensors(spec: ModelSpec, modality: Modality): TowerTensors {
  const { image, text } = spec.towers;
  if (modality === "image" && image !== undefined) {
    return {
      inputs: [normalisedImage(image), imagePixels(image)],
      output: embeddingTensor(spec, image),
    };
  }
  if (modality === "text" && text !== undefined) {
    return { inputs: [tokenIds(text)], output: embeddingTensor(spec, text) };
  }
  throw new InferenceError("model", `${spec.name} has no ${modality} tower`);
}

/**
 * Compares the tensors of a model file with its spec.
 *
 * @returns First misfit: the tensor, its expected and its found shape. Undefined if the file fits.
 */
export function towerMisfit(expected: TowerTensors, found: FileTensors): string | undefined {
  return (
    misfitOf("input", expected.inputs, found.inputs) ??
    misfitOf("output", [expected.output], found.outputs)
  );
}

/**
 * Checks that a model file fits its spec.
 *
 * @param file - Path, for the message.
 * @throws {InferenceError} `model`, with the tensor, its expected and its found shape
 */
export function requireFit(file: string, expected: TowerTensors, found: FileTensors): void {
  const misfit = towerMisfit(expected, found);
  if (misfit !== undefined) throw new InferenceError("model", `${file}: ${misfit}`);
}

function misfitOf(
  kind: "input" | "output",
  accepted: readonly TensorSpec[],
  found: readonly TensorSpec[],
): string | undefined {
  const { name } = accepted[0]!;
  const shapes = accepted.map(shapeText).join(" or ");
  const tensor = found.find((other) => other.name === name);
  if (tensor === undefined) {
    const others = found.map((other) => `'${other.name}' ${shapeText(other)}`).join(", ");
    return `must have the ${kind} '${name}' ${shapes}, got ${others || "none"}`;
  }
  if (!accepted.some((other) => fits(other, tensor))) {
    return `${kind} '${name}' must be ${shapes}, got ${shapeText(tensor)}`;
  }
  const surplus = kind === "input" ? found.find((other) => other !== tensor) : undefined;
  return surplus === undefined
    ? undefined
    : `must have no other input than '${name}', got '${surplus.name}' ${shapeText(surplus)}`;
}

function fits(expected: TensorSpec, found: TensorSpec): boolean {
  return (
    expected.dataType === found.dataType &&
    expected.dims.length === found.dims.length &&
    found.dims.every((dim, index) => dim === -1 || dim === expected.dims[index])
  );
}

/** `FP32 [3, 224, 224]` */
function shapeText({ dataType, dims }: TensorSpec): string {
  return `${dataType} [${dims.join(", ")}]`;
}
