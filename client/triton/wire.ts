import {
  bytesPerElement,
  type DataType,
  dataTypes,
  elementArrays,
  type Tensor,
} from "../../contract/tensor.ts";

/** Serialisation of tensors for the Open Inference Protocol, shared by client and server. */

/** Serialised tensor: little endian, row-major. */
export interface WireTensor {
  readonly name: string;
  readonly dataType: DataType;
  readonly shape: readonly number[];
  /** For BYTES, each element is preceded by its length in 4 bytes. */
  readonly bytes: Uint8Array;
}

/**
 * Serialised tensor as several arrays, so that a batch is sent without being copied into one array.
 */
export interface TensorParts extends Omit<WireTensor, "bytes"> {
  readonly parts: readonly Uint8Array[];
}

/** Message that violates the protocol. The error message is for its sender. */
export class WireError extends Error {
  override readonly name = "WireError";

  constructor(
    message: string,
    /** `unsupported`: valid, but not implemented here. `too_large`: exceeds a limit of this server. */
    readonly code: "invalid" | "unsupported" | "too_large" = "invalid",
  ) {
    super(message);
  }
}

export type ParameterValue = string | number | boolean;

/** Inference request, independent of HTTP or gRPC. */
export interface InferRequest {
  /** Empty if the client set none. */
  readonly id: string;
  readonly parameters: Readonly<Record<string, ParameterValue>>;
  readonly inputs: readonly WireTensor[];
  /** Outputs to return; empty for all. */
  readonly outputs: readonly RequestedOutput[];
  /** Whether outputs not named in `outputs` are returned as bytes. Always true for gRPC. */
  readonly binaryOutputs: boolean;
}

export interface RequestedOutput {
  readonly name: string;
  /** Whether the output is returned as bytes after the JSON instead of in it. Always true for gRPC. */
  readonly binary: boolean;
}

/** @throws {WireError} `unsupported` if a tensor's parameters use shared memory or classification */
export function rejectExtensions(
  name: string,
  parameters: Readonly<Record<string, ParameterValue>> | undefined,
): void {
  if (parameters?.shared_memory_region !== undefined) {
    throw new WireError(
      `shared memory is not supported: send '${name}' in the message`,
      "unsupported",
    );
  }
  if (parameters?.classification !== undefined && Number(parameters.classification) > 0) {
    throw new WireError(
      `classification is not supported: request '${name}' itself and rank it in the client`,
      "unsupported",
    );
  }
}

/** Prefix of parameters that clients may not set. */
const reservedPrefix = "triton_";

/** Parameter of a gRPC request, without effect on the models of this server. */
const emptyFinalResponse = "triton_enable_empty_final_response";

/** @throws {WireError} if a request has a parameter that is reserved for Triton */
export function rejectReserved(
  protocol: "http" | "grpc",
  parameters: Readonly<Record<string, ParameterValue>>,
): void {
  const allowed = protocol === "http" ? undefined : emptyFinalResponse;
  const isReserved = (name: string) => name.startsWith(reservedPrefix) && name !== allowed;
  if (!Object.keys(parameters).some(isReserved)) return;
  const rule =
    allowed === undefined
      ? " and should not be specified."
      : `. Only the following keys starting with 'triton_' are allowed: ${allowed}`;
  throw new WireError(
    `parameter keys starting with 'triton_' are reserved for Triton usage${rule}`,
  );
}

export function isDataType(value: unknown): value is DataType {
  return (dataTypes as readonly unknown[]).includes(value);
}

/** Formats a shape like Triton: `[1,3,224,224]`. */
export function shapeText(shape: readonly number[]): string {
  return `[${shape.join(",")}]`;
}

/**
 * Returns the number of elements of an untrusted shape.
 *
 * @throws {WireError} if a dimension is not a non-negative integer or the product is not a safe integer
 */
export function checkedElementCount(name: string, shape: readonly number[]): number {
  let count = 1;
  for (const dim of shape) {
    if (!Number.isInteger(dim) || dim < 0) {
      throw new WireError(
        `invalid shape for '${name}': shape ${shapeText(shape)} contains one or more invalid dimensions`,
      );
    }
    count *= dim;
  }
  if (!Number.isSafeInteger(count)) {
    throw new WireError(
      `invalid shape for '${name}': shape ${shapeText(shape)} has more elements than ${Number.MAX_SAFE_INTEGER}`,
    );
  }
  return count;
}

/** Serialises a tensor. The bytes are a view of its data, except for BYTES. */
export function toWire(tensor: Tensor): WireTensor {
  const { name, shape, dataType } = tensor;
  if (tensor.dataType === "BYTES")
    return { name, shape, dataType, bytes: joinElements(tensor.data) };
  const { data } = tensor;
  const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  return { name, shape, dataType, bytes };
}

/** Serialises a tensor. All parts but the lengths of BYTES elements are views of its data. */
export function toParts(tensor: Tensor): TensorParts {
  const { name, shape, dataType } = tensor;
  const parts = tensor.dataType === "BYTES" ? elementParts(tensor.data) : [toWire(tensor).bytes];
  return { name, shape, dataType, parts };
}

function elementParts(elements: readonly Uint8Array[]): Uint8Array[] {
  return elements.flatMap((element) => {
    const length = new Uint8Array(lengthBytes);
    new DataView(length.buffer).setUint32(0, element.byteLength, true);
    return [length, element];
  });
}

/**
 * Deserialises a tensor. Its data is a view of the bytes, or a copy if its values would be misaligned.
 *
 * @throws {WireError} if the number of bytes does not match the shape
 */
export function fromWire(wire: WireTensor): Tensor {
  const { name, shape, dataType, bytes } = wire;
  const count = checkedElementCount(name, shape);
  if (dataType === "BYTES") {
    return { name, shape, dataType, data: splitElements(name, bytes, count) };
  }
  const expected = count * bytesPerElement[dataType];
  if (bytes.byteLength !== expected) {
    throw new WireError(
      `byte size mismatch for '${name}': ${dataType} ${shapeText(shape)} has ${expected} bytes, got ${bytes.byteLength}`,
    );
  }
  return { name, shape, dataType, data: viewOf(dataType, bytes) } as Tensor;
}

type NumericType = keyof typeof elementArrays;

/** Returns the elements as a view of the bytes, or of a copy if they would be misaligned. */
function viewOf<Type extends NumericType>(
  dataType: Type,
  bytes: Uint8Array,
): InstanceType<(typeof elementArrays)[Type]> {
  const elements = elementArrays[dataType];
  const size = elements.BYTES_PER_ELEMENT;
  const { buffer, byteOffset } = bytes.byteOffset % size === 0 ? bytes : new Uint8Array(bytes);
  const view = new elements(buffer as ArrayBuffer, byteOffset, bytes.byteLength / size);
  return view as InstanceType<(typeof elementArrays)[Type]>;
}

const lengthBytes = 4;

/** Serialises BYTES elements, each preceded by its length. */
export function joinElements(elements: readonly Uint8Array[]): Uint8Array {
  const total = elements.reduce((sum, element) => sum + lengthBytes + element.byteLength, 0);
  const bytes = new Uint8Array(total);
  const view = new DataView(bytes.buffer);
  let offset = 0;
  for (const element of elements) {
    view.setUint32(offset, element.byteLength, true);
    bytes.set(element, offset + lengthBytes);
    offset += lengthBytes + element.byteLength;
  }
  return bytes;
}

/**
 * Deserialises BYTES elements.
 *
 * @throws {WireError} if a length exceeds the remaining bytes or the number of elements is not `count`
 */
export function splitElements(name: string, bytes: Uint8Array, count: number): Uint8Array[] {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const elements: Uint8Array[] = [];
  let offset = 0;
  while (offset < bytes.byteLength) {
    if (elements.length === count) {
      throw new WireError(
        `unexpected number of string elements ${count + 1} for '${name}', expecting ${count}`,
      );
    }
    const start = offset + lengthBytes;
    if (start > bytes.byteLength) {
      throw new WireError(
        `incomplete string length indicator for '${name}', expecting ${lengthBytes} bytes but only ${bytes.byteLength - offset} bytes available`,
      );
    }
    const end = start + view.getUint32(offset, true);
    if (end > bytes.byteLength) {
      throw new WireError(
        `incomplete string data for '${name}', expecting string of length ${end - start} but only ${bytes.byteLength - start} bytes available`,
      );
    }
    elements.push(bytes.subarray(start, end));
    offset = end;
  }
  if (elements.length !== count) {
    throw new WireError(`expected ${count} string elements for '${name}', got ${elements.length}`);
  }
  return elements;
}

/**
 * Depth to which nested arrays are flattened. Deeper input is rejected, because its elements
 * remain arrays.
 */
const maxFlattenDepth = 32;

/**
 * Serialises a tensor from the elements of a JSON array, which may be nested.
 *
 * @throws {WireError} if an element has the wrong type or is out of range, or their number does not match the shape
 */
export function bytesOfElements(
  name: string,
  dataType: DataType,
  shape: readonly number[],
  data: unknown,
): Uint8Array {
  const count = checkedElementCount(name, shape);
  if (!Array.isArray(data)) {
    throw new WireError(`Unable to parse 'data' of '${name}': not an array`);
  }
  const elements: readonly unknown[] = data.some(Array.isArray) ? data.flat(maxFlattenDepth) : data;
  // checked before allocating memory, because the shape is untrusted
  if (elements.length !== count) {
    throw new WireError(
      `Unable to parse 'data' of '${name}': its number of elements does not match shape ${shapeText(shape)}`,
    );
  }
  const check = (rule: string, isValid: (value: unknown, index: number) => boolean) => {
    const index = elements.findIndex((value, at) => !isValid(value, at));
    if (index < 0) return;
    throw new WireError(
      `Unable to parse 'data' of '${name}': element ${index} must be ${rule}, got ${oneLine(elements[index])}`,
    );
  };

  if (dataType === "BYTES") {
    check("a string", (value) => typeof value === "string");
    const encoder = new TextEncoder();
    return joinElements((elements as readonly string[]).map((value) => encoder.encode(value)));
  }
  check("a number", (value) => typeof value === "number");
  const numbers = elements as readonly number[];
  if (dataType === "FP32") return new Uint8Array(new Float32Array(numbers).buffer);
  if (dataType === "INT64") {
    // JSON.parse rounds larger numbers
    check("INT64, at most 2⁵³ - 1 in JSON", Number.isSafeInteger);
    return new Uint8Array(BigInt64Array.from(numbers, BigInt).buffer);
  }
  const values = elementArrays[dataType].from(numbers);
  check(dataType, (value, index) => value === values[index]);
  return new Uint8Array(values.buffer);
}

/**
 * Returns the elements of a tensor as a flat JSON array.
 *
 * @throws {WireError} if an element cannot be represented in JSON: a number that is not finite, or bytes that are not UTF-8
 */
export function jsonOfBytes(wire: WireTensor): string {
  const { name, dataType } = wire;
  const notInJson = (element: string) =>
    new WireError(
      `'${name}' has ${element}, which JSON cannot represent: use the binary data format`,
    );

  if (dataType === "BYTES") {
    const decoder = new TextDecoder("utf-8", { fatal: true });
    const count = checkedElementCount(name, wire.shape);
    try {
      return JSON.stringify(
        splitElements(name, wire.bytes, count).map((element) => decoder.decode(element)),
      );
    } catch (error) {
      if (error instanceof WireError) throw error;
      throw notInJson("an element that is not UTF-8");
    }
  }
  if (dataType !== "FP32") return `[${viewOf(dataType, wire.bytes).join(",")}]`;
  const values = viewOf(dataType, wire.bytes);
  if (!values.every(Number.isFinite)) throw notInJson("a value that is not finite");
  return float32Json(values);
}

/** Writes nine significant digits, which represent every float32 exactly in two thirds of the size of `join`. */
function float32Json(values: Float32Array): string {
  let text = "";
  for (const value of values) text += `,${value.toPrecision(9)}`;
  return `[${text.slice(1)}]`;
}

function oneLine(value: unknown): string {
  // the value may be nested deeply
  if (Array.isArray(value)) return "an array";
  if (typeof value === "object" && value !== null) return "an object";
  const text = JSON.stringify(value) ?? String(value);
  return text.length > 40 ? `${text.slice(0, 40)}…` : text;
}
