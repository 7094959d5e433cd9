import { setMaxListeners } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import multipart from "@fastify/multipart";
import Fastify, {
  type FastifyInstance,
  type FastifyReply,
  type FastifyRequest,
  LogController,
} from "fastify";
import {
  type EmbedResponse,
  embeddingShapeHeader,
  embedPaths,
  imageContentTypes,
} from "../contract/embed-api.ts";
import { embeddingDims } from "../contract/model-signature.ts";
import type { ServerEnv } from "../contract/server-env.ts";
import { createPreprocessor, type PreprocessorOptions } from "../engine/preprocess.ts";
import type { Embedder } from "./embedder.ts";
import { EmbedError, toEmbedError } from "./errors.ts";
import type { EmbedMetrics } from "./metrics.ts";
import { openApiDocument } from "./openapi.ts";
import { page, pageSecurityPolicy } from "./page.ts";
import { imagesOfBase64, imagesOfBody } from "./request-images.ts";
import { requestTimeoutMs } from "./request-timeout.ts";
import { quietMs, trackRequests } from "./stopping.ts";

export interface AppOptions {
  /** What computes; `undefined` while it is loading. */
  readonly embedder: () => Embedder | undefined;
  /** Architecture and weights, part of every answer. */
  readonly model: () => string;
  readonly metrics: EmbedMetrics;
  readonly limits: Limits;
  /** @default exact, one thread a core */
  readonly preprocessing?: Pick<PreprocessorOptions, "mode" | "threads">;
  /** @default "silent" */
  readonly logLevel?: ServerEnv["LOG_LEVEL"];
}

export interface Limits {
  /** Images that may wait, to be decoded or for the model; beyond it 429. */
  readonly maxQueueSize: number;
  readonly maxBodyBytes: number;
  /** Of one decoded image. */
  readonly maxImagePixels: number;
}

/** When to come back after 429 and 503, in seconds. */
const retryAfterSeconds = 1;

/**
 * Build the embed server. It does not listen: `main.ts` does, and tests call `inject()`.
 *
 * `close()` drains: no new requests are taken, those that were accepted are answered, then the embedder is closed.
 */
export function buildApp(options: AppOptions): FastifyInstance {
  const { metrics, limits } = options;
  const app = Fastify({
    logger: { level: options.logLevel ?? "silent" },
    // a line for each request costs more than it tells; failures are logged below, metrics count the rest
    logController: new LogController({ disableRequestLogging: true }),
    bodyLimit: limits.maxBodyBytes,
    requestTimeout: requestTimeoutMs,
    // the answer while draining is ours, see below
    return503OnClosing: false,
    forceCloseConnections: "idle",
    frameworkErrors: (error, _request, reply) => sendError(reply, toEmbedError(error)),
  });
  const preprocessor = createPreprocessor({
    ...options.preprocessing,
    maxPixels: limits.maxImagePixels,
  });
  const state = { draining: false, decoding: 0 };

  app.register(multipart);
  app.addContentTypeParser([...imageContentTypes], { parseAs: "buffer" }, (_request, body, done) =>
    done(null, body),
  );
  app.removeContentTypeParser("text/plain");

  /** Requests that were let in and whose images have not arrived yet: each counts as one image. */
  const receiving = new Set<FastifyRequest>();
  const accepted = trackRequests(app, (request, reply, status) => {
    receiving.delete(request);
    metrics.request(request.routeOptions.url ?? "none", status, reply.elapsedTime / 1000);
  });
  app.addHook("onSend", async (_request, reply) => {
    if (state.draining) reply.header("connection", "close");
  });
  app.addHook("preClose", async () => {
    state.draining = true;
    await sleep(quietMs);
    await accepted.arrived();
    // a connection on which nothing was asked, or only half a request, must not hold the stop up
    void accepted.answered().then(() => app.server.closeAllConnections());
  });
  app.addHook("onClose", async () => {
    await accepted.answered();
    await preprocessor.close();
    await options.embedder()?.close();
  });

  app.setErrorHandler((cause, request, reply) => {
    const error = toEmbedError(cause);
    const gone = reply.raw.destroyed;
    if (error.status >= 500 && error.code !== "unavailable" && !gone) {
      request.log.error({ err: cause, route: request.routeOptions.url }, error.message);
    } else {
      request.log.debug({ code: error.code, image: error.image }, error.message);
    }
    sendError(reply, error);
  });
  app.setNotFoundHandler((request, reply) => {
    const path = request.url.split("?", 1)[0]!;
    const allowed = (["GET", "POST"] as const).filter((method) =>
      app.hasRoute({ method, url: path }),
    );
    if (allowed.length === 0) {
      sendError(reply, new EmbedError("not_found", `there is no ${path}`));
      return;
    }
    reply.header("allow", allowed.join(", "));
    sendError(
      reply,
      new EmbedError(
        "method_not_allowed",
        `${path} takes ${allowed.join(", ")}, got ${request.method}`,
      ),
    );
  });

  // Liveness says "restart me", so it must not depend on the model.
  for (const path of [embedPaths.healthz, embedPaths.health]) {
    app.get(path, async () => ({ status: "ok" }));
  }
  app.get(embedPaths.readyz, async (_request, reply) => {
    const embedder = options.embedder();
    const ready = !state.draining && ((await embedder?.ready()) ?? false);
    const reason = ready || state.draining ? undefined : embedder?.trouble;
    return reply.code(ready ? 200 : 503).send({ ready, reason });
  });
  app.get(embedPaths.metrics, async (_request, reply) =>
    reply.type(metrics.contentType).send(await metrics.text()),
  );
  const openApi = openApiDocument();
  app.get(embedPaths.openapi, async () => openApi);
  app.get(embedPaths.page, async (_request, reply) =>
    reply.type("text/html").header("content-security-policy", pageSecurityPolicy).send(page),
  );

  /** Refuse before the body is read: a request that cannot be taken must not cost memory. */
  const admit = async (request: FastifyRequest) => {
    if (state.draining) throw new EmbedError("unavailable", "the server is stopping");
    const embedder = options.embedder();
    if (embedder === undefined) throw new EmbedError("unavailable", "the model is loading");
    const waiting = receiving.size + state.decoding + embedder.waitingImages;
    if (waiting >= limits.maxQueueSize) throw overloaded();
    receiving.add(request);
  };
  const overloaded = () =>
    new EmbedError("overloaded", `${limits.maxQueueSize} images wait already; try again later`);

  app.post(embedPaths.embed, { onRequest: admit }, async (request, reply) =>
    answer(request, reply, await imagesOfBody(request, limits.maxBodyBytes)),
  );
  app.post(embedPaths.embedBase64, { onRequest: admit }, async (request, reply) => {
    if (request.headers["content-type"] === undefined) {
      throw new EmbedError("bad_request", "the body is empty: send JSON");
    }
    return answer(request, reply, imagesOfBase64(request.body));
  });

  async function answer(
    request: FastifyRequest,
    reply: FastifyReply,
    images: readonly Uint8Array[],
  ): Promise<FastifyReply> {
    receiving.delete(request);
    metrics.pending(images.length);
    const vectors = await embed(images, abortedWith(reply)).finally(() =>
      metrics.pending(-images.length),
    );
    metrics.embedded(vectors.length);
    if (wantsBytes(request)) {
      return reply
        .type("application/octet-stream")
        .header(embeddingShapeHeader, `${vectors.length},${embeddingDims}`)
        .send(littleEndian(vectors));
    }
    const body: EmbedResponse = { embeddings: vectors.map(rounded), model: options.model() };
    return reply.type("application/json").send(JSON.stringify(body));
  }

  async function embed(
    images: readonly Uint8Array[],
    signal: AbortSignal,
  ): Promise<readonly Float32Array[]> {
    const embedder = options.embedder();
    if (embedder === undefined) throw new EmbedError("unavailable", "the model is loading");
    const waiting = state.decoding + embedder.waitingImages;
    // a request that finds nobody waiting is taken, however large: otherwise it could never be
    if (waiting > 0 && waiting + images.length > limits.maxQueueSize) throw overloaded();

    const announced = embedder.announce();
    let vectors: Promise<readonly Float32Array[]>;
    try {
      const pixels = await decodeAll(images, signal);
      vectors = embedder.embed(pixels, { signal });
    } finally {
      announced();
    }
    return vectors;
  }

  /** @throws {EmbedError} of the first image, by index, that cannot be read */
  async function decodeAll(
    images: readonly Uint8Array[],
    signal: AbortSignal,
  ): Promise<readonly Uint8Array[]> {
    state.decoding += images.length;
    const results = await Promise.allSettled(images.map((image) => decode(image, signal)));
    if (signal.aborted) throw new EmbedError("timeout", "the caller went away");
    return results.map((result, index) => {
      if (result.status === "fulfilled") return result.value;
      const { code, message } = toEmbedError(result.reason);
      throw new EmbedError(code, `image ${index} ${message}`, index, { cause: result.reason });
    });
  }

  async function decode(image: Uint8Array, signal: AbortSignal): Promise<Uint8Array> {
    const startedAt = performance.now();
    try {
      return await preprocessor.run(image, { signal });
    } finally {
      state.decoding -= 1;
      metrics.decoded((performance.now() - startedAt) / 1000);
    }
  }

  return app;
}

function sendError(reply: FastifyReply, error: EmbedError): void {
  if (error.code === "overloaded" || error.code === "unavailable") {
    reply.header("retry-after", String(retryAfterSeconds));
  }
  reply.code(error.status).type("application/json").send(error.body);
}

/** Aborted when the client hangs up before it has its answer. */
function abortedWith(reply: FastifyReply): AbortSignal {
  const controller = new AbortController();
  // each image of the request listens
  setMaxListeners(0, controller.signal);
  reply.raw.once("close", () => {
    if (!reply.raw.writableFinished) controller.abort();
  });
  return controller.signal;
}

function wantsBytes(request: FastifyRequest): boolean {
  return request.headers.accept?.includes("application/octet-stream") ?? false;
}

/**
 * To 8 decimals: half the text, and 5e-9 is a tenth of what float32 resolves at 1.
 *
 * @param vector - unit norm, so that each value is within -1..1
 */
function rounded(vector: Float32Array): number[] {
  return Array.from(vector, (value) => Math.round(value * 1e8) / 1e8);
}

function littleEndian(vectors: readonly Float32Array[]): Buffer {
  const bytes = Buffer.alloc(vectors.length * embeddingDims * Float32Array.BYTES_PER_ELEMENT);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let offset = 0;
  for (const vector of vectors) {
    for (const value of vector) {
      view.setFloat32(offset, value, true);
      offset += Float32Array.BYTES_PER_ELEMENT;
    }
  }
  return bytes;
}
