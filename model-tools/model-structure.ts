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
  /** Files beside it that have its weights. */
  readonly externalData: readonly { readonly file: string; readonly bytes: number }[];
  /** Models of the repository whose `config.pbtxt` it fits. */
  readonly fits: readonly string[];
  /** Differences from the most similar model; empty if it fits one. */
  readonly misfits: readonly string[];
  /** Description of the tower for `model optimise`, or why it is not recognised; only for models of normalised images. */
  readonly tower?: string;
}

export interface ModelTensor {
  readonly name: string;
  readonly dataType: string;
  /** A word is a dimension of any size. */
  readonly dims: readonly (number | string)[];
}

/** The protocol's names of `TensorProto.DataType`. */
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

/** Models of the repository that have a file of weights. */
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

/** As Triton compares a configuration with a file: a dimension that the file leaves open may be any. */
function* misfitsOf(
  what: "input" | "output",
  tensors: readonly ModelTensor[],
  specs: readonly TensorSpec[],
): Generator<string> {
  for (const spec of specs) {
    const wanted = tensorText({ ...spec, dims: ["batch", ...spec.dims] });
    const [tensor] = tensors;
    if (tensor === undefined || tensors.length !== specs.length) {
      yield `must have one ${what}, ${wanted}, has ${tensors.length}`;
      continue;
    }
    if (tensor.name !== spec.name) {
      yield `${what} must be called ${spec.name}, is called ${tensor.name}`;
    }
    if (tensor.dataType !== spec.dataType) {
      yield `${what} must be ${spec.dataType}, is ${tensor.dataType}`;
    }
    const [batch, ...dims] = tensor.dims;
    if (typeof batch === "number") {
      yield `${what} must take a batch of any size as first dimension, takes ${batch}`;
    }
    // an exporter may leave the shape of an output open altogether
    const isOpen = what === "output" && tensor.dims.length === 0;
    const same =
      dims.length === spec.dims.length &&
      dims.every((dim, index) => typeof dim === "string" || dim === spec.dims[index]);
    if (!same && !isOpen) {
      yield `${what} must be [${spec.dims.join(", ")}] after the batch, is [${dims.join(", ")}]`;
    }
  }
}

function towerOf(file: OnnxFile): string {
  const found = recogniseTower(file);
  if ("unlike" in found) return `not recognised as an image tower: ${found.unlike}`;
  const { blocks, width, patchSide, unitLength } = found.tower;
  const end = unitLength ? ", divides by the length at the end" : "";
  return `image tower of ${blocks.length} blocks, ${width} wide, patches of ${patchSide} pixels${end}`;
}
