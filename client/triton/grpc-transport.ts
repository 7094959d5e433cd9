import type { Context } from "@opentelemetry/api";
import type { Tensor } from "../../contract/tensor.ts";
import { messageOf } from "../../contract/user-error.ts";
import { endedError, startDeadline } from "./deadline.ts";
import { status, statusName } from "./grpc-status.ts";
import type { GrpcTls } from "./http2-connection.ts";
import {
  checkInferResponse,
  checkResponse,
  modelConfigResponse,
  modelMetadataResponse,
  modelStatisticsResponse,
  serverMetadataResponse,
  withoutNulls,
} from "./responses.ts";
import { tracedCall } from "./traced-call.ts";
import {
  type CallOptions,
  type InferCallOptions,
  type ModelMetadata,
  type ModelStatistics,
  type ServerMetadata,
  type Transport,
  TritonError,
  type TritonErrorCode,
} from "./transport.ts";
import { CallError, type UnaryCallOptions, UnaryChannel } from "./unary-channel.ts";
import { type TensorParts, toParts, WireError } from "./wire.ts";
import {
  decodeGrpcResponse,
  encodeGrpcRequestParts,
  type InferenceMethods,
  methodOf,
} from "./wire-grpc.ts";

/** Encryption and authentication of the calls to a Triton server. */
export interface GrpcSecurity {
  /** @default - no encryption */
  readonly tls?: GrpcTls | undefined;
  /**
   * Metadata of every call, such as `authorization`. Names are lower-case, values printable ASCII.
   *
   * @default - none
   */
  readonly metadata?: Readonly<Record<string, string>> | undefined;
}

export interface GrpcTransportOptions extends GrpcSecurity {
  /** `host:port`, or `https://host:port` with a certificate that Node trusts (`NODE_EXTRA_CA_CERTS`). */
  readonly target: string;
  /**
   * Address of the host, `ip:port`.
   *
   * @default - the host is resolved with each new connection
   */
  readonly address?: string;
}

export interface GrpcInferOptions extends InferCallOptions {
  /**
   * Maximum size of the response in bytes.
   *
   * @default - none
   */
  readonly maxResponseBytes?: number;
  /**
   * Trace that the call continues.
   *
   * @default - the active one
   */
  readonly context?: Context | undefined;
}

/**
 * Opens a transport over gRPC, which connects with the first call.
 *
 * @throws {Error} if the target is invalid
 */
export function openGrpcTransport(options: GrpcTransportOptions): Transport {
  return new GrpcTransport(options);
}

/** @throws {Error} if `target` is not `host:port` */
export function checkTarget(target: string): void {
  if (/^[^\s/]+:\d{1,5}$/.test(target)) return;
  throw new Error(`target must be host:port, got '${target}'`);
}

/** Sends inferences and health checks over one connection, so that a broken connection fails both. */
export class GrpcTransport implements Transport {
  readonly target: string;
  readonly #channel: UnaryChannel;

  constructor(options: GrpcTransportOptions) {
    const { metadata = {} } = options;
    this.target = options.target.replace(/^https:\/\//, "");
    checkTarget(this.target);
    this.#channel = new UnaryChannel({ ...options, metadata });
  }

  /** @param inputs - Must not change before the call has ended. */
  async infer(
    model: string,
    inputs: readonly (Tensor | TensorParts)[],
    options: GrpcInferOptions,
  ): Promise<readonly Tensor[]> {
    const encode = () => {
      const tensors = inputs.map((input) => ("parts" in input ? input : toParts(input)));
      return encodeGrpcRequestParts(model, tensors, options);
    };
    const response = await tracedCall(
      {
        name: "inference.GRPCInferenceService/ModelInfer",
        attributes: {
          "rpc.system": "grpc",
          "server.address": this.target,
          "clipstack.model": model,
        },
        parent: options.context,
      },
      (metadata) => this.#send("ModelInfer", model, { ...options, metadata }, encode),
    );
    try {
      return checkInferResponse(
        model,
        { id: response.id, outputs: decodeGrpcResponse(response) },
        options,
      );
    } catch (error) {
      if (!(error instanceof WireError)) throw error;
      throw new TritonError("protocol", `${model}: ${error.message}`, { cause: error });
    }
  }

  async live(options: CallOptions): Promise<boolean> {
    return await this.#healthy(async () => {
      return (await this.#call("ServerLive", "server", {}, options)).live;
    });
  }

  async ready(model: string | undefined, options: CallOptions): Promise<boolean> {
    return await this.#healthy(async () => {
      const response =
        model === undefined
          ? await this.#call("ServerReady", "server", {}, options)
          : await this.#call("ModelReady", model, { name: model }, options);
      return response.ready;
    });
  }

  /**
   * Checks that `model` is ready.
   *
   * @throws {TritonError} with the reason if it is not
   */
  async requireReady(model: string, options: CallOptions): Promise<void> {
    let ready = false;
    try {
      ({ ready } = await this.#call("ModelReady", model, { name: model }, options));
    } catch (error) {
      if (!(error instanceof TritonError) || error.code !== "rejected") throw error;
    }
    if (!ready) throw new TritonError("unavailable", `${model} is not ready`);
  }

  async serverMetadata(options: CallOptions): Promise<ServerMetadata> {
    const response = await this.#call("ServerMetadata", "server metadata", {}, options);
    return checkResponse(serverMetadataResponse, "server metadata", response);
  }

  async modelMetadata(model: string, options: CallOptions): Promise<ModelMetadata> {
    const response = await this.#call("ModelMetadata", model, { name: model }, options);
    return checkResponse(modelMetadataResponse, model, response);
  }

  async modelConfig(
    model: string,
    options: CallOptions,
  ): Promise<Readonly<Record<string, unknown>>> {
    const response = await this.#call("ModelConfig", model, { name: model }, options);
    return withoutNulls(checkResponse(modelConfigResponse, model, response.config));
  }

  async statistics(model: string, options: CallOptions): Promise<ModelStatistics> {
    const response = await this.#call("ModelStatistics", model, { name: model }, options);
    return checkResponse(modelStatisticsResponse, model, response);
  }

  async close(): Promise<void> {
    this.#channel.close();
  }

  async #healthy(check: () => Promise<boolean>): Promise<boolean> {
    try {
      return await check();
    } catch (error) {
      if (error instanceof TritonError && error.code !== "cancelled") return false;
      throw error;
    }
  }

  #call<Name extends keyof InferenceMethods>(
    name: Name,
    subject: string,
    request: InferenceMethods[Name]["request"],
    options: CallOptions,
  ): Promise<InferenceMethods[Name]["response"]> {
    return this.#send(name, subject, options, () => [methodOf(name).requestSerialize(request)]);
  }

  /** @param encode - Returns the request in parts. */
  async #send<Name extends keyof InferenceMethods>(
    name: Name,
    subject: string,
    options: GrpcInferOptions & Pick<UnaryCallOptions, "metadata">,
    encode: () => readonly Uint8Array[],
  ): Promise<InferenceMethods[Name]["response"]> {
    const { path, responseDeserialize } = methodOf(name);
    const { timeoutMs, maxResponseBytes, metadata } = options;
    const deadline = startDeadline(options);
    const { signal } = deadline;
    try {
      if (deadline.ended !== undefined) throw new Error(deadline.ended);
      const call = { timeoutMs, signal, maxResponseBytes, metadata };
      return decoded(responseDeserialize, await this.#channel.call(path, encode(), call));
    } catch (error) {
      throw this.#error(error as Error, subject, options, deadline.ended);
    } finally {
      deadline.release();
    }
  }

  #error(
    error: Error,
    subject: string,
    { timeoutMs }: CallOptions,
    ended: "timeout" | "cancelled" | undefined,
  ): TritonError {
    if (ended !== undefined) return endedError(ended, subject, this.target, timeoutMs);
    if (!(error instanceof CallError)) {
      return new TritonError("unavailable", `${subject}: ${error.message}`, { cause: error });
    }
    if (error.code === status.DEADLINE_EXCEEDED) {
      return endedError("timeout", subject, this.target, timeoutMs);
    }
    return new TritonError(
      codeOfStatus(error.code, error.details),
      `${subject}: ${error.details || "no reason given"} (gRPC ${statusName(error.code)} from ${this.target})`,
      { cause: error },
    );
  }
}

/** @throws {CallError} `INTERNAL`, as grpc-js */
function decoded<T>(deserialize: (bytes: Buffer) => T, response: Buffer): T {
  try {
    return deserialize(response);
  } catch (cause) {
    const details = `the response cannot be decoded: ${messageOf(cause)}`;
    throw new CallError(status.INTERNAL, details, "response", { cause });
  }
}

function codeOfStatus(code: number, details: string): TritonErrorCode {
  switch (code) {
    case status.RESOURCE_EXHAUSTED:
      // a full queue, or a message above the size limit
      return /larger than max/i.test(details) ? "rejected" : "unavailable";
    case status.UNAVAILABLE:
    case status.ABORTED:
    case status.CANCELLED:
      return "unavailable";
    case status.DEADLINE_EXCEEDED:
      return "timeout";
    case status.DATA_LOSS:
      return "protocol";
    default:
      return "rejected";
  }
}
