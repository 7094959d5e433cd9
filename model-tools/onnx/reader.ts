import { readFileSync, statSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { readFailure } from "../../contract/read-failure.ts";
import { requireBeside } from "../files/external-data.ts";
import { onnxMessage } from "./proto.ts";

export interface OnnxTensor {
  readonly name: string;
  /** `TensorProto.DataType`: see {@link tensorTypes}. */
  readonly dataType: number;
  readonly dims: readonly number[];
  /** Values, little-endian and row-major; `undefined` for types that this reader does not support. */
  readonly bytes?: Uint8Array;
  /** Path of the file beside the model that contains the values. */
  readonly externalFile?: string;
}

/** Supported values of `TensorProto.DataType`. */
export const tensorTypes = { float: 1, uint8: 2, int8: 3, int32: 6, int64: 7, half: 10 } as const;

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
  /** A number is a fixed size, text a dynamic one. */
  readonly dims: readonly (number | string)[];
}

export interface OnnxFile {
  readonly path: string;
  readonly irVersion: number;
  readonly producer: string;
  /** Version of each operator set, by domain; the domain of ONNX's own is empty. */
  readonly opsets: ReadonlyMap<string, number>;
  /** In topological order, without `Constant` nodes, whose tensors are among the initializers. */
  readonly nodes: readonly OnnxFileNode[];
  readonly initializers: ReadonlyMap<string, OnnxTensor>;
  /** Without initializers. */
  readonly inputs: readonly OnnxValue[];
  readonly outputs: readonly OnnxValue[];
  /** Whether the file has parts that this reader omits: functions, sparse weights, training information. */
  readonly hasMore: boolean;
}

/** Messages of `onnx.proto` with the fields that are read; an absent optional field is `null`. */
interface ModelMessage {
  readonly ir_version: number;
  readonly producer_name: string;
  readonly opset_import: readonly { readonly domain: string; readonly version: number }[];
  readonly graph: GraphMessage | null;
  readonly functions: readonly unknown[];
  readonly training_info: readonly unknown[];
}
interface GraphMessage {
  readonly node: readonly NodeMessage[];
  readonly initializer: readonly TensorMessage[];
  readonly sparse_initializer: readonly unknown[];
  readonly input: readonly ValueMessage[];
  readonly output: readonly ValueMessage[];
}
interface NodeMessage {
  readonly name: string;
  readonly op_type: string;
  readonly domain: string;
  readonly input: readonly string[];
  readonly output: readonly string[];
  readonly attribute: readonly AttributeMessage[];
}
interface AttributeMessage {
  readonly name: string;
  readonly type: number;
  readonly i: number;
  readonly f: number;
  readonly s: Uint8Array;
  readonly ints: readonly number[];
  readonly t: TensorMessage | null;
}
interface TensorMessage {
  readonly name: string;
  readonly data_type: number;
  readonly dims: readonly number[];
  readonly raw_data: Uint8Array;
  readonly float_data: readonly number[];
  readonly int32_data: readonly number[];
  readonly int64_data: readonly number[];
  readonly external_data: readonly { readonly key: string; readonly value: string }[];
  readonly data_location: number;
}
interface ValueMessage {
  readonly name: string;
  readonly type: {
    readonly tensor_type?: {
      readonly elem_type: number;
      readonly shape: {
        readonly dim: readonly { readonly dim_value?: number; readonly dim_param?: string }[];
      } | null;
    };
  } | null;
}

/**
 * Reads an ONNX file into memory. Its weights are views of the file's bytes, not copies.
 *
 * @throws {Error} with one line if the file is missing, not ONNX or truncated, or its external data is missing
 */
export function readOnnx(path: string): OnnxFile {
  const file = readModelFile(path);
  const wrong = (problem: string, cause?: unknown) => new Error(`${path}: ${problem}`, { cause });
  let model: ModelMessage;
  try {
    const type = onnxMessage("ModelProto");
    const options = { longs: Number, defaults: true, arrays: true };
    model = type.toObject(type.decode(file), options) as ModelMessage;
  } catch (cause) {
    throw wrong(incomplete(file), cause);
  }
  const { graph } = model;
  if (graph === null || model.ir_version === 0 || model.opset_import.length === 0) {
    throw wrong(incomplete(file));
  }
  const tensorOf = tensorReader(path, wrong);
  const constants = new Map<NodeMessage, OnnxTensor>();
  for (const node of graph.node) {
    const constant = constantOf(node, tensorOf, wrong);
    if (constant !== undefined) constants.set(node, constant);
  }
  const initializers = new Map(
    [...graph.initializer.map(tensorOf), ...constants.values()].map((it) => [it.name, it]),
  );
  return {
    path,
    irVersion: model.ir_version,
    producer: model.producer_name,
    opsets: new Map(model.opset_import.map(({ domain, version }) => [domain, version])),
    nodes: graph.node.filter((node) => !constants.has(node)).map((it) => nodeOf(it, tensorOf)),
    initializers,
    inputs: graph.input.map(valueInfoOf).filter(({ name }) => !initializers.has(name)),
    outputs: graph.output.map(valueInfoOf),
    hasMore: [model.functions, model.training_info, graph.sparse_initializer].some(
      ({ length }) => length > 0,
    ),
  };
}

function incomplete({ length }: Buffer): string {
  return `is not a complete ONNX file, got ${length} bytes: copy or download it again`;
}

function readModelFile(path: string): Buffer {
  const stats = statSync(path, { throwIfNoEntry: false });
  if (stats !== undefined && !stats.isFile()) throw new Error(`model file '${path}' is not a file`);
  try {
    return readFileSync(path);
  } catch (cause) {
    throw new Error(`model file '${path}' ${readFailure(cause)}`, { cause });
  }
}

/** Returns a copy of a tensor's float32 values. */
export function readFloats(tensor: OnnxTensor): Float32Array<ArrayBuffer> {
  if (tensor.dataType !== tensorTypes.float || tensor.bytes === undefined) {
    throw new Error(`${tensor.name}: expected float32 values`);
  }
  return new Float32Array(Uint8Array.from(tensor.bytes).buffer);
}

/** Returns the values of an integer tensor of at most 1,024 bytes; `undefined` for any other. */
export function readIntegers({ dataType, bytes }: OnnxTensor): readonly number[] | undefined {
  if (bytes === undefined || bytes.length > 1024) return undefined;
  const { buffer } = Uint8Array.from(bytes);
  if (dataType === tensorTypes.int64) return Array.from(new BigInt64Array(buffer), Number);
  return dataType === tensorTypes.int32 ? Array.from(new Int32Array(buffer)) : undefined;
}

type Wrong = (problem: string) => Error;
type TensorOf = (message: TensorMessage) => OnnxTensor;

function nodeOf(node: NodeMessage, tensorOf: TensorOf): OnnxFileNode {
  return {
    name: node.name,
    op: node.op_type,
    domain: node.domain === "ai.onnx" ? "" : node.domain,
    inputs: node.input,
    outputs: node.output,
    attributes: new Map(
      node.attribute.map((attribute) => [attribute.name, attributeOf(attribute, tensorOf)]),
    ),
  };
}

/** `type` is `AttributeProto.AttributeType`. */
function attributeOf(
  { type, f, i, s, t, ints }: AttributeMessage,
  tensorOf: TensorOf,
): OnnxFileAttribute {
  switch (type) {
    case 1:
      return { float: f };
    case 2:
      return { int: i };
    case 3:
      return { text: Buffer.from(s).toString() };
    case 4:
      return t === null ? {} : { tensor: tensorOf(t) };
    case 7:
      return { ints };
    default:
      return {};
  }
}

/** Returns the tensor of a `Constant` node, named after the node's output. */
function constantOf(node: NodeMessage, tensorOf: TensorOf, wrong: Wrong): OnnxTensor | undefined {
  const { op, domain, outputs, attributes } = nodeOf(node, tensorOf);
  const [name] = outputs;
  if (op !== "Constant" || domain !== "" || name === undefined) return undefined;
  const value = attributes.get("value")?.tensor;
  if (value !== undefined) return { ...value, name };
  const integer = attributes.get("value_int")?.int;
  const integers = attributes.get("value_ints")?.ints ?? (integer === undefined ? [] : [integer]);
  if (integers.length === 0) throw wrong(`constant '${name}' has an unsupported type`);
  const dims = integer === undefined ? [integers.length] : [];
  return { name, dataType: tensorTypes.int64, dims, bytes: bytesOfIntegers(integers) };
}

function bytesOfIntegers(integers: readonly number[]): Uint8Array {
  return new Uint8Array(BigInt64Array.from(integers, BigInt).buffer);
}

/** By `TensorProto.DataType`. */
const elementBytes: Readonly<Record<number, number | undefined>> = {
  [tensorTypes.float]: 4,
  [tensorTypes.uint8]: 1,
  [tensorTypes.int8]: 1,
  [tensorTypes.int32]: 4,
  [tensorTypes.int64]: 8,
  [tensorTypes.half]: 2,
};

/** Reads tensors of one model; each file of external data is read once. */
function tensorReader(path: string, wrong: Wrong): TensorOf {
  const files = new Map<string, Buffer>();
  const external = (tensor: TensorMessage) => {
    const entries = new Map(tensor.external_data.map(({ key, value }) => [key, value]));
    const location = entries.get("location") ?? "";
    requireBeside(path, location);
    const externalFile = resolve(dirname(path), location);
    let all = files.get(externalFile);
    try {
      all ??= readFileSync(externalFile);
    } catch {
      throw wrong(`its external data '${location}' does not exist`);
    }
    files.set(externalFile, all);
    const offset = Number(entries.get("offset") ?? 0);
    const length = Number(entries.get("length") ?? all.length - offset);
    if (!(offset >= 0 && length >= 0 && offset + length <= all.length)) {
      throw wrong(`its external data '${location}' is truncated`);
    }
    return { bytes: all.subarray(offset, offset + length), externalFile };
  };
  return (tensor) => {
    const { name, dims, data_type: dataType } = tensor;
    // `TensorProto.DataLocation` EXTERNAL
    const values = tensor.data_location === 1 ? external(tensor) : { bytes: inlineBytes(tensor) };
    const size = elementBytes[dataType];
    if (size === undefined) return { name, dims, dataType, ...values, bytes: undefined };
    const expected = dims.reduce((product, dim) => product * dim, size);
    if (values.bytes.length !== expected) {
      throw wrong(
        `tensor '${name}' [${dims.join(", ")}] has ${values.bytes.length} bytes, expected ${expected}`,
      );
    }
    return { name, dims, dataType, ...values };
  };
}

function inlineBytes(tensor: TensorMessage): Uint8Array {
  const { raw_data, float_data, int32_data, int64_data } = tensor;
  if (float_data.length > 0) return new Uint8Array(Float32Array.from(float_data).buffer);
  if (int64_data.length > 0) return bytesOfIntegers(int64_data);
  if (int32_data.length === 0) return raw_data;
  // smaller types are stored as 32-bit integers as well
  const all = new Uint8Array(Int32Array.from(int32_data).buffer);
  const size = elementBytes[tensor.data_type] ?? 4;
  return size === 4 ? all : all.filter((_, index) => index % 4 < size);
}

function valueInfoOf({ name, type }: ValueMessage): OnnxValue {
  const tensor = type?.tensor_type;
  const dims = (tensor?.shape?.dim ?? []).map(
    ({ dim_value, dim_param }) => dim_value ?? dim_param ?? "",
  );
  return { name, dataType: tensor?.elem_type ?? 0, dims };
}
