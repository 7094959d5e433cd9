import { bytesPerElement, type DataType, dataTypes, type Tensor } from "../../contract/tensor.ts";

/** Tensors as the Open Inference Protocol carries them. Pure: client and server share it. */

/** A tensor as its bytes: what travels, whatever the type. Little endian, row-major. */
export interface WireTensor {
  readonly name: string;
  readonly dataType: DataType;
  readonly shape: readonly number[];
  /** BYTES: each element with its length before it, 4 bytes. */
  readonly bytes: Uint8Array;
}

/** What arrived is not what the protocol allows. The message is for the one who sent it. */
export class WireError extends Error {
  override readonly name = "WireError";

  constructor(
    message: string,
    /** `unsupported`: allowed by the protocol, but not offered here. `too_large`: beyond a limit of this server. */
    readonly code: "invalid" | "unsupported" | "too_large" = "invalid",
  ) {
    super(message);
  }
}

/** A value of `parameters`. */
export type ParameterValue = string | number | boolean;

/** An inference request, whatever carried it. */
export interface InferRequest {
  /** Empty where the client gave none. */
  readonly id: string;
  readonly parameters: Readonly<Record<string, ParameterValue>>;
  readonly inputs: readonly WireTensor[];
  /** The outputs to return; all of them when it is empty. */
  readonly outputs: readonly RequestedOutput[];
  /** Whether outputs that `outputs` does not name return as bytes. HTTP only: gRPC knows nothing else. */
  readonly binaryOutputs: boolean;
}

export interface RequestedOutput {
  readonly name: string;
  /** Return it as bytes after the JSON, rather than as JSON. HTTP only. */
  readonly binary: boolean;
}

/** Parameters of a tensor that mean something that is not offered here. */
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
      `classification is not supported: ask for '${name}' itself and rank it in the client`,
      "unsupported",
    );
  }
}

export function isDataType(value: unknown): value is DataType {
  return (dataTypes as readonly unknown[]).includes(value);
}

/** `[1,3,224,224]`, as Triton writes shapes. */
export function shapeText(shape: readonly number[]): string {
  return `[${shape.join(",")}]`;
}

/**
 * Elements of a shape that came from outside.
 *
 * @throws {WireError} when a dimension is not a whole number from 0 on, or the product is not a safe integer.
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

/** The bytes of a tensor: a view of its data, not a copy, except for BYTES. */
export function toWire(tensor: Tensor): WireTensor {
  const { name, shape, dataType } = tensor;
  if (tensor.dataType === "BYTES")
    return { name, shape, dataType, bytes: joinElements(tensor.data) };
  const { data } = tensor;
  const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  return { name, shape, dataType, bytes };
}

/**
 * The tensor in the bytes: a view of them, and a copy only where float32 values would be misaligned.
 *
 * @throws {WireError} when the bytes are more or fewer than the shape needs.
 */
export function fromWire(wire: WireTensor): Tensor {
  const { name, shape, dataType, bytes } = wire;
  const count = checkedElementCount(name, shape);
  if (dataType === "BYTES") {
    return { name, shape, dataType, data: splitElements(name, bytes, count) };
  }
  const expected = count * bytesPerElement[dataType]!;
  if (bytes.byteLength !== expected) {
    throw new WireError(
      `byte size mismatch for '${name}': ${dataType} ${shapeText(shape)} has ${expected} bytes, got ${bytes.byteLength}`,
    );
  }
  if (dataType !== "FP32") return { name, shape, dataType, data: bytes };
  return { name, shape, dataType, data: float32View(bytes) };
}

function float32View(bytes: Uint8Array): Float32Array {
  if (bytes.byteOffset % Float32Array.BYTES_PER_ELEMENT === 0) {
    return new Float32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4);
  }
  const aligned = new Float32Array(bytes.byteLength / 4);
  new Uint8Array(aligned.buffer).set(bytes);
  return aligned;
}

const lengthBytes = 4;

/** BYTES: each element with its length before it. */
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
 * Take BYTES apart.
 *
 * @throws {WireError} when a length leads out of the bytes, or there are more or fewer than `count` elements.
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

/** Maximum nesting of a tensor's elements. A tensor has at most 32 dimensions. */
const maxNesting = 32;

/**
 * The bytes of a tensor whose elements came as JSON, or one by one.
 *
 * @throws {WireError} when an element is of another type, out of range, or there are more or fewer than the shape needs.
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
  const elements: readonly unknown[] = data.some(Array.isArray) ? data.flat(maxNesting) : data;
  // before anything is allocated: the shape is a stranger's word
  if (elements.length !== count) {
    throw new WireError(
      `Unable to parse 'data' of '${name}': its number of elements does not match shape ${shapeText(shape)}`,
    );
  }
  const check = (rule: string, isRight: (value: unknown, index: number) => boolean) => {
    const index = elements.findIndex((value, at) => !isRight(value, at));
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
  const values = Uint8Array.from(numbers);
  check(dataType, (value, index) => value === values[index]);
  return values;
}

/**
 * The elements of a tensor as a JSON array, flat.
 *
 * @throws {WireError} when an element has no form in JSON: not a finite number, or not UTF-8.
 */
export function jsonOfBytes(wire: WireTensor): string {
  const { name, dataType } = wire;
  const refuse = (what: string) =>
    new WireError(`'${name}' has ${what}, which JSON cannot carry: use the binary data format`);

  if (dataType === "BYTES") {
    const decoder = new TextDecoder("utf-8", { fatal: true });
    const count = checkedElementCount(name, wire.shape);
    try {
      return JSON.stringify(
        splitElements(name, wire.bytes, count).map((element) => decoder.decode(element)),
      );
    } catch (error) {
      if (error instanceof WireError) throw error;
      throw refuse("an element that is not UTF-8");
    }
  }
  if (dataType === "UINT8") return `[${wire.bytes.join(",")}]`;
  const values = float32View(wire.bytes);
  if (!values.every(Number.isFinite)) throw refuse("a value that is not finite");
  return float32Json(values);
}

/** Nine digits give every float32 back exactly: two thirds of the size of what `join` writes, and faster. */
function float32Json(values: Float32Array): string {
  let text = "";
  for (const value of values) text += `,${value.toPrecision(9)}`;
  return `[${text.slice(1)}]`;
}

function oneLine(value: unknown): string {
  // it may be nested deeply
  if (Array.isArray(value)) return "an array";
  if (typeof value === "object" && value !== null) return "an object";
  const text = JSON.stringify(value) ?? String(value);
  return text.length > 40 ? `${text.slice(0, 40)}…` : text;
}
