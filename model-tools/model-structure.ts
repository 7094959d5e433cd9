import { statSync } from "node:fs";
import { basename } from "node:path";
import { type ModelSignature, models } from "../contract/model-signature.ts";
import type { TensorSpec } from "../contract/tensor.ts";
import type { OnnxFile, OnnxValue } from "./onnx-reader.ts";
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
  /** Models of the repository whose `config.pbtxt` fits the file. */
  readonly fits: readonly string[];
  /** Differences from the most similar model; empty if the file fits one. */
  readonly misfits: readonly string[];
  /** Description of the image tower, or why it is not recognised; only for models with FP32 input. */
  readonly tower?: string;
}

export interface ModelTensor {
  readonly name: string;
  readonly dataType: string;
  /** Text is the name of a dynamic dimension. */
  readonly dims: readonly (number | string)[];
}

/** Names of `TensorProto.DataType` in the Open Inference Protocol. */
const dataTypes: Readonly<Record<number, string | undefined>> = {
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

/** Models of the repository with an ONNX file. */
const candidates = (models as readonly ModelSignature[]).filter(
  ({ platform }) => platform === "onnxruntime_onnx",
);

export function structureOf(file: OnnxFile): ModelStructure {
  const inputs = file.inputs.map(tensorOf);
  const outputs = file.outputs.map(tensorOf);
  const misfits = candidates.map((model) => [
    ...misfitsOf("input", inputs, model.inputs),
    ...misfitsOf("output", outputs, model.outputs),
  ]);
  const fits = candidates.filter((_, index) => misfits[index]!.length === 0);
  const nearest = misfits.reduce((best, found) => (found.length < best.length ? found : best));
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
    fits: fits.map(({ name }) => name),
    misfits: fits.length > 0 ? [] : nearest,
    tower: inputs[0]?.dataType === "FP32" ? towerOf(file) : undefined,
  };
}

function tensorOf({ name, dataType, dims }: OnnxValue): ModelTensor {
  return {
    name,
    dataType: dataTypes[dataType] ?? `type ${dataType}`,
    dims: dims.map((dim) => (dim === "" ? "any" : dim)),
  };
}

/** `image FP32 [batch, 3, 224, 224]` */
export function tensorText({ name, dataType, dims }: ModelTensor): string {
  return `${name} ${dataType} [${dims.join(", ")}]`;
}

/** Compares as Triton does: a dynamic dimension of the file matches any size. */
function* misfitsOf(
  kind: "input" | "output",
  tensors: readonly ModelTensor[],
  specs: readonly TensorSpec[],
): Generator<string> {
  for (const spec of specs) {
    const expected = tensorText({ ...spec, dims: ["batch", ...spec.dims] });
    const [tensor] = tensors;
    if (tensor === undefined || tensors.length !== specs.length) {
      yield `must have one ${kind}, ${expected}, got ${tensors.length}`;
      continue;
    }
    if (tensor.name !== spec.name) {
      yield `${kind} must be named ${spec.name}, got ${tensor.name}`;
    }
    if (tensor.dataType !== spec.dataType) {
      yield `${kind} must be ${spec.dataType}, got ${tensor.dataType}`;
    }
    const [batch, ...dims] = tensor.dims;
    if (typeof batch === "number") {
      yield `${kind} must have a dynamic batch dimension, got ${batch}`;
    }
    // exporters may omit the shape of an output
    const isOpen = kind === "output" && tensor.dims.length === 0;
    const same =
      dims.length === spec.dims.length &&
      dims.every((dim, index) => typeof dim === "string" || dim === spec.dims[index]);
    if (!same && !isOpen) {
      yield `${kind} must be [${spec.dims.join(", ")}] after the batch dimension, got [${dims.join(", ")}]`;
    }
  }
}

function towerOf(file: OnnxFile): string {
  const found = recogniseTower(file);
  if ("mismatch" in found) return `not recognised as an image tower: ${found.mismatch}`;
  const { blocks, width, patchSide, unitLength } = found.tower;
  const end = unitLength ? ", normalises the embedding" : "";
  return `image tower of ${blocks.length} blocks, ${width} wide, patches of ${patchSide} pixels${end}`;
}
