import protobuf from "protobufjs";
import { onnxMessage } from "./proto.ts";

/** Writes an ONNX file as a stream of chunks, so that its weights are never all in memory. */

interface OnnxTensorType {
  readonly name: string;
  /** @default "FLOAT" */
  readonly dataType?: OnnxElementType;
  /** A number is a fixed size, text a dynamic one, such as `batch`. */
  readonly dims: readonly (number | string)[];
}

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
   * Values as little-endian bytes in row-major order, in pieces of any size. Each piece is written before the next one is
   * read, so its buffer may be reused.
   */
  readonly data: () => Iterable<Uint8Array>;
}

export interface OnnxModel {
  readonly producer: string;
  readonly opset: number;
  /** Version of the intermediate representation: 8 for opset 15 to 18. */
  readonly irVersion: number;
  readonly graphName: string;
  readonly inputs: readonly OnnxTensorType[];
  readonly outputs: readonly OnnxTensorType[];
  /** In topological order. */
  readonly nodes: readonly OnnxNode[];
  readonly initializers: readonly OnnxInitializer[];
}

/** `TensorProto.DataType` and bytes per element. */
const elementTypes = {
  FLOAT: { code: 1, bytes: 4 },
  UINT8: { code: 2, bytes: 1 },
  INT32: { code: 6, bytes: 4 },
  INT64: { code: 7, bytes: 8 },
} as const;
type OnnxElementType = keyof typeof elementTypes;

/** `AttributeProto.AttributeType` */
const attributeTypes = { float: 1, int: 2, ints: 7 } as const;

/** Numbers of the fields that are written in pieces. */
const fields = { graph: 7, initializer: 5, rawData: 9 } as const;

/** Yields the file in pieces. A piece is valid until the next one is read. */
export function* onnxChunks(model: OnnxModel): Generator<Uint8Array, void, undefined> {
  const { head, tensors } = layout(model);
  yield head;
  for (const { initializer, header } of tensors) {
    yield header;
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
}

/** Size of the file in bytes, known before a weight is computed. */
export function onnxBytes(model: OnnxModel): number {
  const { head, tensors } = layout(model);
  return tensors.reduce(
    (sum, { initializer, header }) => sum + header.length + rawBytes(initializer),
    head.length,
  );
}

/** Returns an initializer of 64-bit integers, for shapes and axes. */
export function int64Initializer(name: string, values: readonly number[]): OnnxInitializer {
  const data = new Uint8Array(BigInt64Array.from(values, BigInt).buffer);
  return { name, dataType: "INT64", dims: [values.length], data: () => [data] };
}

/** Returns an initializer that is one FP32 scalar. */
export function scalarInitializer(name: string, value: number): OnnxInitializer {
  const data = new Uint8Array(Float32Array.of(value).buffer);
  return { name, dataType: "FLOAT", dims: [], data: () => [data] };
}

/** The graph precedes the weights, so that a reader finds it at the start of the file. */
function layout(model: OnnxModel) {
  const encoded = (type: string, message: object) => onnxMessage(type).encode(message).finish();
  const tensors = model.initializers.map((initializer) => ({
    initializer,
    header: initializerHeader(initializer),
  }));
  const graph = Buffer.concat([
    encoded("GraphProto", { name: model.graphName }),
    encoded("GraphProto", { node: model.nodes.map(nodeOf) }),
    encoded("GraphProto", {
      input: model.inputs.map(valueInfoOf),
      output: model.outputs.map(valueInfoOf),
    }),
  ]);
  const graphBytes = tensors.reduce(
    (sum, { initializer, header }) => sum + header.length + rawBytes(initializer),
    graph.length,
  );
  const head = Buffer.concat([
    encoded("ModelProto", {
      ir_version: model.irVersion,
      producer_name: model.producer,
      opset_import: [{ domain: "", version: model.opset }],
    }),
    lengthPrefix(fields.graph, graphBytes),
    graph,
  ]);
  return { head, tensors };
}

function nodeOf({ name, op, domain, inputs, outputs, attributes = {} }: OnnxNode) {
  return {
    input: inputs,
    output: outputs,
    name,
    op_type: op,
    attribute: Object.entries(attributes).map(([key, value]) => attributeOf(key, value)),
    ...(domain !== undefined && { domain }),
  };
}

function attributeOf(name: string, value: OnnxAttribute) {
  if (typeof value === "number") return { name, i: value, type: attributeTypes.int };
  if ("float" in value) return { name, f: value.float, type: attributeTypes.float };
  return { name, ints: value, type: attributeTypes.ints };
}

function valueInfoOf({ name, dims, dataType = "FLOAT" }: OnnxTensorType) {
  const dim = dims.map((size) =>
    typeof size === "number" ? { dim_value: size } : { dim_param: size },
  );
  const { code } = elementTypes[dataType];
  return { name, type: { tensor_type: { elem_type: code, shape: { dim } } } };
}

/** Bytes of a `TensorProto`, including its tag and length, up to its data. */
function initializerHeader(initializer: OnnxInitializer): Buffer {
  const { name, dims, dataType } = initializer;
  const bytes = rawBytes(initializer);
  const head = onnxMessage("TensorProto")
    .encode({ dims, data_type: elementTypes[dataType].code, name })
    .finish();
  const inner = Buffer.concat([head, lengthPrefix(fields.rawData, bytes)]);
  return Buffer.concat([lengthPrefix(fields.initializer, inner.length + bytes), inner]);
}

function rawBytes({ dims, dataType }: OnnxInitializer): number {
  return dims.reduce((product, dim) => product * dim, elementTypes[dataType].bytes);
}

function lengthPrefix(field: number, length: number): Uint8Array {
  return protobuf.Writer.create()
    .uint32((field << 3) | 2)
    .uint32(length)
    .finish();
}
