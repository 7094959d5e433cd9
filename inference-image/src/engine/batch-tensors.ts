import { bytesPerElement, elementCount, type Tensor, type TensorSpec } from "../contract/tensor.ts";
import { EngineError } from "./types.ts";

/**
 * Checks a request against the inputs of a model.
 *
 * @returns Items in the request, and a key that is equal for requests that fit into one batch.
 * @throws {EngineError} `invalid`, in the order of the model's inputs.
 */
export function checkInputs(
  inputs: readonly Tensor[],
  specs: readonly TensorSpec[],
  maxBatchSize: number,
): { items: number; shapeKey: string } {
  const invalid = (message: string) => new EngineError("invalid", message);
  if (inputs.length !== specs.length) {
    throw invalid(`expected ${specs.length} inputs, got ${inputs.length}`);
  }
  const items = inputs[0]?.shape[0] ?? 0;
  if (!Number.isInteger(items) || items < 1 || items > maxBatchSize) {
    throw invalid(`batch size must be 1 to ${maxBatchSize}, got ${items}`);
  }
  for (const [index, spec] of specs.entries()) {
    const input = inputs[index]!;
    if (input.name !== spec.name) {
      throw invalid(`input ${index} must be '${spec.name}', got '${input.name}'`);
    }
    if (input.dataType !== spec.dataType) {
      throw invalid(`input '${spec.name}' must be ${spec.dataType}, got ${input.dataType}`);
    }
    const dims = input.shape.slice(1);
    const fits =
      input.shape[0] === items &&
      dims.length === spec.dims.length &&
      dims.every((dim, axis) =>
        spec.dims[axis] === -1 ? Number.isInteger(dim) && dim >= 0 : dim === spec.dims[axis],
      );
    if (!fits) {
      throw invalid(
        `input '${spec.name}' must be [${[items, ...spec.dims].join(", ")}], got [${input.shape.join(", ")}]`,
      );
    }
    const values = valueCount(input);
    if (values !== elementCount(input.shape)) {
      throw invalid(
        `input '${spec.name}' must have ${elementCount(input.shape)} values, got ${values}`,
      );
    }
  }
  return { items, shapeKey: inputs.map(({ shape }) => shape.slice(1).join("x")).join(";") };
}

function valueCount({ dataType, data }: Tensor): number {
  return data instanceof Uint8Array
    ? data.byteLength / (bytesPerElement[dataType] ?? 1)
    : data.length;
}

/** @throws {EngineError} `failed` unless every output has `batchSize` rows. */
export function checkOutputs(outputs: readonly Tensor[], batchSize: number): void {
  for (const { name, shape } of outputs) {
    if (shape[0] !== batchSize) {
      throw new EngineError(
        "failed",
        `output '${name}' must have ${batchSize} rows, got [${shape.join(", ")}]`,
      );
    }
  }
}

/** One tensor of all rows, in new memory: the session takes it over, and the callers keep theirs. */
export function concatenate(parts: readonly Tensor[], batchSize: number): Tensor {
  const { name, shape } = parts[0]!;
  const head = { name, shape: [batchSize, ...shape.slice(1)] };
  const first = parts[0]!;
  if (first.dataType === "FP32") {
    const data = new Float32Array(elementCount(head.shape));
    let offset = 0;
    for (const part of parts as readonly (typeof first)[]) {
      data.set(part.data, offset);
      offset += part.data.length;
    }
    return { ...head, dataType: "FP32", data };
  }
  if (first.dataType === "BYTES") {
    const data = (parts as readonly (typeof first)[]).flatMap((part) => [...part.data]);
    return { ...head, dataType: "BYTES", data };
  }
  const pieces = (parts as readonly (typeof first)[]).map((part) => part.data);
  const data = new Uint8Array(pieces.reduce((total, piece) => total + piece.byteLength, 0));
  let offset = 0;
  for (const piece of pieces) {
    data.set(piece, offset);
    offset += piece.byteLength;
  }
  return { ...head, dataType: first.dataType, data };
}

/** Rows `first` to `first + count` of a tensor: a view, not a copy. */
export function sliceRows(tensor: Tensor, first: number, count: number): Tensor {
  const rows = tensor.shape[0]!;
  const head = { name: tensor.name, shape: [count, ...tensor.shape.slice(1)] };
  const cut = (length: number) => [(first * length) / rows, ((first + count) * length) / rows];
  if (tensor.dataType === "FP32") {
    return {
      ...head,
      dataType: "FP32",
      data: tensor.data.subarray(...cut(tensor.data.length)),
    };
  }
  if (tensor.dataType === "BYTES") {
    return { ...head, dataType: "BYTES", data: tensor.data.slice(...cut(tensor.data.length)) };
  }
  return {
    ...head,
    dataType: tensor.dataType,
    data: tensor.data.subarray(...cut(tensor.data.length)),
  };
}
