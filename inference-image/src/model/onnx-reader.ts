import { closeSync, fstatSync, openSync, readSync } from "node:fs";
import { dirname, isAbsolute, resolve } from "node:path";

/**
 * Reads the structure of an ONNX file (onnx.proto3, protobuf wire format) and where the bytes of its weights lie, without
 * reading them: 351 MB of weights cost some hundred kilobytes of memory. Field numbers are those of `onnx/onnx.proto`.
 */

/** Where the values of a tensor lie, little-endian and row-major. */
export interface TensorBytes {
  readonly file: string;
  readonly offset: number;
  readonly length: number;
}

export interface OnnxTensor {
  readonly name: string;
  /** `TensorProto.DataType`: see {@link tensorTypes}. */
  readonly dataType: number;
  readonly dims: readonly number[];
  /** `undefined` where the values are not stored as bytes (strings, 64-bit integers as varints). */
  readonly bytes?: TensorBytes;
  /** The values of a list of varints. */
  readonly integers?: readonly number[];
}

/** Some of `TensorProto.DataType`. */
export const tensorTypes = { float: 1, uint8: 2, int8: 3, int32: 6, int64: 7, half: 10 } as const;

/** Value of an attribute, by its type. */
export interface OnnxFileAttribute {
  readonly int?: number;
  readonly float?: number;
  readonly text?: string;
  readonly ints?: readonly number[];
  readonly tensor?: OnnxTensor;
}

export interface OnnxFileNode {
  readonly name: string;
  readonly op: string;
  /** Empty for ONNX's own operators. */
  readonly domain: string;
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  readonly attributes: ReadonlyMap<string, OnnxFileAttribute>;
}

export interface OnnxValue {
  readonly name: string;
  readonly dataType: number;
  /** A number is a fixed size, a word is a symbolic one. */
  readonly dims: readonly (number | string)[];
}

export interface OnnxFile {
  readonly path: string;
  readonly irVersion: number;
  readonly producer: string;
  /** Version of each operator set, by domain; the domain of ONNX's own is empty. */
  readonly opsets: ReadonlyMap<string, number>;
  /** In topological order, less the `Constant` nodes: their tensors are among the initializers. */
  readonly nodes: readonly OnnxFileNode[];
  readonly initializers: ReadonlyMap<string, OnnxTensor>;
  /** Without those that are initializers too. */
  readonly inputs: readonly OnnxValue[];
  readonly outputs: readonly OnnxValue[];
  /** Whether there is something that this reader does not keep: functions, sparse weights, training information. */
  readonly hasMore: boolean;
}

/**
 * @throws {Error} one line, when the file is missing, is not ONNX, is cut short, or lacks its external data.
 */
export function readOnnx(path: string): OnnxFile {
  const source = openSource(path);
  try {
    return readModel(source);
  } catch (error) {
    if (error instanceof WireError) throw new Error(`${path}: ${error.message}`, { cause: error });
    throw error;
  } finally {
    source.close();
  }
}

/** The values of a tensor of floats. */
export function readFloats(tensor: OnnxTensor): Float32Array<ArrayBuffer> {
  if (tensor.dataType !== tensorTypes.float || tensor.bytes === undefined) {
    throw new Error(`${tensor.name}: expected float32 values`);
  }
  const values = new Float32Array(tensor.bytes.length / 4);
  readBytesInto(tensor.bytes, new Uint8Array(values.buffer));
  return values;
}

/** The values of a small tensor of integers; `undefined` for any other. */
export function readIntegers(tensor: OnnxTensor): readonly number[] | undefined {
  if (tensor.integers !== undefined) return tensor.integers;
  const { bytes } = tensor;
  if (bytes === undefined || bytes.length > 1024) return undefined;
  const buffer = Buffer.alloc(bytes.length);
  readBytesInto(bytes, buffer);
  if (tensor.dataType === tensorTypes.int64) {
    return Array.from({ length: bytes.length / 8 }, (_, i) => Number(buffer.readBigInt64LE(8 * i)));
  }
  if (tensor.dataType === tensorTypes.int32) {
    return Array.from({ length: bytes.length / 4 }, (_, i) => buffer.readInt32LE(4 * i));
  }
  return undefined;
}

/** The values of a tensor as bytes, in pieces of at most 1 MiB; the buffer is reused between pieces. */
export function* tensorPieces({ file, offset, length }: TensorBytes): Generator<Uint8Array> {
  const piece = Buffer.alloc(Math.min(length, 1 << 20));
  const descriptor = openSync(file, "r");
  try {
    for (let done = 0; done < length; ) {
      const wanted = Math.min(piece.length, length - done);
      const got = readSync(descriptor, piece, 0, wanted, offset + done);
      if (got === 0) throw new Error(`${file}: is cut short`);
      done += got;
      yield piece.subarray(0, got);
    }
  } finally {
    closeSync(descriptor);
  }
}

function readBytesInto(bytes: TensorBytes, target: Uint8Array): void {
  let filled = 0;
  for (const piece of tensorPieces(bytes)) {
    target.set(piece, filled);
    filled += piece.length;
  }
}

/** What is wrong with the bytes. */
class WireError extends Error {}

/** A part of the file that holds one message. */
interface Span {
  readonly start: number;
  readonly end: number;
}

interface Field {
  readonly number: number;
  readonly isVarint: boolean;
  /** Of a varint. */
  readonly value: number;
  /** Of a length-delimited or fixed-size field: its content. */
  readonly span: Span;
}

interface Source {
  readonly path: string;
  readonly size: number;
  /** Bytes from `offset`; a view that is valid until the next call. At most 64 KiB are sure to be there. */
  bytes(offset: number, length: number): Uint8Array;
  close(): void;
}

const windowBytes = 64 * 1024;

/** More than this is no name, shape or attribute of a real model. */
const maxSmallBytes = 64 * 1024 * 1024;

function openSource(path: string): Source {
  let descriptor: number;
  try {
    descriptor = openSync(path, "r");
  } catch (cause) {
    throw new Error(`model file '${path}' does not exist or cannot be read`, { cause });
  }
  const stats = fstatSync(descriptor);
  if (!stats.isFile()) {
    closeSync(descriptor);
    throw new Error(`model file '${path}' is not a file`);
  }
  let window = Buffer.alloc(0);
  let windowStart = 0;
  return {
    path,
    size: stats.size,
    bytes(offset, length) {
      const inside = offset - windowStart;
      if (inside < 0 || inside + length > window.length) {
        if (length > maxSmallBytes) throw new WireError("is not an ONNX file");
        const next = Buffer.alloc(Math.max(length, Math.min(windowBytes, stats.size - offset)));
        const got = readSync(descriptor, next, 0, next.length, offset);
        if (got < length) throw new WireError("is cut short");
        window = next.subarray(0, got);
        windowStart = offset;
        return window.subarray(0, length);
      }
      return window.subarray(inside, inside + length);
    },
    close: () => closeSync(descriptor),
  };
}

function readModel(source: Source): OnnxFile {
  let graph: Span | undefined;
  let irVersion = 0;
  let producer = "";
  let hasMore = false;
  const opsets = new Map<string, number>();
  for (const field of fields(source, { start: 0, end: source.size })) {
    if (field.number === 1) irVersion = field.value;
    else if (field.number === 2) producer = textOf(source, field.span);
    else if (field.number === 7) graph = field.span;
    else if (field.number === 8) {
      const opset = messageOf(source, field.span);
      opsets.set(opset.text(1) ?? "", opset.int(2) ?? 0);
    } else if (field.number === 20 || field.number === 25) hasMore = true;
  }
  if (graph === undefined || irVersion === 0 || opsets.size === 0) {
    throw new WireError("is not an ONNX file");
  }
  return { path: source.path, irVersion, producer, opsets, ...readGraph(source, graph, hasMore) };
}

function readGraph(source: Source, graph: Span, modelHasMore: boolean) {
  const nodes: OnnxFileNode[] = [];
  const initializers = new Map<string, OnnxTensor>();
  const inputs: OnnxValue[] = [];
  const outputs: OnnxValue[] = [];
  let hasMore = modelHasMore;
  for (const { number, span } of fields(source, graph)) {
    if (number === 1) {
      const node = readNode(source, span);
      const constant = constantOf(node);
      if (constant === undefined) nodes.push(node);
      else initializers.set(constant.name, constant);
    } else if (number === 5) {
      const tensor = readTensor(source, span);
      initializers.set(tensor.name, tensor);
    } else if (number === 11) inputs.push(readValue(source, span));
    else if (number === 12) outputs.push(readValue(source, span));
    else if (number === 15) hasMore = true;
  }
  return {
    nodes,
    initializers,
    inputs: inputs.filter(({ name }) => !initializers.has(name)),
    outputs,
    hasMore,
  };
}

function readNode(source: Source, span: Span): OnnxFileNode {
  const inputs: string[] = [];
  const outputs: string[] = [];
  const attributes = new Map<string, OnnxFileAttribute>();
  let [name, op, domain] = ["", "", ""];
  for (const field of fields(source, span)) {
    if (field.number === 1) inputs.push(textOf(source, field.span));
    else if (field.number === 2) outputs.push(textOf(source, field.span));
    else if (field.number === 3) name = textOf(source, field.span);
    else if (field.number === 4) op = textOf(source, field.span);
    else if (field.number === 5) attributes.set(...readAttribute(source, field.span));
    else if (field.number === 7) domain = textOf(source, field.span);
  }
  return {
    name,
    op,
    domain: domain === "ai.onnx" ? "" : domain,
    inputs,
    outputs,
    attributes,
  };
}

function readAttribute(source: Source, span: Span): [string, OnnxFileAttribute] {
  let name = "";
  let int: number | undefined;
  let float: number | undefined;
  let text: string | undefined;
  let tensor: OnnxTensor | undefined;
  const ints: number[] = [];
  for (const field of fields(source, span)) {
    if (field.number === 1) name = textOf(source, field.span);
    else if (field.number === 2) float = floatAt(source, field.span);
    else if (field.number === 3) int = field.value;
    else if (field.number === 4 && field.span.end - field.span.start < 1024) {
      text = textOf(source, field.span);
    } else if (field.number === 5) tensor = readTensor(source, field.span);
    else if (field.number === 8) ints.push(...integersOf(source, field));
  }
  return [name, { int, float, text, tensor, ints: ints.length > 0 ? ints : undefined }];
}

/** The tensor of a `Constant` node; its output names it. */
function constantOf(node: OnnxFileNode): OnnxTensor | undefined {
  const [name] = node.outputs;
  if (node.op !== "Constant" || node.domain !== "" || name === undefined) return undefined;
  const value = node.attributes.get("value")?.tensor;
  if (value !== undefined) return { ...value, name };
  const integer = node.attributes.get("value_int")?.int;
  if (integer !== undefined) {
    return { name, dataType: tensorTypes.int64, dims: [], integers: [integer] };
  }
  const integers = node.attributes.get("value_ints")?.ints;
  if (integers !== undefined) {
    return { name, dataType: tensorTypes.int64, dims: [integers.length], integers };
  }
  throw new WireError(`constant '${name}' has a form that is not supported`);
}

function readTensor(source: Source, span: Span): OnnxTensor {
  const dims: number[] = [];
  let name = "";
  let dataType = 0;
  let bytes: TensorBytes | undefined;
  let external = false;
  const externalData = new Map<string, string>();
  const integers: number[] = [];
  for (const field of fields(source, span)) {
    const { start, end } = field.span;
    if (field.number === 1) dims.push(...integersOf(source, field));
    else if (field.number === 2) dataType = field.value;
    else if (field.number === 8) name = textOf(source, field.span);
    // raw bytes; packed floats are the same bytes
    else if (field.number === 9 || (field.number === 4 && end > start)) {
      bytes = { file: source.path, offset: start, length: end - start };
    } else if (field.number === 5 || field.number === 7) {
      integers.push(...integersOf(source, field));
    } else if (field.number === 13) {
      const entry = messageOf(source, field.span);
      externalData.set(entry.text(1) ?? "", entry.text(2) ?? "");
    } else if (field.number === 14) external = field.value === 1;
  }
  if (external) bytes = externalBytes(source, name, externalData);
  const size = elementBytes[dataType];
  const expected = dims.reduce((product, dim) => product * dim, size ?? 0);
  if (bytes !== undefined && size !== undefined && bytes.length !== expected) {
    throw new WireError(
      `tensor '${name}' [${dims.join(", ")}] has ${bytes.length} bytes, expected ${expected}`,
    );
  }
  return { name, dataType, dims, bytes, integers: integers.length > 0 ? integers : undefined };
}

/** Bytes of an element, by `TensorProto.DataType`. */
const elementBytes: Readonly<Record<number, number | undefined>> = {
  1: 4,
  2: 1,
  3: 1,
  4: 2,
  5: 2,
  6: 4,
  7: 8,
  9: 1,
  10: 2,
  11: 8,
  12: 4,
  13: 8,
  16: 2,
};

function externalBytes(
  source: Source,
  tensor: string,
  entries: ReadonlyMap<string, string>,
): TensorBytes {
  const location = entries.get("location") ?? "";
  if (location === "" || isAbsolute(location) || location.split(/[\\/]/).includes("..")) {
    throw new WireError(`tensor '${tensor}' has its data in '${location}': not beside the file`);
  }
  const file = resolve(dirname(source.path), location);
  let size: number;
  try {
    const descriptor = openSync(file, "r");
    size = fstatSync(descriptor).size;
    closeSync(descriptor);
  } catch {
    throw new WireError(`its external data '${location}' does not exist`);
  }
  const offset = Number(entries.get("offset") ?? 0);
  const length = Number(entries.get("length") ?? size - offset);
  if (!(offset >= 0 && length >= 0 && offset + length <= size)) {
    throw new WireError(`its external data '${location}' is cut short`);
  }
  return { file, offset, length };
}

function readValue(source: Source, span: Span): OnnxValue {
  const value = messageOf(source, span);
  const tensor = value.message(2)?.message(1);
  const dims = (tensor?.message(2)?.all(1) ?? []).map((field) => {
    const dim = messageOf(source, field.span);
    return dim.int(1) ?? dim.text(2) ?? "";
  });
  return { name: value.text(1) ?? "", dataType: tensor?.int(1) ?? 0, dims };
}

/** A small message, all of whose fields are wanted. */
interface Message {
  all(number: number): readonly Field[];
  int(number: number): number | undefined;
  text(number: number): string | undefined;
  message(number: number): Message | undefined;
}

function messageOf(source: Source, span: Span): Message {
  const list = [...fields(source, span)];
  const last = (number: number) => list.findLast((field) => field.number === number);
  return {
    all: (number) => list.filter((field) => field.number === number),
    int: (number) => last(number)?.value,
    text: (number) => {
      const field = last(number);
      return field && textOf(source, field.span);
    },
    message: (number) => {
      const field = last(number);
      return field && messageOf(source, field.span);
    },
  };
}

function* fields(source: Source, { start, end }: Span): Generator<Field> {
  for (let at = start; at < end; ) {
    const tag = varintAt(source, at, end);
    at = tag.next;
    const number = Math.floor(tag.value / 8);
    const wireType = tag.value % 8;
    if (number === 0) throw new WireError("is not an ONNX file");
    if (wireType === 0) {
      const { value, next } = varintAt(source, at, end);
      yield { number, isVarint: true, value, span: { start: at, end: next } };
      at = next;
      continue;
    }
    let length: number;
    if (wireType === 2) {
      const prefix = varintAt(source, at, end);
      length = prefix.value;
      at = prefix.next;
    } else if (wireType === 1 || wireType === 5) length = wireType === 1 ? 8 : 4;
    else throw new WireError("is not an ONNX file");
    if (length < 0 || at + length > end) {
      const whole = end === source.size;
      throw new WireError(whole && number === 7 ? "is cut short" : "is not an ONNX file");
    }
    yield { number, isVarint: false, value: 0, span: { start: at, end: at + length } };
    at += length;
  }
}

function varintAt(source: Source, offset: number, end: number): { value: number; next: number } {
  const bytes = source.bytes(offset, Math.min(10, end - offset));
  let value = 0n;
  for (const [index, byte] of bytes.entries()) {
    value |= BigInt(byte & 0x7f) << BigInt(7 * index);
    if (byte < 0x80) {
      return { value: Number(BigInt.asIntN(64, value)), next: offset + index + 1 };
    }
  }
  throw new WireError(bytes.length < 10 ? "is cut short" : "is not an ONNX file");
}

/** A repeated integer: one, or several packed into one field. */
function integersOf(source: Source, field: Field): readonly number[] {
  const { start, end } = field.span;
  if (field.isVarint) return [field.value];
  const values: number[] = [];
  for (let at = start; at < end; ) {
    const { value, next } = varintAt(source, at, end);
    values.push(value);
    at = next;
  }
  return values;
}

function textOf(source: Source, { start, end }: Span): string {
  return Buffer.from(source.bytes(start, end - start)).toString("utf8");
}

function floatAt(source: Source, { start }: Span): number {
  return Buffer.from(source.bytes(start, 4)).readFloatLE();
}
