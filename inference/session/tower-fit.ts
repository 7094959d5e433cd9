import {
  embeddingTensor,
  imagePixels,
  normalisedImage,
  tokenIds,
} from "../../contract/model-shapes.ts";
import type { Modality, ModelSpec } from "../../contract/model-spec.ts";
import type { TensorSpec } from "../../contract/tensor.ts";
import { InferenceError } from "../threads/inference-error.ts";

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

/** Inputs and outputs of a model file with their batch dimension; text is the name of a dynamic dimension. */
export interface FileShapes {
  readonly inputs: readonly NamedShape[];
  readonly outputs: readonly NamedShape[];
}
interface NamedShape {
  readonly name: string;
  readonly shape: readonly (number | string)[];
}

/** Tensor names in exports of Hugging Face's `transformers` and Optimum, in order of preference. */
const exportNames = {
  image: { input: ["pixel_values"], output: ["image_embeds", "pooler_output"] },
  text: { input: ["input_ids"], output: ["text_embeds", "pooler_output"] },
};

/**
 * Returns the spec with the tensor names of a model file: if the file has no tensor with a name in the spec, the name that
 * `transformers` and Optimum write is used.
 */
export function withFileNames(
  spec: ModelSpec,
  modality: Modality,
  { inputs, outputs }: FileShapes,
): ModelSpec {
  const tower = spec.towers[modality];
  if (tower === undefined) return spec;
  const names = exportNames[modality];
  const { width } = spec.embedding;
  const embeddings = outputs.filter(({ shape }) => {
    const size = shape.at(-1);
    return typeof size !== "number" || size === width;
  });
  const tensor = fileName(tower.input.tensor, inputs, names.input, inputs);
  const output = fileName(tower.output, outputs, names.output, embeddings);
  if (tensor === tower.input.tensor && output === tower.output) return spec;
  const renamed = { ...tower, input: { ...tower.input, tensor }, output };
  return { ...spec, towers: { ...spec.towers, [modality]: renamed } };
}

function fileName(
  name: string,
  values: readonly NamedShape[],
  others: readonly string[],
  candidates: readonly NamedShape[],
): string {
  if (values.some((value) => value.name === name)) return name;
  return others.find((other) => candidates.some((value) => value.name === other)) ?? name;
}

/**
 * Compares the tensors of a model file with the model spec.
 *
 * @returns Error message for the first mismatch, with the shape found; undefined if all tensors
 *   match.
 */
export function tensorMismatch(expected: TowerTensors, found: FileTensors): string | undefined {
  return (
    mismatchOf("input", expected.inputs, found.inputs) ??
    mismatchOf("output", [expected.output], found.outputs)
  );
}

/**
 * Checks that a model file fits its spec.
 *
 * @throws {InferenceError} `model`, with the tensor, its expected and its found shape
 */
export function requireFit(file: string, expected: TowerTensors, found: FileTensors): void {
  const mismatch = tensorMismatch(expected, found);
  if (mismatch !== undefined) throw new InferenceError("model", `${file}: ${mismatch}`);
}

function mismatchOf(
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

/** Returns whether a tensor of a file, with its dynamic dimensions as -1, can have the expected shape. */
export function fits(expected: Pick<TensorSpec, "dataType" | "dims">, found: TensorSpec): boolean {
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
