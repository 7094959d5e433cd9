/**
 * Writes an ONNX file (onnx.proto3, protobuf wire format) as a stream of chunks, so that the size of the weights is never
 * the size of the memory. Field numbers are those of `onnx/onnx.proto`.
 */

export interface OnnxTensorType {
  readonly name: string;
  /** @default "FLOAT" */
  readonly dataType?: OnnxElementType;
  /** A number is a fixed size, a word is a symbolic one, for example `batch`. */
  readonly dims: readonly (number | string)[];
}

/** An attribute: an integer, a list of integers, or a float. */
export type OnnxAttribute = number | readonly number[] | { readonly float: number };

export interface OnnxNode {
  readonly name: string;
  readonly op: string;
  /** @default "" - ONNX's own operators */
  readonly domain?: string;
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  readonly attributes?: Readonly<Record<string, OnnxAttribute>>;
}

export interface OnnxInitializer {
  readonly name: string;
  readonly dataType: OnnxElementType;
  readonly dims: readonly number[];
  /**
   * The values as little-endian bytes, in row-major order, in pieces of any size. A piece is used before the next one is
   * asked for, so its buffer may be reused.
   */
  readonly data: () => Iterable<Uint8Array>;
}

export interface OnnxModel {
  readonly producer: string;
  readonly opset: number;
  /** Intermediate representation version: 8 goes with opset 15 to 18. */
  readonly irVersion: number;
  readonly graphName: string;
  readonly inputs: readonly OnnxTensorType[];
  readonly outputs: readonly OnnxTensorType[];
  /** In topological order. */
  readonly nodes: readonly OnnxNode[];
  readonly initializers: readonly OnnxInitializer[];
  readonly metadata?: Readonly<Record<string, string>>;
}

/** What `TensorProto.DataType` calls them, and the bytes of one element. */
const elementTypes = {
  FLOAT: { code: 1, bytes: 4 },
  UINT8: { code: 2, bytes: 1 },
  INT8: { code: 3, bytes: 1 },
  UINT16: { code: 4, bytes: 2 },
  INT16: { code: 5, bytes: 2 },
  INT32: { code: 6, bytes: 4 },
  INT64: { code: 7, bytes: 8 },
  BOOL: { code: 9, bytes: 1 },
  FLOAT16: { code: 10, bytes: 2 },
  DOUBLE: { code: 11, bytes: 8 },
  BFLOAT16: { code: 16, bytes: 2 },
} as const;
export type OnnxElementType = keyof typeof elementTypes;

/** What the writer calls a `TensorProto.DataType`; `undefined` for one that it does not write. */
export function elementTypeOf(code: number): OnnxElementType | undefined {
  return (Object.keys(elementTypes) as OnnxElementType[]).find(
    (name) => elementTypes[name].code === code,
  );
}

/** What `AttributeProto.AttributeType` calls them. */
const attributeTypes = { float: 1, int: 2, ints: 7 } as const;

/** The file, in pieces. A piece is valid until the next one is asked for. */
export function* onnxChunks(model: OnnxModel): Generator<Uint8Array, void, undefined> {
  const { head, tensors, tail, graphBytes } = layout(model);
  yield Buffer.concat([head, tag(7, 2), varint(graphBytes)]);
  yield tail;
  for (const { initializer, header } of tensors) {
    yield header;
    yield* checkedPieces(initializer);
  }
}

/** The data of an initializer, refused at its end when it is not as long as its shape says. */
function* checkedPieces(initializer: OnnxInitializer): Generator<Uint8Array, void, undefined> {
  let written = 0;
  for (const piece of initializer.data()) {
    written += piece.byteLength;
    yield piece;
  }
  const expected = rawBytes(initializer);
  if (written !== expected) {
    throw new Error(`${initializer.name}: expected ${expected} bytes of data, got ${written}`);
  }
}

function copyOf(piece: Uint8Array): Uint8Array {
  return Uint8Array.from(piece);
}

/** Size of the file in bytes, known before a weight is computed. */
export function onnxBytes(model: OnnxModel): number {
  const { head, graphBytes } = layout(model);
  return head.length + tag(7, 2).length + varint(graphBytes).length + graphBytes;
}

/** A model whose larger tensors lie in a file of their own. */
export interface SplitModel {
  /** The ONNX file. */
  readonly model: Uint8Array;
  /** The file of the weights, in pieces. A piece is valid until the next one is asked for. */
  readonly weights: () => Generator<Uint8Array, void, undefined>;
  readonly weightBytes: number;
}

/** Where a tensor starts: a page, so that ONNX Runtime maps the file into memory and copies nothing. */
const weightAlignment = 4096;

/** Smaller tensors stay in the ONNX file: shapes, biases, gains. */
const smallTensorBytes = 64 * 1024;

/**
 * Split a model into an ONNX file and the file of its weights, which lies beside it.
 *
 * @param location - Name of the file of the weights.
 */
export function splitModel(model: OnnxModel, location: string): SplitModel {
  const small = model.initializers.filter((item) => rawBytes(item) < smallTensorBytes);
  const large = model.initializers.filter((item) => rawBytes(item) >= smallTensorBytes);
  let end = 0;
  const placed = large.map((initializer) => {
    const offset = Math.ceil(end / weightAlignment) * weightAlignment;
    end = offset + rawBytes(initializer);
    return { initializer, offset };
  });
  const head = onnxHead(model);
  const tail = onnxTail(model);
  const references = placed.map(({ initializer, offset }) =>
    message(5, [
      ...initializer.dims.map((dim) => int(1, dim)),
      int(2, elementTypes[initializer.dataType].code),
      text(8, initializer.name),
      ...Object.entries({ location, offset, length: rawBytes(initializer) }).map(([key, value]) =>
        message(13, [text(1, key), text(2, String(value))]),
      ),
      int(14, 1), // data_location: EXTERNAL
    ]),
  );
  const inline = small.map((initializer) =>
    Buffer.concat([
      initializerHeader(initializer),
      ...Array.from(checkedPieces(initializer), copyOf),
    ]),
  );
  return {
    model: Buffer.concat([head, message(7, [tail, ...references, ...inline])]),
    *weights() {
      let written = 0;
      for (const { initializer, offset } of placed) {
        if (offset > written) yield Buffer.alloc(offset - written);
        yield* checkedPieces(initializer);
        written = offset + rawBytes(initializer);
      }
    },
    weightBytes: end,
  };
}

/** An initializer of 64-bit integers, for shapes and axes. */
export function int64Initializer(name: string, values: readonly number[]): OnnxInitializer {
  const data = Buffer.alloc(8 * values.length);
  values.forEach((value, i) => {
    data.writeBigInt64LE(BigInt(value), 8 * i);
  });
  return { name, dataType: "INT64", dims: [values.length], data: () => [data] };
}

/** An initializer that is one FP32 scalar. */
export function scalarInitializer(name: string, value: number): OnnxInitializer {
  const data = Buffer.alloc(4);
  data.writeFloatLE(value);
  return { name, dataType: "FLOAT", dims: [], data: () => [data] };
}

function onnxHead(model: OnnxModel): Buffer {
  return Buffer.concat([
    int(1, model.irVersion),
    text(2, model.producer),
    message(8, [text(1, ""), int(2, model.opset)]),
    ...Object.entries(model.metadata ?? {}).map(([key, value]) =>
      message(14, [text(1, key), text(2, value)]),
    ),
  ]);
}

/** The graph without its tensors. */
function onnxTail(model: OnnxModel): Buffer {
  return Buffer.concat([
    text(2, model.graphName),
    ...model.nodes.map(nodeField),
    ...model.inputs.map((input) => valueInfoField(11, input)),
    ...model.outputs.map((output) => valueInfoField(12, output)),
  ]);
}

function layout(model: OnnxModel) {
  const head = onnxHead(model);
  // The order of fields is free: everything small comes before the weights, so a reader sees the graph at once.
  const tail = onnxTail(model);
  const tensors = model.initializers.map((initializer) => ({
    initializer,
    header: initializerHeader(initializer),
  }));
  const graphBytes = tensors.reduce(
    (sum, { initializer, header }) => sum + header.length + rawBytes(initializer),
    tail.length,
  );
  return { head, tensors, tail, graphBytes };
}

function nodeField(node: OnnxNode): Buffer {
  return message(1, [
    ...node.inputs.map((name) => text(1, name)),
    ...node.outputs.map((name) => text(2, name)),
    text(3, node.name),
    text(4, node.op),
    ...Object.entries(node.attributes ?? {}).map(([name, value]) => attributeField(name, value)),
    ...(node.domain === undefined ? [] : [text(7, node.domain)]),
  ]);
}

function attributeField(name: string, value: OnnxAttribute): Buffer {
  if (typeof value === "number") {
    return message(5, [text(1, name), int(3, value), int(20, attributeTypes.int)]);
  }
  if ("float" in value) {
    return message(5, [text(1, name), float(2, value.float), int(20, attributeTypes.float)]);
  }
  return message(5, [
    text(1, name),
    ...value.map((item) => int(8, item)),
    int(20, attributeTypes.ints),
  ]);
}

function valueInfoField(field: number, { name, dims, dataType = "FLOAT" }: OnnxTensorType): Buffer {
  const shape = dims.map((dim) =>
    message(1, [typeof dim === "number" ? int(1, dim) : text(2, dim)]),
  );
  const tensorType = message(1, [int(1, elementTypes[dataType].code), message(2, shape)]);
  return message(field, [text(1, name), message(2, [tensorType])]);
}

/** Everything of a `TensorProto`, its own tag and length included, up to the first byte of its data. */
function initializerHeader(initializer: OnnxInitializer): Buffer {
  const bytes = rawBytes(initializer);
  const inner = Buffer.concat([
    ...initializer.dims.map((dim) => int(1, dim)),
    int(2, elementTypes[initializer.dataType].code),
    text(8, initializer.name),
    tag(9, 2),
    varint(bytes),
  ]);
  return Buffer.concat([tag(5, 2), varint(inner.length + bytes), inner]);
}

function rawBytes({ dims, dataType }: OnnxInitializer): number {
  return dims.reduce((product, dim) => product * dim, elementTypes[dataType].bytes);
}

function tag(field: number, wireType: 0 | 2 | 5): Buffer {
  return varint((field << 3) | wireType);
}

function varint(value: number): Buffer {
  const bytes: number[] = [];
  let rest = BigInt.asUintN(64, BigInt(value));
  while (rest > 0x7fn) {
    bytes.push(Number(rest & 0x7fn) | 0x80);
    rest >>= 7n;
  }
  bytes.push(Number(rest));
  return Buffer.from(bytes);
}

function int(field: number, value: number): Buffer {
  return Buffer.concat([tag(field, 0), varint(value)]);
}

function float(field: number, value: number): Buffer {
  const data = Buffer.alloc(4);
  data.writeFloatLE(value);
  return Buffer.concat([tag(field, 5), data]);
}

function text(field: number, value: string): Buffer {
  return message(field, [Buffer.from(value, "utf8")]);
}

function message(field: number, parts: readonly Uint8Array[]): Buffer {
  const body = Buffer.concat(parts);
  return Buffer.concat([tag(field, 2), varint(body.length), body]);
}
