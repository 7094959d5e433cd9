import { setTimeout as sleep } from "node:timers/promises";
import { FormData, Pool } from "undici";
import {
  type EmbedErrorResponse,
  embedErrorResponse,
  embedPaths,
  embedResponse,
} from "../contract/embed-api.ts";
import { ClientError } from "./client-error.ts";
import type { RemoteEmbedder } from "./remote-embedder.ts";

export interface EmbedClientOptions {
  /** `http://host:port`, or `https://host:port` with a certificate that Node trusts (`NODE_EXTRA_CA_CERTS`). */
  readonly url: string;
  /**
   * Bearer token.
   *
   * @default - no authentication
   */
  readonly apiKey?: string;
  /**
   * Deadline in milliseconds of one call, retries of an overloaded service included.
   *
   * @default 30000
   */
  readonly timeoutMs?: number;
}

interface HttpResponse {
  readonly status: number;
  readonly retryAfter: string | undefined;
  readonly text: string;
}

const defaultTimeoutMs = 30_000;
/** Delay before a retry if an overloaded service sends no `Retry-After`. */
const defaultRetryMs = 200;
/** Shorter than the deadline, so that an unreachable host is reported sooner than a slow one. */
const connectTimeoutMs = 5_000;

/** Opens a client of the embed API without connecting. It sends encoded images; the service decodes and embeds them. */
export function openEmbedClient(options: EmbedClientOptions): RemoteEmbedder {
  const { url, apiKey, timeoutMs = defaultTimeoutMs } = options;
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
  const send = (images: readonly Uint8Array[], deadline: number) =>
    post(pool, headers, images, deadline);

  /** Retries once on a new connection, because the service may have closed an idle one. */
  async function sendWithRetry(
    images: readonly Uint8Array[],
    deadline: number,
  ): Promise<HttpResponse> {
    try {
      return await send(images, deadline).catch((error: unknown) => {
        if (!isConnectionLost(error)) throw error;
        return send(images, deadline);
      });
    } catch (cause) {
      if ((cause as Error).name === "TimeoutError") {
        throw new ClientError("timeout", `no response from ${url} in ${timeoutMs} ms`, { cause });
      }
      throw new ClientError("unavailable", `cannot reach ${url}: ${reasonOf(cause)}`, { cause });
    }
  }

  return {
    target: url,
    async embed(images) {
      const deadline = performance.now() + timeoutMs;
      for (;;) {
        const response = await sendWithRetry(images, deadline);
        if (response.status === 200) return vectorsOf(response.text, images.length, url);
        const error = errorOf(response, url);
        const retryMs = retryDelayMs(response.retryAfter);
        if (error.code !== "overloaded" || performance.now() + retryMs >= deadline) throw error;
        await sleep(retryMs);
      }
    },
    close: () => pool.close(),
  };
}

/** @param deadline - Time of `performance.now()`. */
async function post(
  pool: Pool,
  headers: Readonly<Record<string, string>>,
  images: readonly Uint8Array[],
  deadline: number,
): Promise<HttpResponse> {
  const form = new FormData();
  for (const [i, image] of images.entries()) {
    form.append("images", new Blob([image as Uint8Array<ArrayBuffer>]), `image-${i}`);
  }
  const response = await pool.request({
    method: "POST",
    path: embedPaths.embed,
    headers,
    body: form,
    signal: AbortSignal.timeout(Math.max(1, Math.ceil(deadline - performance.now()))),
  });
  const retryAfter = response.headers["retry-after"];
  return {
    status: response.statusCode,
    retryAfter: Array.isArray(retryAfter) ? retryAfter[0] : retryAfter,
    text: await response.body.text(),
  };
}

function vectorsOf(text: string, count: number, url: string): readonly Float32Array[] {
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
  return embeddings.map((values) => Float32Array.from(values));
}

function errorOf({ status, text }: HttpResponse, url: string): ClientError {
  const parsed = embedErrorResponse.safeParse(jsonOf(text));
  if (!parsed.success) {
    const excerpt = text.replace(/\s+/g, " ").slice(0, 200);
    const code = status >= 500 ? "unavailable" : "rejected";
    return new ClientError(code, `${url} responded with ${status}: ${excerpt}`);
  }
  const { code, message, image } = parsed.data.error;
  return new ClientError(clientCodeOf(code, image), `${message} (${status} from ${url})`, {
    image,
  });
}

function clientCodeOf(code: EmbedErrorResponse["error"]["code"], image: number | undefined) {
  switch (code) {
    case "overloaded":
    case "timeout":
    case "unavailable":
      return code;
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
