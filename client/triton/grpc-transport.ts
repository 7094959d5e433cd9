import {
  type ChannelOptions,
  Client,
  credentials,
  Metadata,
  type ServiceError,
  status,
} from "@grpc/grpc-js";
import type { Tensor } from "../../contract/tensor.ts";
import { messageOf } from "../../contract/user-error.ts";
import { endedError, startDeadline } from "./deadline.ts";
import {
  checkInferResponse,
  checkResponse,
  modelConfigResponse,
  modelMetadataResponse,
  modelStatisticsResponse,
  serverMetadataResponse,
  withoutNulls,
} from "./responses.ts";
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
import { CallError, type GrpcTls, UnaryChannel } from "./unary-channel.ts";
import { type TensorParts, toParts, WireError } from "./wire.ts";
import {
  channelOptions,
  decodeGrpcResponse,
  encodeGrpcRequestParts,
  type InferenceMethods,
  type ModelInferResponse,
  methodOf,
} from "./wire-grpc.ts";

/** Encryption and authentication of the calls to a Triton. */
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
  /** `host:port` */
  readonly target: string;
  /**
   * Address of the host, `ip:port`.
   *
   * @default - the host is resolved with each new connection
   */
  readonly address?: string;
  /** @default - none besides {@link channelOptionsOf} */
  readonly channelOptions?: ChannelOptions;
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

/** Returns the host of `host:port`, without the brackets of an IPv6 address. */
export function hostOf(target: string): string {
  return target.slice(0, target.lastIndexOf(":")).replace(/^\[(.*)\]$/, "$1");
}

/** Returns options of a channel with its own connection. */
export function channelOptionsOf(): ChannelOptions {
  return {
    ...channelOptions,
    // by default, channels to the same target share a connection
    "grpc.use_local_subchannel_pool": 1,
    "grpc.enable_http_proxy": 0,
    // reconnects soon after a restart of the server
    "grpc.initial_reconnect_backoff_ms": 100,
    "grpc.max_reconnect_backoff_ms": 1000,
  };
}

function openClient(options: GrpcTransportOptions): Client {
  const { target, address = target, tls, channelOptions } = options;
  const { ca, client, serverName = hostOf(target) } = tls ?? {};
  return new Client(
    address,
    ca === undefined
      ? credentials.createInsecure()
      : credentials.createSsl(ca, client?.key, client?.cert),
    {
      ...channelOptionsOf(),
      "grpc.default_authority": target,
      ...(ca !== undefined && { "grpc.ssl_target_name_override": serverName }),
      ...channelOptions,
    },
  );
}

export class GrpcTransport implements Transport {
  readonly target: string;
  readonly #client: Client;
  readonly #inferences: UnaryChannel;
  readonly #metadata = new Metadata();

  constructor(options: GrpcTransportOptions) {
    const { target, address = target, tls, metadata = {} } = options;
    checkTarget(target);
    this.target = target;
    this.#client = openClient(options);
    const serverName = tls?.serverName ?? hostOf(target);
    this.#inferences = new UnaryChannel({
      target,
      address,
      metadata,
      tls: tls && { ...tls, serverName },
    });
    for (const [name, value] of Object.entries(metadata)) this.#metadata.set(name, value);
  }

  /** @param inputs - Must not change before the call has ended. */
  async infer(
    model: string,
    inputs: readonly (Tensor | TensorParts)[],
    options: InferCallOptions,
  ): Promise<readonly Tensor[]> {
    const response = await this.#infer(model, inputs, options);
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
    this.#client.close();
    this.#inferences.close();
  }

  async #infer(
    model: string,
    inputs: readonly (Tensor | TensorParts)[],
    options: InferCallOptions,
  ): Promise<ModelInferResponse> {
    const { path, responseDeserialize } = methodOf("ModelInfer");
    const deadline = startDeadline(options);
    try {
      if (deadline.ended !== undefined) throw new Error(deadline.ended);
      const tensors = inputs.map((input) => ("parts" in input ? input : toParts(input)));
      const message = encodeGrpcRequestParts(model, tensors, options);
      const { timeoutMs } = options;
      const { signal } = deadline;
      const response = await this.#inferences.call(path, message, { timeoutMs, signal });
      return decoded(responseDeserialize, response);
    } catch (error) {
      throw this.#error(error as Error, model, options, deadline.ended);
    } finally {
      deadline.release();
    }
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
    const method = methodOf(name);
    const deadline = startDeadline(options);
    return new Promise<InferenceMethods[Name]["response"]>((resolve, reject) => {
      const fail = (error: ServiceError | Error) =>
        reject(this.#error(error, subject, options, deadline.ended));
      if (deadline.ended !== undefined) {
        fail(new Error(deadline.ended));
        return;
      }
      try {
        const call = this.#client.makeUnaryRequest(
          method.path,
          method.requestSerialize,
          method.responseDeserialize,
          request,
          this.#metadata.clone(),
          // sent to the server, which stops working on an expired call
          { deadline: Date.now() + options.timeoutMs },
          (error, response) => {
            if (error !== null) fail(error);
            else resolve(response as InferenceMethods[Name]["response"]);
          },
        );
        deadline.signal.addEventListener("abort", () => call.cancel(), { once: true });
      } catch (error) {
        fail(error as Error);
      }
    }).finally(() => deadline.release());
  }

  #error(
    error: Pick<ServiceError, "code" | "details" | "message"> | Error,
    subject: string,
    { timeoutMs }: CallOptions,
    ended: "timeout" | "cancelled" | undefined,
  ): TritonError {
    if (ended !== undefined) return endedError(ended, subject, this.target, timeoutMs);
    if (!("details" in error)) {
      // grpc-js throws synchronously if the client is closed
      return new TritonError("unavailable", `${subject}: ${error.message}`, { cause: error });
    }
    if (error.code === status.DEADLINE_EXCEEDED) {
      return endedError("timeout", subject, this.target, timeoutMs);
    }
    return new TritonError(
      codeOfStatus(error.code, error.details),
      `${subject}: ${error.details || "no reason given"} (gRPC ${status[error.code]} from ${this.target})`,
      { cause: error },
    );
  }
}

/** @throws {CallError} `INTERNAL`, as grpc-js */
function decoded<T>(deserialize: (bytes: Buffer) => T, response: Buffer): T {
  try {
    return deserialize(response);
  } catch (cause) {
    throw new CallError(status.INTERNAL, `the response cannot be decoded: ${messageOf(cause)}`, {
      cause,
    });
  }
}

function codeOfStatus(code: status, details: string): TritonErrorCode {
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
