import { type Dispatcher, Pool } from "undici";
import { z } from "zod";
import { oipPaths } from "../../contract/oip-paths.ts";
import type { Tensor } from "../../contract/tensor.ts";
import { endedError, startDeadline } from "./deadline.ts";
import {
  checkInferResponse,
  checkResponse,
  modelConfigResponse,
  modelMetadataResponse,
  modelStatisticsResponse,
  serverMetadataResponse,
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
import { WireError } from "./wire.ts";
import {
  decodeInferResponse,
  encodeInferRequest,
  type HttpBody,
  headerLengthField,
} from "./wire-http.ts";

export interface HttpTransportOptions {
  /** `http://host:port` or `https://host:port`. */
  readonly url: string;
  /**
   * Encoding of tensors. `binary` requires Triton's binary tensor extension; `json` works with every server and is ten times as large.
   *
   * @default "binary"
   */
  readonly encoding?: "binary" | "json";
  /**
   * Maximum number of open connections. Further calls are queued.
   *
   * @default 128
   */
  readonly connections?: number;
}

/**
 * Opens a transport over HTTP without connecting.
 *
 * @throws {Error} if the URL is invalid
 */
export function openHttpTransport(options: HttpTransportOptions): Transport {
  return new HttpTransport(options);
}

interface HttpRequest {
  readonly subject: string;
  readonly path: string;
  readonly body?: HttpBody;
  readonly headers?: Readonly<Record<string, string>>;
}
interface HttpResponse {
  readonly status: number;
  readonly headerLength: string | undefined;
  readonly body: Buffer;
}

class HttpTransport implements Transport {
  readonly target: string;
  readonly #encoding: "binary" | "json";
  readonly #pool: Pool;
  #closed = false;

  constructor({ url, encoding = "binary", connections = 128 }: HttpTransportOptions) {
    const parsed = URL.canParse(url) ? new URL(url) : undefined;
    if (!/^https?:$/.test(parsed?.protocol ?? "") || parsed?.pathname !== "/") {
      throw new Error(`url must be http://host:port, without a path, got '${url}'`);
    }
    const { origin } = parsed;
    this.target = origin;
    this.#encoding = encoding;
    // the deadline of each call applies instead
    this.#pool = new Pool(origin, { connections, headersTimeout: 0, bodyTimeout: 0 });
  }

  async infer(
    model: string,
    inputs: readonly Tensor[],
    options: InferCallOptions,
  ): Promise<readonly Tensor[]> {
    try {
      const { requestId, outputs } = options;
      const request = {
        subject: model,
        path: `${modelPath(model)}/infer`,
        body: encodeInferRequest(inputs, { encoding: this.#encoding, requestId, outputs }),
      };
      const attributes = {
        "http.request.method": "POST",
        "url.full": this.target + request.path,
        "clipstack.model": model,
      };
      const response = await tracedCall(
        { name: "POST /v2/models/{model}/infer", attributes },
        (headers) => this.#call({ ...request, headers }, options),
      );
      return checkInferResponse(
        model,
        decodeInferResponse(response.body, response.headerLength),
        options,
      );
    } catch (error) {
      if (!(error instanceof WireError)) throw error;
      throw new TritonError("protocol", `${model}: ${error.message}`, { cause: error });
    }
  }

  live(options: CallOptions): Promise<boolean> {
    return this.#healthy(oipPaths.live, options);
  }

  ready(model: string | undefined, options: CallOptions): Promise<boolean> {
    const path = model === undefined ? oipPaths.ready : `${modelPath(model)}/ready`;
    return this.#healthy(path, options);
  }

  async serverMetadata(options: CallOptions): Promise<ServerMetadata> {
    return await this.#json(serverMetadataResponse, "server metadata", "/v2", options);
  }

  async modelMetadata(model: string, options: CallOptions): Promise<ModelMetadata> {
    return await this.#json(modelMetadataResponse, model, modelPath(model), options);
  }

  async modelConfig(
    model: string,
    options: CallOptions,
  ): Promise<Readonly<Record<string, unknown>>> {
    return await this.#json(modelConfigResponse, model, `${modelPath(model)}/config`, options);
  }

  async statistics(model: string, options: CallOptions): Promise<ModelStatistics> {
    return await this.#json(modelStatisticsResponse, model, `${modelPath(model)}/stats`, options);
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    await this.#pool.close();
  }

  async #healthy(path: string, options: CallOptions): Promise<boolean> {
    try {
      const response = await this.#send({ subject: path, path }, options);
      return response.status === 200;
    } catch (error) {
      if (error instanceof TritonError && error.code !== "cancelled") return false;
      throw error;
    }
  }

  async #json<T>(
    schema: z.ZodType<T>,
    subject: string,
    path: string,
    options: CallOptions,
  ): Promise<T> {
    const { body } = await this.#call({ subject, path }, options);
    let value: unknown;
    try {
      value = JSON.parse(body.toString("utf8"));
    } catch (error) {
      throw new TritonError("protocol", `${subject}: the response is not JSON`, { cause: error });
    }
    return checkResponse(schema, subject, value);
  }

  async #call(request: HttpRequest, options: CallOptions): Promise<HttpResponse> {
    const response = await this.#send(request, options);
    if (response.status === 200) return response;
    throw new TritonError(
      codeOfStatus(response.status),
      `${request.subject}: ${errorText(response.body)} (HTTP ${response.status} from ${this.target})`,
    );
  }

  async #send(request: HttpRequest, options: CallOptions): Promise<HttpResponse> {
    const deadline = startDeadline(options);
    try {
      const { statusCode, headers, body } = await this.#pool.request({
        method: request.body === undefined ? "GET" : "POST",
        path: request.path,
        headers: { ...request.body?.headers, ...request.headers },
        body: requestBody(request.body),
        signal: deadline.signal,
      });
      const bytes = Buffer.from(await body.arrayBuffer());
      return { status: statusCode, headerLength: single(headers[headerLengthField]), body: bytes };
    } catch (error) {
      if (deadline.ended !== undefined) {
        throw endedError(deadline.ended, request.subject, this.target, options.timeoutMs);
      }
      throw new TritonError(
        "unavailable",
        `${request.subject}: cannot reach ${this.target}: ${reasonOf(error)}`,
        { cause: error },
      );
    } finally {
      deadline.release();
    }
  }
}

function modelPath(model: string): string {
  return `/v2/models/${encodeURIComponent(model)}`;
}

/** Returns the chunks, which undici sends without copying them. */
function requestBody(body: HttpBody | undefined): Dispatcher.DispatchOptions["body"] {
  if (body === undefined) return null;
  // undici accepts iterables, but its types do not declare it
  return body.chunks as unknown as Dispatcher.DispatchOptions["body"];
}

function single(value: string | string[] | undefined): string | undefined {
  return Array.isArray(value) ? value[0] : value;
}

function codeOfStatus(status: number): TritonErrorCode {
  if (status === 503 || status === 502 || status === 429) return "unavailable";
  if (status === 504) return "timeout";
  return status >= 400 ? "rejected" : "protocol";
}

const errorBody = z.object({ error: z.string() });

function errorText(body: Buffer): string {
  const text = body.toString("utf8", 0, 4096);
  try {
    return errorBody.parse(JSON.parse(text)).error;
  } catch {
    return text.replaceAll(/\s+/g, " ").trim().slice(0, 200) || "no reason given";
  }
}

function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const code = (error as NodeJS.ErrnoException).code;
  // one error per address; the aggregate has no message
  if (error instanceof AggregateError) return code ?? reasonOf(error.errors[0]);
  return error.message || code || error.name;
}
