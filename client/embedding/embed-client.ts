import { setTimeout as sleep } from "node:timers/promises";
import { SpanStatusCode } from "@opentelemetry/api";
import { FormData, Pool } from "undici";
import {
  type EmbedErrorResponse,
  embedErrorResponse,
  embedPaths,
  embedResponse,
  fingerprintHeader,
  modelHeader,
  modelParameter,
} from "../../contract/embed-api.ts";
import type { Modality } from "../../contract/model-spec.ts";
import { abortedAfter } from "../triton/deadline.ts";
import { tracedCall } from "../triton/traced-call.ts";
import { ClientError } from "./client-error.ts";
import { type ClientModel, knownSpec, nameOf } from "./client-model.ts";
import type { RemoteEmbedder } from "./remote-embedder.ts";

export interface EmbedClientOptions {
  /** `http://host:port`, or `https://host:port` with a certificate that Node trusts (`NODE_EXTRA_CA_CERTS`). */
  readonly url: string;
  /**
   * Name of a served model, or its spec, against which the width of responses is checked.
   *
   * @default - the first model of the service with the modality
   */
  readonly model?: ClientModel | undefined;
  /**
   * Bearer token.
   *
   * @default - no authentication
   */
  readonly apiKey?: string;
  /**
   * Deadline of one call in milliseconds, including retries while the service is overloaded.
   *
   * @default 30000
   */
  readonly timeoutMs?: number;
  /**
   * Fingerprints that embeddings must have: those of `GET /v1/models`. Embeddings of another model, preprocessing or precision are
   * rejected.
   *
   * @default - any
   */
  readonly expect?: ExpectedFingerprints | undefined;
}

/** Required fingerprint of the embeddings of each modality. */
export type ExpectedFingerprints = Readonly<Partial<Record<Modality, string>>>;

interface HttpResponse {
  readonly status: number;
  readonly retryAfter: string | undefined;
  readonly model: string | undefined;
  /** Value of {@link fingerprintHeader}. */
  readonly fingerprints: string | undefined;
  readonly text: string;
}

const defaultTimeoutMs = 30_000;
/** Delay before a retry if an overloaded service sends no `Retry-After`. */
const defaultRetryMs = 200;
/** Shorter than the deadline, so that an unreachable host is reported sooner than a slow one. */
const connectTimeoutMs = 5_000;

/** Opens a client of the embed API without connecting. It sends encoded images and texts; the service decodes and embeds them. */
export function openEmbedClient(options: EmbedClientOptions): RemoteEmbedder {
  const { url, apiKey, timeoutMs = defaultTimeoutMs, expect = {} } = options;
  const pool = new Pool(url, {
    connections: 8,
    // the deadline of each call applies instead
    headersTimeout: 0,
    bodyTimeout: 0,
    connect: { timeout: Math.min(timeoutMs, connectTimeoutMs) },
  });

  const headers = {
    accept: "application/json",
    ...(apiKey === undefined ? {} : { authorization: `Bearer ${apiKey}` }),
  };
  const model = nameOf(options.model);
  const width = knownSpec(options.model)?.embedding.width;

  /** Retries once on a new connection, because the service may have closed an idle one. */
  async function sendWithRetry(
    createRequest: () => EmbedRequest,
    deadline: number,
  ): Promise<HttpResponse> {
    const send = async () => {
      const request = createRequest();
      const path = request.path.split("?", 1)[0]!;
      const attributes = {
        "http.request.method": "POST",
        "url.full": new URL(url).origin + path,
      };
      return await tracedCall(
        { name: `POST ${path}`, attributes, sendsUnsampled: true },
        async (traceHeaders, span) => {
          const response = await post(pool, { ...headers, ...traceHeaders }, request, deadline);
          span.setAttribute("http.response.status_code", response.status);
          if (response.status >= 400) span.setStatus({ code: SpanStatusCode.ERROR });
          return response;
        },
      );
    };
    try {
      return await send().catch((error: unknown) => {
        if (!isConnectionLost(error)) throw error;
        return send();
      });
    } catch (cause) {
      if ((cause as Error).name === "TimeoutError") {
        throw new ClientError("timeout", `no response from ${url} in ${timeoutMs} ms`, { cause });
      }
      throw new ClientError("unavailable", `cannot reach ${url}: ${reasonOf(cause)}`, { cause });
    }
  }

  async function embed(
    createRequest: () => EmbedRequest,
    count: number,
    modality: Modality,
  ): Promise<readonly Float32Array[]> {
    const deadline = performance.now() + timeoutMs;
    for (;;) {
      const response = await sendWithRetry(createRequest, deadline);
      if (response.status === 200) {
        checkFingerprint(response, modality, expect[modality], url);
        return vectorsOf(response.text, { count, width, url });
      }
      const error = errorOf(response, url);
      const retryMs = retryDelayMs(response.retryAfter);
      if (error.code !== "overloaded" || performance.now() + retryMs >= deadline) throw error;
      await sleep(retryMs);
    }
  }

  return {
    target: url,
    embed: (images) => embed(() => imageRequest(images, model), images.length, "image"),
    embedText: (texts) => embed(() => textRequest(texts, model), texts.length, "text"),
    close: () => pool.close(),
  };
}

interface EmbedRequest {
  readonly path: string;
  readonly contentType?: string;
  readonly body: FormData | string;
}

function imageRequest(images: readonly Uint8Array[], model: string | undefined): EmbedRequest {
  const form = new FormData();
  for (const [i, image] of images.entries()) {
    form.append("images", new Blob([image as Uint8Array<ArrayBuffer>]), `image-${i}`);
  }
  const query = model === undefined ? "" : `?${modelParameter}=${encodeURIComponent(model)}`;
  return { path: `${embedPaths.embed}${query}`, body: form };
}

function textRequest(texts: readonly string[], model: string | undefined): EmbedRequest {
  const body = JSON.stringify({ texts, [modelParameter]: model });
  return { path: embedPaths.embedText, contentType: "application/json", body };
}

/** @param deadline - Time of `performance.now()`. */
async function post(
  pool: Pool,
  headers: Readonly<Record<string, string>>,
  { path, contentType, body }: EmbedRequest,
  deadline: number,
): Promise<HttpResponse> {
  const response = await pool.request({
    method: "POST",
    path,
    headers: contentType === undefined ? headers : { ...headers, "content-type": contentType },
    body,
    signal: abortedAfter(deadline - performance.now()),
  });
  const header = (name: string) => [response.headers[name]].flat()[0];
  return {
    status: response.statusCode,
    retryAfter: header("retry-after"),
    model: header(modelHeader),
    fingerprints: header(fingerprintHeader),
    text: await response.body.text(),
  };
}

/** @throws {ClientError} `fingerprint` if the embeddings are not those that the caller requires */
function checkFingerprint(
  { model = "its model", fingerprints = "" }: HttpResponse,
  modality: Modality,
  expected: string | undefined,
  url: string,
): void {
  if (expected === undefined) return;
  const prefix = `${modality}=`;
  const stated = fingerprints.split(", ").find((entry) => entry.startsWith(prefix));
  const got = stated?.slice(prefix.length);
  if (got === expected) return;
  throw new ClientError(
    "fingerprint",
    `${url}: ${model} must embed ${modality}s with the fingerprint ${expected}, got ${got ?? "none"}`,
  );
}

interface ExpectedVectors {
  readonly count: number;
  /** Undefined if only the service has the model's spec. */
  readonly width: number | undefined;
  readonly url: string;
}

function vectorsOf(text: string, { count, width, url }: ExpectedVectors): readonly Float32Array[] {
  const result = embedResponse.safeParse(jsonOf(text));
  if (!result.success) {
    const issue = result.error.issues[0];
    const path = issue?.path.join(".") || "the body";
    throw new ClientError("protocol", `${url}: ${path}: ${issue?.message ?? "is invalid"}`);
  }
  const { embeddings } = result.data;
  if (embeddings.length !== count) {
    throw new ClientError(
      "protocol",
      `${url}: expected ${count} embeddings, got ${embeddings.length}`,
    );
  }
  const expectedWidth = width ?? embeddings[0]?.length;
  const index = embeddings.findIndex(({ length }) => length !== expectedWidth);
  if (index >= 0) {
    throw new ClientError(
      "protocol",
      `${url}: embeddings.${index}: expected ${expectedWidth} values, got ${embeddings[index]!.length}`,
    );
  }
  return embeddings.map((values) => Float32Array.from(values));
}

function errorOf({ status, text }: HttpResponse, url: string): ClientError {
  const parsed = embedErrorResponse.safeParse(jsonOf(text));
  if (!parsed.success) {
    const excerpt = text.replace(/\s+/g, " ").slice(0, 200);
    const code = status >= 500 ? "unavailable" : "rejected";
    return new ClientError(code, `${url} responded with ${status}: ${excerpt}`);
  }
  const { code, message, image, text: index } = parsed.data.error;
  return new ClientError(clientCodeOf(code, image), `${message} (${status} from ${url})`, {
    image,
    text: index,
  });
}

function clientCodeOf(code: EmbedErrorResponse["error"]["code"], image: number | undefined) {
  switch (code) {
    case "overloaded":
    case "timeout":
    case "unavailable":
      return code;
    case "rate_limited":
      return "overloaded";
    case "undecodable_image":
    case "unsupported_media_type":
    case "too_large":
      return image === undefined ? "rejected" : "image";
    default:
      return "rejected";
  }
}

/** `Retry-After` is in seconds. */
function retryDelayMs(header: string | undefined): number {
  const seconds = Number(header);
  return header !== undefined && Number.isFinite(seconds) && seconds >= 0
    ? seconds * 1000
    : defaultRetryMs;
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function codeOf(error: unknown): string | undefined {
  return (error as { readonly code?: string }).code;
}

function isConnectionLost(error: unknown): boolean {
  return ["UND_ERR_SOCKET", "ECONNRESET", "EPIPE"].includes(codeOf(error) ?? "");
}

function reasonOf(error: unknown): string {
  switch (codeOf(error)) {
    case "ECONNREFUSED":
      return "connection refused";
    case "ENOTFOUND":
      return "unknown host name";
    case "UND_ERR_CONNECT_TIMEOUT":
      return "connecting timed out";
    case "ECONNRESET":
    case "UND_ERR_SOCKET":
      return "the connection was closed";
    default:
      return (error as Error).message || String(codeOf(error));
  }
}
