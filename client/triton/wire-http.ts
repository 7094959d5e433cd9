import { z } from "zod";
import { bytesPerElement, type Tensor, type TensorSpec } from "../../contract/tensor.ts";
import { parseJson, parseRequestJson } from "./parse-json.ts";
import {
  bytesOfElements,
  fromWire,
  type InferRequest,
  isDataType,
  joinElements,
  jsonOfBytes,
  type ParameterValue,
  type RequestedOutput,
  rejectExtensions,
  rejectReserved,
  toWire,
  WireError,
  type WireTensor,
} from "./wire.ts";

/** Inference requests and responses over HTTP, as JSON and with Triton's binary tensor extension. */

/** Header with the length of the JSON that precedes the binary tensors. */
export const headerLengthField = "inference-header-content-length";

export interface HttpBody {
  readonly headers: Readonly<Record<string, string>>;
  /** Consecutive parts of the body. The tensors are views, not copies. */
  readonly chunks: readonly Uint8Array[];
  readonly byteLength: number;
}

const parameters = z.record(z.string(), z.union([z.string(), z.number(), z.boolean()]));
const shape = z.array(z.int().min(0, "must be a non-negative integer")).max(32);
const tensorHead = {
  name: z.string().min(1),
  datatype: z.string(),
  shape,
  parameters: parameters.optional(),
  data: z.unknown().optional(),
};
const requestJson = z.object({
  id: z.string().optional(),
  parameters: parameters.optional(),
  inputs: z.array(z.object(tensorHead)),
  outputs: z
    .array(z.object({ name: z.string().min(1), parameters: parameters.optional() }))
    .optional(),
});
const responseJson = z.object({
  id: z.string().optional(),
  model_name: z.string().optional(),
  outputs: z.array(z.object(tensorHead)),
});
type TensorJson = z.infer<typeof requestJson>["inputs"][number];

// --- client ---

export interface EncodeRequestOptions {
  readonly encoding: "binary" | "json";
  readonly requestId?: string;
  readonly outputs?: readonly string[];
}

/** @throws {WireError} if `encoding` is `json` and a value cannot be represented in JSON */
export function encodeInferRequest(
  inputs: readonly Tensor[],
  { encoding, requestId, outputs }: EncodeRequestOptions,
): HttpBody {
  const binary = encoding === "binary";
  return compose(
    {
      ...(requestId === undefined ? {} : { id: requestId }),
      ...(binary ? { parameters: { binary_data_output: true } } : {}),
      ...(outputs === undefined
        ? {}
        : { outputs: outputs.map((name) => ({ name, parameters: { binary_data: binary } })) }),
    },
    "inputs",
    inputs.map((tensor) => ({ tensor, binary })),
  );
}

/**
 * @param headerLength - {@link headerLengthField} of the response, if it has one.
 * @throws {WireError}
 */
export function decodeInferResponse(
  body: Buffer,
  headerLength: string | undefined,
): { id: string; outputs: Tensor[] } {
  const length = jsonLength(body, headerLength);
  const json = checkJson(responseJson, parseJson(body.subarray(0, length)));
  const outputs = readTensors(json.outputs, body.subarray(length), "output", "");
  return { id: json.id ?? "", outputs: outputs.map(fromWire) };
}

// --- server ---

/**
 * @param headerLength - {@link headerLengthField} of the request, if it has one.
 * @param model - For messages.
 * @throws {WireError} with Triton's error message, if Triton rejects the same request
 */
export function decodeInferRequest(
  body: Buffer,
  headerLength: string | undefined,
  model: string,
): InferRequest {
  const length = jsonLength(body, headerLength);
  return requestOf(parseRequestJson(body.subarray(0, length)), body.subarray(length), model);
}

/**
 * Returns the length in bytes of the JSON at the start of a request's body.
 *
 * @throws {WireError} if the header is not a length within the body.
 */
export function jsonLength(body: Buffer, headerLength: string | undefined): number {
  return parseHeaderLength(headerLength, body.byteLength) ?? body.byteLength;
}

function requestOf(value: unknown, binary: Buffer, model: string): InferRequest {
  const json = checkJson(requestJson, value);
  rejectReserved("http", json.parameters ?? {});
  const binaryOutputs = flag(json.parameters, "binary_data_output") ?? false;
  return {
    id: json.id ?? "",
    parameters: json.parameters ?? {},
    inputs: readTensors(json.inputs, binary, "input", ` for model '${model}'`),
    outputs: (json.outputs ?? []).map((output): RequestedOutput => {
      rejectExtensions(output.name, output.parameters);
      return {
        name: output.name,
        binary: flag(output.parameters, "binary_data") ?? binaryOutputs,
      };
    }),
    binaryOutputs,
  };
}

/**
 * Reads a raw binary request, whose body is the content of the only input of the model.
 *
 * @param inputs - Inputs of the model; a dynamic dimension is -1.
 * @throws {WireError}
 */
export function decodeRawRequest(
  body: Buffer,
  inputs: readonly TensorSpec[],
  isBatching: boolean,
  model: string,
): InferRequest {
  const [input] = inputs;
  if (input === undefined || inputs.length > 1) {
    throw new WireError(
      `Raw request must only have 1 input to be deduced but got ${inputs.length} inputs in '${model}' model configuration`,
    );
  }
  const { name, dataType } = input;
  const dims = isBatching ? [1, ...input.dims.slice(1)] : input.dims;
  const size = bytesPerElement[dataType];
  // BYTES: one element per tensor
  const fixed = dims.reduce((product, dim) => (dim < 0 ? product : product * dim), size ?? 1);
  const shape = dims.map((dim) => (dim >= 0 ? dim : size === undefined ? 1 : body.length / fixed));
  if (size !== undefined && dims.filter((dim) => dim < 0).length > 1) {
    throw new WireError(
      `The shape of the raw input '${name}' can not be deduced because there are more than one variable-sized dimension`,
    );
  }
  const bytes = size === undefined ? joinElements([body]) : body;
  const tensor = { name, dataType, shape, bytes };
  return { id: "", parameters: {}, inputs: [tensor], outputs: [], binaryOutputs: true };
}

/** @throws {WireError} if a value of an output requested as JSON cannot be represented in JSON */
export function encodeInferResponse(
  head: { readonly id: string; readonly modelName: string; readonly modelVersion: string },
  outputs: readonly { readonly tensor: Tensor; readonly binary: boolean }[],
): HttpBody {
  return compose(
    {
      ...(head.id === "" ? {} : { id: head.id }),
      model_name: head.modelName,
      model_version: head.modelVersion,
    },
    "outputs",
    outputs,
  );
}

// --- both ---

/** Multiple of every element size, so that tensors after the JSON are aligned. */
const alignment = 8;

function compose(
  head: Readonly<Record<string, unknown>>,
  member: "inputs" | "outputs",
  tensors: readonly { readonly tensor: Tensor; readonly binary: boolean }[],
): HttpBody {
  const pieces: Uint8Array[] = [];
  const heads = tensors.map(({ tensor, binary }) => {
    const wire = toWire(tensor);
    const json = { name: wire.name, datatype: wire.dataType, shape: wire.shape };
    if (!binary) return `${JSON.stringify(json).slice(0, -1)},"data":${jsonOfBytes(wire)}}`;
    pieces.push(wire.bytes);
    return JSON.stringify({ ...json, parameters: { binary_data_size: wire.bytes.byteLength } });
  });
  const start = JSON.stringify(head).slice(0, -1);
  const text = `${start}${start === "{" ? "" : ","}"${member}":[${heads.join(",")}]}`;
  const isBinary = pieces.length > 0;
  const json = isBinary ? padded(Buffer.from(text)) : Buffer.from(text);
  const chunks = [json, ...pieces];
  const byteLength = chunks.reduce((sum, chunk) => sum + chunk.byteLength, 0);
  return {
    headers: isBinary
      ? {
          "content-type": "application/octet-stream",
          [headerLengthField]: String(json.byteLength),
          "content-length": String(byteLength),
        }
      : { "content-type": "application/json", "content-length": String(byteLength) },
    chunks,
    byteLength,
  };
}

function padded(json: Buffer): Buffer {
  const rest = json.byteLength % alignment;
  return rest === 0 ? json : Buffer.concat([json, Buffer.alloc(alignment - rest, " ")]);
}

function parseHeaderLength(value: string | undefined, bodyLength: number): number | undefined {
  if (value === undefined) return undefined;
  if (!/^-?\d+$/.test(value)) {
    throw new WireError(`Unable to parse Inference-Header-Content-Length, got: ${value}`);
  }
  const length = Number(value);
  if (length < 0 || length > bodyLength) {
    throw new WireError(
      `inference header size should be in range (0, ${bodyLength}), got: ${value}`,
    );
  }
  return length;
}

function checkJson<T>(schema: z.ZodType<T>, value: unknown): T {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const [issue] = result.error.issues;
  const path = (issue?.path ?? [])
    .map((key) => (typeof key === "number" ? `[${key}]` : `.${String(key)}`))
    .join("")
    .replace(/^\./, "");
  throw new WireError(`Unable to parse '${path}': ${issue?.message ?? "not valid"}`);
}

/** @param model - ` for model '…'` or empty, for messages. */
function readTensors(
  tensors: readonly TensorJson[],
  binary: Buffer,
  kind: "input" | "output",
  model: string,
): WireTensor[] {
  let offset = 0;
  const result = tensors.map((tensor): WireTensor => {
    const { name, datatype: dataType } = tensor;
    if (!isDataType(dataType)) throw new WireError(`invalid datatype '${dataType}' for '${name}'`);
    rejectExtensions(name, tensor.parameters);
    const size = tensor.parameters?.binary_data_size;
    checkOneSource(kind, tensor.data !== undefined, size !== undefined);
    const head = { name, dataType, shape: tensor.shape };
    if (size === undefined) {
      return { ...head, bytes: bytesOfElements(name, dataType, tensor.shape, tensor.data) };
    }
    if (typeof size !== "number" || !Number.isInteger(size) || size < 0) {
      throw new WireError(`Unable to parse 'binary_data_size' of '${name}', got: ${String(size)}`);
    }
    const end = offset + size;
    if (end > binary.byteLength) {
      throw new WireError(
        `unexpected size for ${kind} '${name}', expecting ${end - binary.byteLength} additional bytes${model}`,
      );
    }
    const bytes = binary.subarray(offset, end);
    offset = end;
    return { ...head, bytes };
  });
  if (offset !== binary.byteLength)
    throw new WireError(`unexpected additional ${kind} data${model}`);
  return result;
}

function checkOneSource(kind: "input" | "output", hasData: boolean, hasSize: boolean): void {
  if (hasData !== hasSize) return;
  const subject = kind === "input" ? "Input" : "Output";
  throw new WireError(
    `${subject} must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', 'shared_memory_region' in 'parameters'. But ${hasData ? "set 'data' 'binary_data_size'" : "no field is set"}`,
  );
}

function flag(
  parameters: Readonly<Record<string, ParameterValue>> | undefined,
  name: string,
): boolean | undefined {
  const value = parameters?.[name];
  if (value === undefined || typeof value === "boolean") return value;
  throw new WireError(`Unable to parse '${name}': must be true or false, got ${value}`);
}
