import {
  type ChannelOptions,
  Client,
  credentials,
  Metadata,
  type ServiceError,
  status,
} from "@grpc/grpc-js";
import type { Tensor } from "../../contract/tensor.ts";
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
import { WireError } from "./wire.ts";
import {
  channelOptions,
  decodeGrpcResponse,
  encodeGrpcRequest,
  type InferenceMethods,
  methodOf,
} from "./wire-grpc.ts";

/** Encryption and authentication of the calls to a Triton. */
export interface GrpcSecurity {
  /** @default - no encryption */
  readonly tls?: GrpcTls | undefined;
  /** Sent with every call, such as `authorization`: lower-case names, values of printable ASCII characters. */
  readonly metadata?: Readonly<Record<string, string>> | undefined;
}

/** PEM contents. */
export interface GrpcTls {
  /** Certificates of the authorities that may have signed the server's certificate. */
  readonly ca: Buffer;
  /** Certificate chain and key of this client. */
  readonly client?: { readonly cert: Buffer; readonly key: Buffer } | undefined;
  /**
   * Name that the server's certificate must have.
   *
   * @default - the host of the target
   */
  readonly serverName?: string | undefined;
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

/** Open Inference Protocol over gRPC. It connects with the first call. */
export function openGrpcTransport(options: GrpcTransportOptions): Transport {
  return new GrpcTransport(options);
}

/** @throws {Error} one line */
export function checkTarget(target: string): void {
  if (/^[^\s/]+:\d{1,5}$/.test(target)) return;
  throw new Error(`target must be host:port, got '${target}'`);
}

/** Host of `host:port`, without the brackets of an IPv6 address. */
export function hostOf(target: string): string {
  return target.slice(0, target.lastIndexOf(":")).replace(/^\[(.*)\]$/, "$1");
}

/** Options of a channel of its own. */
export function channelOptionsOf(): ChannelOptions {
  return {
    ...channelOptions,
    // without it, channels to one target share one connection
    "grpc.use_local_subchannel_pool": 1,
    "grpc.enable_http_proxy": 0,
    // a server that starts or restarts is found again soon
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

/** Client of one Triton. */
export class GrpcTransport implements Transport {
  readonly target: string;
  readonly #client: Client;
  readonly #metadata = new Metadata();

  constructor(options: GrpcTransportOptions) {
    const { target, metadata = {} } = options;
    checkTarget(target);
    this.target = target;
    this.#client = openClient(options);
    for (const [name, value] of Object.entries(metadata)) this.#metadata.set(name, value);
  }

  async infer(
    model: string,
    inputs: readonly Tensor[],
    options: InferCallOptions,
  ): Promise<readonly Tensor[]> {
    const request = encodeGrpcRequest(model, inputs, options);
    const answer = await this.#call("ModelInfer", model, request, options);
    try {
      return checkInferResponse(
        model,
        { id: answer.id, outputs: decodeGrpcResponse(answer) },
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
      const answer =
        model === undefined
          ? await this.#call("ServerReady", "server", {}, options)
          : await this.#call("ModelReady", model, { name: model }, options);
      return answer.ready;
    });
  }

  /**
   * As {@link ready}, with the reason.
   *
   * @throws {TritonError}
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
    const answer = await this.#call("ServerMetadata", "server metadata", {}, options);
    return checkResponse(serverMetadataResponse, "server metadata", answer);
  }

  async modelMetadata(model: string, options: CallOptions): Promise<ModelMetadata> {
    const answer = await this.#call("ModelMetadata", model, { name: model }, options);
    return checkResponse(modelMetadataResponse, model, answer);
  }

  async modelConfig(
    model: string,
    options: CallOptions,
  ): Promise<Readonly<Record<string, unknown>>> {
    const answer = await this.#call("ModelConfig", model, { name: model }, options);
    return withoutNulls(checkResponse(modelConfigResponse, model, answer.config));
  }

  async statistics(model: string, options: CallOptions): Promise<ModelStatistics> {
    const answer = await this.#call("ModelStatistics", model, { name: model }, options);
    return checkResponse(modelStatisticsResponse, model, answer);
  }

  async close(): Promise<void> {
    this.#client.close();
  }

  async #healthy(ask: () => Promise<boolean>): Promise<boolean> {
    try {
      return await ask();
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
          // the server learns of the deadline, and does not work for nobody
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
    error: ServiceError | Error,
    subject: string,
    { timeoutMs }: CallOptions,
    ended: "timeout" | "cancelled" | undefined,
  ): TritonError {
    if (ended !== undefined) return endedError(ended, subject, this.target, timeoutMs);
    if (!("details" in error)) {
      // grpc-js throws at once when the client is closed
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

function codeOfStatus(code: status, details: string): TritonErrorCode {
  switch (code) {
    case status.RESOURCE_EXHAUSTED:
      // too many that wait, or a message that will never be small enough
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
