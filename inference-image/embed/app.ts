import { setMaxListeners } from "node:events";
import type { IncomingMessage, ServerOptions } from "node:http";
import Fastify, {
  type FastifyInstance,
  type FastifyReply,
  type FastifyRequest,
  LogController,
} from "fastify";
import { maxJsonBytes } from "../../client/triton/parse-json.ts";
import {
  embeddingShapeHeader,
  embedPaths,
  imageContentTypes,
  serverTimingHeader,
  timeoutMicroseconds,
  timeoutParameter,
} from "../../contract/embed-api.ts";
import { embeddingDims } from "../../contract/model-signature.ts";
import type { ServerEnv } from "../../contract/server-env.ts";
import {
  createPreprocessor,
  imageTypeOf,
  type PreprocessorOptions,
  type RunOptions,
} from "../../inference/preprocess/preprocess.ts";
import { Admission, type Reservation } from "../http/admission.ts";
import { bearerCheck } from "../http/authorization.ts";
import { headersTimeoutMs, respondToClientError } from "../http/client-errors.ts";
import { drainHttp, trackRequests } from "../http/drain.ts";
import { EmbedError } from "../http/embed-error.ts";
import { toEmbedError } from "../http/errors.ts";
import { JsonThread } from "../http/json-thread.ts";
import { announcedLength, discardBody, readBody, tooLarge } from "../http/request-body.ts";
import { requestTimeoutMs } from "../http/request-timeout.ts";
import type { TlsFiles } from "../http/tls.ts";
import type { Embedder } from "./embedder.ts";
import type { EmbedMetrics } from "./metrics.ts";
import { openApiDocument } from "./openapi.ts";
import { page, pageSecurityPolicy } from "./page.ts";
import { imagesOfBody } from "./request-images.ts";
import { binaryBody, jsonBody } from "./response-body.ts";

export interface AppOptions {
  /** What computes; `undefined` while it is loading. */
  readonly embedder: () => Embedder | undefined;
  /** Architecture and weights, part of every answer. */
  readonly model: () => string;
  readonly metrics: EmbedMetrics;
  readonly limits: Limits;
  /** @default exact, one thread a core */
  readonly preprocessing?: Omit<PreprocessorOptions, "maxPixels">;
  /**
   * What clients must send as bearer token.
   *
   * @default - anybody may ask
   */
  readonly apiKey?: string;
  /** @default - plain HTTP */
  readonly tls?: TlsFiles;
  /** @default "silent" */
  readonly logLevel?: ServerEnv["LOG_LEVEL"];
}

export interface Limits {
  /** Images that may wait, to be decoded or for the model; beyond it 429. */
  readonly maxQueueSize: number;
  /** Bytes of bodies that were let in and are not answered; beyond it 429. */
  readonly maxQueueBytes: number;
  readonly maxBodyBytes: number;
  /** Of one decoded image. */
  readonly maxImagePixels: number;
  /**
   * Open connections; what comes beyond is closed at once.
   *
   * @default - no limit
   */
  readonly maxConnections?: number;
}

/** When to come back after 503, in seconds. */
const unavailableSeconds = 1;

/** How often Node looks for requests that arrive too slowly, in milliseconds. */
const timeoutCheckMs = 5_000;

/** A request to embed that was let in. */
interface Accepted {
  readonly place: Reservation;
  /** Goes off, with an {@link EmbedError}, when nobody waits for the answer any more. */
  readonly signal: AbortSignal;
  readonly reply: FastifyReply;
  readonly maxBytes: number;
  readonly startedAt: number;
  /** When the whole body was there. */
  arrivedAt: number;
}

/**
 * Build the embed server. It does not listen: `main.ts` does, and tests call `inject()`.
 *
 * `close()` drains: no new requests are taken, those that were accepted are answered, then the embedder is closed.
 */
export function buildApp(options: AppOptions): FastifyInstance {
  const { metrics, limits } = options;
  const app = createServer(options);
  const preprocessor = createPreprocessor({
    ...options.preprocessing,
    maxPixels: limits.maxImagePixels,
  });
  const json = new JsonThread();
  const state = { draining: false, decoding: 0 };
  const admission = new Admission(
    limits,
    () => state.decoding + (options.embedder()?.waitingImages ?? 0),
  );
  metrics.pendingBytesFrom(() => admission.bytes);
  const requests = new WeakMap<FastifyRequest, Accepted>();

  app.removeAllContentTypeParsers();
  app.addContentTypeParser(
    ["application/json", "multipart/form-data", ...imageContentTypes],
    (request: FastifyRequest, body: IncomingMessage) => receive(request, body),
  );

  const accepted = trackRequests(app, (request, reply, status) => {
    metrics.request(request.routeOptions.url ?? "none", status, reply.elapsedTime / 1000);
  });
  app.addHook("onSend", async (_request, reply) => {
    if (state.draining) reply.header("connection", "close");
  });
  app.addHook("preClose", async () => {
    state.draining = true;
    await drainHttp(app, accepted);
  });
  app.addHook("onClose", async () => {
    await preprocessor.close();
    await json.close();
    await options.embedder()?.close();
  });

  const sendError = (reply: FastifyReply, error: EmbedError) => {
    if (error.code === "overloaded") reply.header("retry-after", admission.retryAfterSeconds);
    if (error.code === "unavailable") reply.header("retry-after", unavailableSeconds);
    if (error.code === "unauthorized") reply.header("www-authenticate", 'Bearer realm="clipstack"');
    // the rest of a slow body is nothing to wait for
    if (error.code === "request_timeout") reply.header("connection", "close");
    return reply.code(error.status).type("application/json").send(error.body);
  };
  app.setErrorHandler((cause, request, reply) => {
    // Fastify asks for the type of a body before it finds that no route takes the method
    const { code } = cause as { readonly code?: string };
    if (code === "FST_ERR_ROUTE_MISSING_CONTENT_TYPE") return sendNotFound(request, reply);
    const error = toEmbedError(cause);
    const gone = reply.raw.destroyed;
    if (error.status >= 500 && !["unavailable", "timeout"].includes(error.code) && !gone) {
      request.log.error({ err: cause, route: request.routeOptions.url }, error.message);
    } else {
      request.log.debug({ code: error.code, image: error.image }, error.message);
    }
    sendError(reply, error);
  });
  /** No such path, or one that does not take this method. */
  const sendNotFound = (request: FastifyRequest, reply: FastifyReply) => {
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
  };
  app.setNotFoundHandler(sendNotFound);

  // Liveness says "restart me", so it must not depend on the model.
  for (const path of [embedPaths.healthz, embedPaths.health]) {
    app.get(path, async () => ({ status: "ok" }));
  }
  app.get(embedPaths.readyz, async (_request, reply) => {
    const embedder = options.embedder();
    const ready = !state.draining && ((await embedder?.ready()) ?? false);
    const reason = ready || state.draining ? undefined : embedder?.unavailableReason;
    return reply.code(ready ? 200 : 503).send({ ready, reason });
  });
  const knows = options.apiKey === undefined ? () => true : bearerCheck(options.apiKey);
  const authorize = async (request: FastifyRequest) => {
    if (knows(request.headers.authorization)) return;
    const got = request.headers.authorization === undefined ? "none" : "another one";
    throw new EmbedError(
      "unauthorized",
      `the header must be 'Authorization: Bearer' and the key of this server, got ${got}`,
    );
  };
  app.get(embedPaths.metrics, { onRequest: authorize }, async (_request, reply) =>
    reply.type(metrics.contentType).send(await metrics.text()),
  );
  const openApi = openApiDocument(options.apiKey !== undefined);
  app.get(embedPaths.openapi, async () => openApi);
  app.get(embedPaths.page, async (_request, reply) =>
    reply
      .type("text/html")
      .header("content-security-policy", pageSecurityPolicy)
      .send(page(options.apiKey !== undefined)),
  );

  /** Refuse before the body is read: a request that cannot be taken must not cost memory. */
  const admit =
    (contentTypes: readonly string[], maxBytes: number) =>
    async (request: FastifyRequest, reply: FastifyReply) => {
      if (state.draining) {
        await discardBody(request.raw);
        throw new EmbedError("unavailable", "the server is stopping");
      }
      if (options.embedder() === undefined) {
        throw new EmbedError("unavailable", "the model is loading");
      }
      checkContent(request, contentTypes);
      const timeoutUs = timeoutOf(request);
      const announced = announcedLength(request.raw);
      if (announced !== undefined && announced > maxBytes) throw tooLarge(maxBytes);

      const controller = new AbortController();
      // each image of the request listens
      setMaxListeners(0, controller.signal);
      const place = admission.reserve(announced, (reason) => controller.abort(reason));
      const timer =
        timeoutUs === undefined
          ? undefined
          : setTimeout(() => controller.abort(expired(timeoutUs)), Math.ceil(timeoutUs / 1000));
      reply.raw.once("close", () => {
        clearTimeout(timer);
        place.release();
        if (!reply.raw.writableFinished) {
          controller.abort(new EmbedError("timeout", "the caller went away"));
        }
      });
      const startedAt = performance.now();
      const { signal } = controller;
      const times = { startedAt, arrivedAt: startedAt };
      requests.set(request, { place, signal, reply, maxBytes, ...times });
    };

  async function receive(request: FastifyRequest, body: IncomingMessage) {
    const accepted = requests.get(request);
    // no route wants it
    if (accepted === undefined) return undefined;
    const { place, signal, reply, maxBytes } = accepted;
    if (request.headers.expect?.toLowerCase() === "100-continue") reply.raw.writeContinue();
    const bytes = await readBody(body, {
      maxBytes,
      onBytes: (count) => place.receive(count),
      signal,
    });
    accepted.arrivedAt = performance.now();
    place.complete();
    return bytes;
  }
  // a client that asks before it sends a body is answered by `receive`, or with a refusal; what else it expects is its own
  for (const event of ["checkContinue", "checkExpectation"]) {
    app.server.on(event, (request, response) => app.server.emit("request", request, response));
  }

  app.post(
    embedPaths.embed,
    {
      onRequest: [
        authorize,
        admit(["multipart/form-data", ...imageContentTypes], limits.maxBodyBytes),
      ],
    },
    (request, reply) => answer(request, reply, imagesOfBody),
  );
  app.post(
    embedPaths.embedBase64,
    {
      onRequest: [
        authorize,
        admit(["application/json"], Math.min(maxJsonBytes, limits.maxBodyBytes)),
      ],
    },
    (request, reply) =>
      answer(request, reply, async ({ body }) => {
        if (!Buffer.isBuffer(body)) {
          throw new EmbedError("bad_request", "the body is empty: send JSON");
        }
        return json.images(body);
      }),
  );

  async function answer(
    request: FastifyRequest,
    reply: FastifyReply,
    read: (request: FastifyRequest) => Promise<readonly Uint8Array[]>,
  ): Promise<FastifyReply> {
    const { place, signal, startedAt, arrivedAt } = requests.get(request)!;
    const images = await read(request);
    signal.throwIfAborted();
    place.parsed();
    const times: Times = { decode: 0, queue: 0, infer: 0 };
    metrics.pending(images.length);
    // of several images in one body, none can move without the others
    const movable =
      images.every(ownsItsMemory) || (images.length === 1 && ownsItsMemory(request.body));
    const file = movable ? "taken" : "copied";
    const vectors = await embed(images, { signal, file }, times).finally(() =>
      metrics.pending(-images.length),
    );
    metrics.embedded(vectors.length);
    admission.recordCompleted(vectors.length);

    const body = wantsBytes(request) ? binaryBody(vectors) : jsonBody(vectors, options.model());
    const total = performance.now() - startedAt;
    metrics.overhead(Math.max(0, total - times.decode - times.queue - times.infer) / 1000);
    reply.header(
      serverTimingHeader,
      serverTiming({ receive: arrivedAt - startedAt, ...times, total }),
    );
    if (wantsBytes(request)) {
      reply
        .type("application/octet-stream")
        .header(embeddingShapeHeader, `${vectors.length},${embeddingDims}`);
    } else {
      reply.header("content-type", "application/json; charset=utf-8");
    }
    return reply.send(body);
  }

  async function embed(
    images: readonly Uint8Array[],
    { signal, file }: Required<RunOptions>,
    times: Times,
  ): Promise<readonly Float32Array[]> {
    const embedder = options.embedder();
    if (embedder === undefined) throw new EmbedError("unavailable", "the model is loading");
    admission.checkImages(images.length);
    const input = embedder.input ?? "pixels";
    const begin = async () => {
      const announced = embedder.announce();
      try {
        const startedAt = performance.now();
        const inputs = await decodeAll(images, input, { signal, file });
        times.decode = performance.now() - startedAt;
        const vectors = embedder.embed(inputs, {
          signal,
          onTiming: ({ queueSeconds, inferSeconds }) => {
            times.queue = Math.max(times.queue, queueSeconds * 1000);
            times.infer = Math.max(times.infer, inferSeconds * 1000);
          },
        });
        return { inputs, vectors };
      } finally {
        announced();
      }
    };
    const compute = async () => {
      const begun = await begin();
      const vectors = await begun.vectors;
      if (input === "pixels") for (const pixels of begun.inputs) preprocessor.recycle(pixels);
      return vectors;
    };
    return unlessAborted(compute(), signal);
  }

  /** @throws {EmbedError} of the first image, by index, that cannot be read */
  async function decodeAll(
    images: readonly Uint8Array[],
    input: "pixels" | "encoded",
    options: Required<RunOptions>,
  ): Promise<readonly Uint8Array[]> {
    state.decoding += images.length;
    const results = await Promise.allSettled(images.map((image) => decode(image, input, options)));
    options.signal.throwIfAborted();
    return results.map((result, index) => {
      if (result.status === "fulfilled") return result.value;
      const { code, message } = toEmbedError(result.reason);
      throw new EmbedError(code, `image ${index} ${message}`, index, { cause: result.reason });
    });
  }

  async function decode(
    image: Uint8Array,
    input: "pixels" | "encoded",
    options: Required<RunOptions>,
  ): Promise<Uint8Array> {
    const startedAt = performance.now();
    try {
      if (image.length === 0) throw new EmbedError("unsupported_media_type", "is empty");
      if (input === "pixels") return await preprocessor.run(image, options);
      if (imageTypeOf(image) !== undefined) return image;
      throw new EmbedError("unsupported_media_type", "is not a JPEG, PNG or WebP file");
    } finally {
      state.decoding -= 1;
      metrics.decoded((performance.now() - startedAt) / 1000);
    }
  }

  return app;
}

/** Whether nothing else is in the memory of a body: not so of a small one that came in chunks. */
function ownsItsMemory(body: unknown): boolean {
  return body instanceof Uint8Array && body.byteLength === body.buffer.byteLength;
}

/** In milliseconds. */
interface Times {
  decode: number;
  queue: number;
  infer: number;
}

function createServer({ limits, tls, logLevel = "silent" }: AppOptions): FastifyInstance {
  const server: ServerOptions = {
    headersTimeout: headersTimeoutMs,
    connectionsCheckingInterval: timeoutCheckMs,
  };
  const common = {
    logger: { level: logLevel },
    // a line for each request costs more than it tells; failures are logged, metrics count the rest
    logController: new LogController({ disableRequestLogging: true }),
    requestTimeout: requestTimeoutMs,
    // the answer while draining is ours
    return503OnClosing: false,
    forceCloseConnections: "idle",
    clientErrorHandler: respondToClientError,
    frameworkErrors: (error: Error, _request: FastifyRequest, reply: FastifyReply) => {
      const refusal = toEmbedError(error);
      reply.code(refusal.status).type("application/json").send(refusal.body);
    },
  } as const;
  const app =
    tls === undefined
      ? Fastify({ ...common, http: server })
      : (Fastify({ ...common, https: { ...server, ...tls } }) as unknown as FastifyInstance);
  if (limits.maxConnections !== undefined) app.server.maxConnections = limits.maxConnections;
  return app;
}

/** @throws {EmbedError} for a body that is refused by its headers alone */
function checkContent({ headers, url }: FastifyRequest, contentTypes: readonly string[]): void {
  const encoding = headers["content-encoding"];
  if (encoding !== undefined && encoding !== "identity") {
    throw new EmbedError(
      "unsupported_media_type",
      `the body must not be compressed, got content-encoding '${encoding}'`,
    );
  }
  const type = headers["content-type"]?.split(";", 1)[0]?.trim().toLowerCase();
  if (type === undefined || contentTypes.includes(type)) return;
  const path = url.split("?", 1)[0];
  const hint =
    path === embedPaths.embed ? `; base64 in JSON goes to ${embedPaths.embedBase64}` : "";
  throw new EmbedError(
    "unsupported_media_type",
    `the body of ${path} must be ${contentTypes.join(", ")}${hint}`,
  );
}

/** Microseconds that the caller waits; `undefined`: as long as it takes. */
function timeoutOf(request: FastifyRequest): number | undefined {
  const text = (request.query as Record<string, unknown>)[timeoutParameter];
  if (text === undefined) return undefined;
  const result = timeoutMicroseconds.safeParse(/^\d+$/.test(String(text)) ? Number(text) : text);
  if (result.success) return result.data;
  const { minimum, maximum } = timeoutMicroseconds.toJSONSchema() as {
    readonly minimum: number;
    readonly maximum: number;
  };
  throw new EmbedError(
    "bad_request",
    `${timeoutParameter} must be microseconds, ${minimum} to ${maximum}, got '${String(text).slice(0, 40)}'`,
  );
}

function expired(timeoutUs: number): EmbedError {
  return new EmbedError("timeout", `no answer within the timeout of ${timeoutUs} microseconds`);
}

/** What `work` gives, or the signal's reason if that goes off first. Then nobody hears what becomes of the work. */
async function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  let onAbort = () => {};
  const aborted = new Promise<never>((_, reject) => {
    onAbort = () => reject(signal.reason);
    signal.addEventListener("abort", onAbort, { once: true });
    if (signal.aborted) onAbort();
  });
  try {
    return await Promise.race([work, aborted]);
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
}

function wantsBytes(request: FastifyRequest): boolean {
  return request.headers.accept?.includes("application/octet-stream") ?? false;
}

/** `receive;dur=0.123, …`, in milliseconds. */
function serverTiming(ms: Readonly<Record<string, number>>): string {
  return Object.entries(ms)
    .map(([name, duration]) => `${name};dur=${duration.toFixed(3)}`)
    .join(", ");
}
