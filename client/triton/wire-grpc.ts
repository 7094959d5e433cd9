import { fileURLToPath } from "node:url";
import {
  loadSync,
  type MethodDefinition,
  type Options,
  type ServiceDefinition,
} from "@grpc/proto-loader";
import { elementArrays, type Tensor } from "../../contract/tensor.ts";
import {
  fromWire,
  type InferRequest,
  isDataType,
  joinElements,
  type ParameterValue,
  rejectExtensions,
  rejectReserved,
  type TensorParts,
  toWire,
  WireError,
  type WireTensor,
} from "./wire.ts";

/** Messages of Triton's gRPC service, as loaded by proto-loader with {@link loadOptions}. */

export interface InferParameter {
  readonly bool_param?: boolean;
  readonly int64_param?: number;
  readonly string_param?: string;
  readonly double_param?: number;
  readonly uint64_param?: number;
}
type Parameters = Readonly<Record<string, InferParameter>>;

interface TensorMessage {
  readonly name: string;
  readonly datatype: string;
  readonly shape: readonly number[];
  readonly parameters?: Parameters;
  /** Elements in the message itself, in the list of their type. */
  readonly contents?: Readonly<Record<string, readonly unknown[]>> | null;
}

export interface ModelInferRequest {
  readonly model_name: string;
  readonly model_version?: string;
  readonly id?: string;
  readonly parameters?: Parameters;
  readonly inputs: readonly TensorMessage[];
  readonly outputs?: readonly { readonly name: string; readonly parameters?: Parameters }[];
  readonly raw_input_contents?: readonly Uint8Array[];
}

export interface ModelInferResponse {
  readonly model_name: string;
  readonly model_version: string;
  readonly id: string;
  readonly parameters?: Parameters;
  readonly outputs: readonly TensorMessage[];
  readonly raw_output_contents: readonly Uint8Array[];
}

interface DurationMessage {
  readonly count: number;
  readonly ns: number;
}
export interface ModelStatisticsMessage {
  readonly name: string;
  readonly version: string;
  readonly last_inference: number;
  readonly inference_count: number;
  readonly execution_count: number;
  readonly inference_stats: Readonly<Record<string, DurationMessage>>;
  readonly batch_stats: readonly {
    readonly batch_size: number;
    readonly compute_input: DurationMessage;
    readonly compute_infer: DurationMessage;
    readonly compute_output: DurationMessage;
  }[];
}

interface NameAndVersion {
  readonly name: string;
  readonly version?: string;
}

interface Unary<Request, Response> {
  readonly request: Request;
  readonly response: Response;
}

/** Methods that clipstack calls or implements. */
export interface InferenceMethods {
  ServerLive: Unary<object, { readonly live: boolean }>;
  ServerReady: Unary<object, { readonly ready: boolean }>;
  ModelReady: Unary<NameAndVersion, { readonly ready: boolean }>;
  ServerMetadata: Unary<
    object,
    { readonly name: string; readonly version: string; readonly extensions: readonly string[] }
  >;
  ModelMetadata: Unary<
    NameAndVersion,
    {
      readonly name: string;
      readonly versions: readonly string[];
      readonly platform: string;
      readonly inputs: readonly TensorMessage[];
      readonly outputs: readonly TensorMessage[];
    }
  >;
  ModelInfer: Unary<ModelInferRequest, ModelInferResponse>;
  ModelConfig: Unary<NameAndVersion, { readonly config: Readonly<Record<string, unknown>> }>;
  ModelStatistics: Unary<
    NameAndVersion,
    { readonly model_stats: readonly ModelStatisticsMessage[] }
  >;
  RepositoryIndex: Unary<
    { readonly repository_name?: string; readonly ready?: boolean },
    {
      readonly models: readonly {
        readonly name: string;
        readonly version: string;
        readonly state: string;
        readonly reason: string;
      }[];
    }
  >;
  RepositoryModelLoad: Unary<
    {
      readonly repository_name?: string;
      readonly model_name: string;
      readonly parameters?: Readonly<
        Record<string, { readonly string_param?: string; readonly bytes_param?: Uint8Array }>
      >;
    },
    object
  >;
  RepositoryModelUnload: Unary<
    {
      readonly repository_name?: string;
      readonly model_name: string;
      readonly parameters?: Parameters;
    },
    object
  >;
}

/** Keeps the field names of the .proto files. 64-bit integers are numbers, because all values here are far below 2⁵³. */
const loadOptions: Options = {
  keepCase: true,
  longs: Number,
  enums: String,
  defaults: true,
  oneofs: false,
};

const protoFolder = fileURLToPath(new URL("./proto/", import.meta.url));

function serviceOf(file: string, name: string): ServiceDefinition {
  const definition = loadSync(file, { ...loadOptions, includeDirs: [protoFolder] })[name];
  if (definition === undefined || "format" in definition) {
    throw new Error(`${file}: has no service ${name}`);
  }
  return definition;
}

/** `inference.GRPCInferenceService` */
export const inferenceService = serviceOf("grpc_service.proto", "inference.GRPCInferenceService");

/** `grpc.health.v1.Health` */
export const healthService = serviceOf("health.proto", "grpc.health.v1.Health");

export function methodOf<Name extends keyof InferenceMethods>(
  name: Name,
): MethodDefinition<InferenceMethods[Name]["request"], InferenceMethods[Name]["response"]> {
  const method = inferenceService[name];
  if (method === undefined) throw new Error(`grpc_service.proto: has no method ${name}`);
  return method;
}

/** Removes the message size limits of grpc-js: a batch of 32 images has 19 MB. */
export const channelOptions = {
  "grpc.max_receive_message_length": -1,
  "grpc.max_send_message_length": -1,
} as const;

// --- client ---

export function encodeGrpcRequest(
  model: string,
  inputs: readonly Tensor[],
  options: { readonly requestId?: string; readonly outputs?: readonly string[] },
): ModelInferRequest {
  const wires = inputs.map(toWire);
  return {
    model_name: model,
    id: options.requestId ?? "",
    inputs: wires.map(headOf),
    outputs: (options.outputs ?? []).map((name) => ({ name })),
    raw_input_contents: wires.map((wire) => asBuffer(wire.bytes)),
  };
}

/** Key of the field `raw_input_contents`: number 7, length-delimited. */
const rawContentsKey = (7 << 3) | 2;

/** Encodes a `ModelInferRequest` in parts, of which the tensors' are not copied. */
export function encodeGrpcRequestParts(
  model: string,
  inputs: readonly TensorParts[],
  options: { readonly requestId?: string; readonly outputs?: readonly string[] },
): readonly Uint8Array[] {
  const head = methodOf("ModelInfer").requestSerialize({
    model_name: model,
    id: options.requestId ?? "",
    inputs: inputs.map(headOf),
    outputs: (options.outputs ?? []).map((name) => ({ name })),
  });
  // protobuf permits fields in any order
  return [head, ...inputs.flatMap(({ parts }) => [contentsHead(parts), ...parts])];
}

function contentsHead(parts: readonly Uint8Array[]): Uint8Array {
  const bytes = [rawContentsKey];
  let length = parts.reduce((sum, part) => sum + part.byteLength, 0);
  for (; length >= 0x80; length = Math.floor(length / 0x80)) bytes.push((length % 0x80) | 0x80);
  return Uint8Array.from([...bytes, length]);
}

/** Returns the tensors of a response. @throws {WireError} if the response is invalid */
export function decodeGrpcResponse(message: ModelInferResponse): Tensor[] {
  const { outputs, raw_output_contents: raw } = message;
  if (raw.length !== outputs.length) {
    throw new WireError(`${outputs.length} outputs, but ${raw.length} raw_output_contents`);
  }
  return outputs.map((output, index) => fromWire(readTensor(output, raw[index]!)));
}

// --- server ---

/** @throws {WireError} with Triton's error message, if Triton rejects the same request */
export function decodeGrpcRequest(message: ModelInferRequest): InferRequest {
  const { model_name: model, raw_input_contents: raw = [] } = message;
  rejectReserved("grpc", parametersOf(message.parameters));
  const inputs = message.inputs.map((input, index) => {
    rejectExtensions(input.name, parametersOf(input.parameters));
    const typed = typedContents(input, model);
    if (typed !== undefined && raw.length > 0) {
      throw new WireError(
        `contents field must not be specified when using raw_input_contents for '${input.name}' for model '${model}'`,
      );
    }
    const bytes = typed ?? raw[index];
    if (bytes === undefined) {
      throw new WireError(
        `unable to find data for input tensor '${input.name}' for model '${model}' in request.`,
      );
    }
    return readTensor(input, bytes);
  });
  if (raw.length > inputs.length) {
    throw new WireError(
      `expected ${inputs.length} raw_input_contents for model '${model}', got ${raw.length}`,
    );
  }
  return {
    id: message.id ?? "",
    parameters: parametersOf(message.parameters),
    inputs,
    outputs: (message.outputs ?? []).map(({ name, parameters }) => {
      rejectExtensions(name, parametersOf(parameters));
      return { name, binary: true };
    }),
    binaryOutputs: true,
  };
}

/** Fields of `InferTensorContents` by the data types that they contain. */
const contentFields = {
  uint_contents: ["UINT8", "UINT16", "UINT32"],
  int_contents: ["INT32", "INT8", "INT16"],
  int64_contents: ["INT64"],
  fp32_contents: ["FP32"],
  bytes_contents: ["BYTES"],
  bool_contents: ["BOOL"],
  uint64_contents: ["UINT64"],
  fp64_contents: ["FP64"],
} as const;

/** Serialises the elements in the message itself; undefined if it has none. @throws {WireError} */
function typedContents(
  { name, datatype, contents }: TensorMessage,
  model: string,
): Uint8Array | undefined {
  const [field, elements] = Object.entries(contents ?? {}).find(([, all]) => all.length > 0) ?? [];
  if (field === undefined || elements === undefined) return undefined;
  const types: readonly string[] = contentFields[field as keyof typeof contentFields] ?? [];
  if (!types.includes(datatype)) {
    throw new WireError(
      `unexpected explicit tensor data for input tensor '${name}' for model '${model}' of type '${types[0] ?? field}', expected datatype '${datatype}'`,
    );
  }
  if (!isDataType(datatype)) throw new WireError(`invalid datatype '${datatype}' for '${name}'`);
  if (datatype === "BYTES") return joinElements(elements as readonly Uint8Array[]);
  const numbers = elements as readonly number[];
  const values =
    datatype === "INT64"
      ? BigInt64Array.from(numbers, BigInt)
      : elementArrays[datatype].from(numbers);
  return new Uint8Array(values.buffer);
}

export function encodeGrpcResponse(
  head: { readonly id: string; readonly modelName: string; readonly modelVersion: string },
  outputs: readonly Tensor[],
): ModelInferResponse {
  const wires = outputs.map(toWire);
  return {
    model_name: head.modelName,
    model_version: head.modelVersion,
    id: head.id,
    outputs: wires.map(headOf),
    raw_output_contents: wires.map((wire) => asBuffer(wire.bytes)),
  };
}

// --- both ---

function headOf({ name, dataType, shape }: Omit<WireTensor, "bytes">): TensorMessage {
  return { name, datatype: dataType, shape };
}

/** Returns a view, because protobufjs accepts only Buffers. */
function asBuffer(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

function readTensor(message: TensorMessage, bytes: Uint8Array): WireTensor {
  const { name, datatype: dataType, shape } = message;
  if (!isDataType(dataType)) throw new WireError(`invalid datatype '${dataType}' for '${name}'`);
  return { name, dataType, shape, bytes };
}

function parametersOf(parameters: Parameters | undefined): Record<string, ParameterValue> {
  const values: Record<string, ParameterValue> = {};
  for (const [name, choice] of Object.entries(parameters ?? {})) {
    const value =
      choice.string_param ??
      choice.bool_param ??
      choice.int64_param ??
      choice.uint64_param ??
      choice.double_param;
    if (value !== undefined) values[name] = value;
  }
  return values;
}
