import { statSync } from "node:fs";
import { basename } from "node:path";
import type { Modality, ModelSpec } from "../../contract/model-spec.ts";
import type { DataType, TensorSpec } from "../../contract/tensor.ts";
import { tritonModelName } from "../../contract/triton-models.ts";
import {
  type FileTensors,
  type TowerTensors,
  tensorMismatch,
  towerTensors,
  withFileNames,
} from "../../inference/session/tower-fit.ts";
import type { OnnxFile, OnnxValue } from "../onnx/reader.ts";
import { recogniseTower } from "./recognise-tower.ts";

/** Properties of a model that are known without running it. */
export interface ModelStructure {
  readonly irVersion: number;
  /** Version of each operator set, by domain. */
  readonly opsets: Readonly<Record<string, number>>;
  readonly producer: string;
  readonly inputs: readonly ModelTensor[];
  readonly outputs: readonly ModelTensor[];
  /** Whether the batch dimension is dynamic. */
  readonly dynamicBatch: boolean;
  /** Files beside the model that contain weights. */
  readonly externalData: readonly { readonly file: string; readonly bytes: number }[];
  /** Models of the repository that can execute the file: their configurations have the tensor names of the spec. */
  readonly fits: readonly string[];
  /** Differences from the tensors of the spec; empty if the file fits. */
  readonly misfits: readonly string[];
  /** Description of an image tower that `optimise` rewrites, or why it does not; only for files with FP32 input. */
  readonly tower?: string;
}

export interface ModelTensor {
  readonly name: string;
  readonly dataType: string;
  /** Text is the name of a dynamic dimension. */
  readonly dims: readonly (number | string)[];
}

/** Names of `TensorProto.DataType` in the Open Inference Protocol. */
const typeNames: Readonly<Record<number, string | undefined>> = {
  1: "FP32",
  2: "UINT8",
  3: "INT8",
  4: "UINT16",
  5: "INT16",
  6: "INT32",
  7: "INT64",
  8: "BYTES",
  9: "BOOL",
  10: "FP16",
  11: "FP64",
  12: "UINT32",
  13: "UINT64",
  16: "BF16",
};

/** Describes a tower and compares it with its spec. */
export function structureOf(spec: ModelSpec, modality: Modality, file: OnnxFile): ModelStructure {
  const inputs = file.inputs.map(tensorOf);
  const outputs = file.outputs.map(tensorOf);
  const misfits = misfitsOf(spec, modality, file);
  const named = specOfFile(spec, modality, file);
  const images = inputs[0]?.dataType === "UINT8" ? (["u8"] as const) : (["fp32", "trt"] as const);
  const kinds = modality === "text" ? (["text", "text-trt"] as const) : images;
  const others = new Set<string>();
  for (const { externalFile } of file.initializers.values()) {
    if (externalFile !== undefined) others.add(externalFile);
  }
  return {
    irVersion: file.irVersion,
    opsets: Object.fromEntries(
      [...file.opsets].map(([domain, version]) => [domain || "ai.onnx", version]),
    ),
    producer: file.producer,
    inputs,
    outputs,
    dynamicBatch: inputs.length > 0 && inputs.every(({ dims }) => typeof dims[0] === "string"),
    externalData: [...others].sort().map((path) => ({
      file: basename(path),
      bytes: statSync(path).size,
    })),
    fits:
      misfits.length > 0 || named !== spec
        ? []
        : kinds.map((modelKind) => tritonModelName(spec, modelKind)),
    misfits,
    tower:
      inputs[0]?.dataType === "FP32" ? towerOf(file, named.towers[modality]?.output) : undefined,
  };
}

function tensorOf({ name, dataType, dims }: OnnxValue): ModelTensor {
  return {
    name,
    dataType: typeNames[dataType] ?? `type ${dataType}`,
    dims: dims.map((dim) => (dim === "" ? "any" : dim)),
  };
}

/** `image FP32 [batch, 3, 224, 224]` */
export function tensorText({ name, dataType, dims }: ModelTensor): string {
  return `${name} ${dataType} [${dims.join(", ")}]`;
}

/** Modality of a file by its input: token ids are integers. */
export function modalityOf(file: OnnxFile): Modality {
  const type = file.inputs[0] === undefined ? undefined : tensorOf(file.inputs[0]).dataType;
  return type === "INT64" || type === "INT32" ? "text" : "image";
}

/** Returns the spec with the tensor names of a file, as {@link withFileNames}. */
export function specOfFile(spec: ModelSpec, modality: Modality, file: OnnxFile): ModelSpec {
  const shapeOf = ({ name, dims }: OnnxValue) => ({ name, shape: dims });
  const shapes = { inputs: file.inputs.map(shapeOf), outputs: file.outputs.map(shapeOf) };
  return withFileNames(spec, modality, shapes);
}

/** Differences of a file from a tower of a spec. */
function misfitsOf(spec: ModelSpec, modality: Modality, file: OnnxFile): readonly string[] {
  const tensors = { inputs: file.inputs.map(tensorOf), outputs: file.outputs.map(tensorOf) };
  const expected = towerTensors(specOfFile(spec, modality, file), modality);
  const misfit = tensorMismatch(expected, withoutBatch(expected, tensors));
  const misfits = misfit === undefined ? [] : [misfit];
  for (const [kind, values] of [
    ["input", tensors.inputs],
    ["output", tensors.outputs.filter(({ name }) => name === expected.output.name)],
  ] as const) {
    for (const { name, dims } of values) {
      const [batch] = dims;
      if (typeof batch !== "number") continue;
      misfits.push(`${kind} '${name}' must have a dynamic batch dimension, got ${batch}`);
    }
  }
  return misfits;
}

/**
 * Returns whether images or token ids of a spec can be the input of a file, whatever the names of its tensors are.
 */
export function takesInputs(spec: ModelSpec, modality: Modality, file: OnnxFile): boolean {
  const expected = towerTensors(spec, modality);
  const { name } = expected.inputs[0]!;
  const inputs = file.inputs.map((value) => ({ ...tensorOf(value), name }));
  const { inputs: found } = withoutBatch(expected, { inputs, outputs: [] });
  return tensorMismatch(expected, { inputs: found, outputs: [expected.output] }) === undefined;
}

/**
 * Checks that a file accepts images of a spec as input.
 *
 * @throws {Error} with a one-line message if it does not
 */
export function requireImageTower(spec: ModelSpec, file: OnnxFile): void {
  if (takesInputs(spec, "image", file)) return;
  throw new Error(`${file.path}: ${misfitsOf(spec, "image", file).join("; ")}`);
}

/** As Triton compares: a dynamic dimension is any size. */
function withoutBatch(
  expected: TowerTensors,
  { inputs, outputs }: Pick<ModelStructure, "inputs" | "outputs">,
): FileTensors {
  const convert = ({ name, dataType, dims: [, ...dims] }: ModelTensor): TensorSpec => ({
    name,
    dataType: dataType as DataType,
    dims: dims.map((dim) => (typeof dim === "number" ? dim : -1)),
  });
  // exporters may omit the shape of an output
  const { dims } = expected.output;
  return {
    inputs: inputs.map(convert),
    outputs: outputs.map((output) =>
      output.dims.length === 0 ? { ...convert(output), dims } : convert(output),
    ),
  };
}

function towerOf(file: OnnxFile, output?: string): string {
  const found = recogniseTower(file, output);
  if ("mismatch" in found) {
    return `not a vision transformer of CLIP, so 'model optimise' keeps its graph: ${found.mismatch}`;
  }
  const { blocks, width, patchSide, unitLength } = found.tower;
  const end = unitLength ? ", normalises the embedding" : "";
  return `image tower of ${blocks.length} blocks, ${width} wide, patches of ${patchSide} pixels${end}`;
}
