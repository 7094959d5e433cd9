import { maxHeaderSize, type ServerOptions } from "node:http";
import Fastify, {
  type FastifyInstance,
  type FastifyReply,
  type FastifyRequest,
  LogController,
} from "fastify";
import { embedResponseHeaders, embedRoutes } from "../../contract/embed-routes.ts";
import type { ServerEnv } from "../../contract/server/server-env.ts";
import {
  headersTimeoutMs,
  requestTimeoutMs,
  respondToClientError,
} from "../../http/client-errors.ts";
import { drainHttp, trackRequests } from "../../http/drain.ts";
import { writeLog } from "../../http/log-output.ts";
import { limitConnections, limitUnreadResponses } from "../../http/open-requests.ts";
import { beginTraces, endTrace } from "../../http/traced-requests.ts";
import {
  createPreprocessor,
  type PreprocessorOptions,
} from "../../inference/preprocess/preprocess.ts";
import { type AddRoute, routeAdder } from "../embed/add-route.ts";
import { BodyThread } from "../embed/body-thread.ts";
import type { ClientKeys } from "../embed/client-keys.ts";
import { EmbedPipeline } from "../embed/embed-pipeline.ts";
import { registerEmbedRoutes } from "../embed/embed-routes.ts";
import { toEmbedError, withoutAddresses } from "../embed/errors.ts";
import { RequestAdmission } from "../embed/request-admission.ts";
import type { EmbedMetrics } from "../models/metrics.ts";
import type { ServedModels } from "../models/served-models.ts";
import { registerOpenAiRoutes } from "../openai/openai-routes.ts";
import { RemoteImages, type RemoteImagesOptions } from "../openai/remote-images.ts";
import { errorBody, registerErrorResponses } from "./error-responses.ts";
import { rejectOtherOrigins } from "./loopback-requests.ts";
import { openApiDocument } from "./openapi.ts";
import { page, pageSecurityPolicy } from "./page.ts";
import { minTlsVersion, type TlsFiles } from "./tls.ts";

export interface AppOptions {
  /** Served models, which may still be loading. */
  readonly models: ServedModels;
  readonly metrics: EmbedMetrics;
  readonly limits: Limits;
  /** @default exact, one thread per core */
  readonly preprocessing?: Omit<PreprocessorOptions, "maxPixels">;
  /** Keys of which clients must send one. @default - no authentication */
  readonly keys?: ClientKeys;
  /** Rejects requests from web pages of other origins. @default false */
  readonly loopbackOnly?: boolean;
  /** @default - plain HTTP */
  readonly tls?: TlsFiles;
  /** Hosts of image URLs in `POST /v1/embeddings`. @default - none: URLs are rejected */
  readonly remoteImages?: Omit<RemoteImagesOptions, "maxBytesInFlight">;
  /** Whether requests are traced. @default false */
  readonly tracing?: boolean;
  /** Maximum time of a drain in milliseconds, for clients that do not read their responses. @default - no limit */
  readonly shutdownGraceMs?: number;
  /** @default "silent" */
  readonly logLevel?: ServerEnv["LOG_LEVEL"];
}

export interface Limits {
  /** Maximum number of queued images and texts, including images being decoded. A request beyond it receives 429. */
  readonly maxQueueSize: number;
  /** Maximum bytes of admitted request bodies and unsent responses. A request beyond it receives 429. */
  readonly maxQueueBytes: number;
  readonly maxBodyBytes: number;
  /** Maximum number of pixels of one decoded image. */
  readonly maxImagePixels: number;
  /**
   * Maximum number of open connections; a further one replaces an idle one, or is closed at once.
   *
   * @default - no limit
   */
  readonly maxConnections?: number;
  /**
   * Time after which an idle connection is closed, in milliseconds.
   *
   * @default - Fastify's, 72 s
   */
  readonly keepAliveTimeoutMs?: number;
}

const noRemoteImages = { origins: [], maxBytes: 0, timeoutMs: 0, maxRedirects: 0 };

/** Interval at which Node checks for requests that arrive too slowly, in milliseconds. */
const timeoutCheckMs = 5_000;

/**
 * Builds the embed server without listening: `main.ts` listens, and tests call `inject()`.
 *
 * `close()` drains: new requests are rejected, accepted requests are answered, then the embedder is closed.
 */
export function buildApp(options: AppOptions): FastifyInstance {
  const { metrics, limits, models, keys } = options;
  const app = createServer(options);
  const state = { draining: false };
  const preprocessor = createPreprocessor({
    ...options.preprocessing,
    maxPixels: limits.maxImagePixels,
  });
  const bodies = openBodyThread();
  const remoteImages = new RemoteImages({
    ...(options.remoteImages ?? noRemoteImages),
    maxBytesInFlight: limits.maxQueueBytes,
  });
  const pipeline = new EmbedPipeline({ models, preprocessor, metrics });

  const accepted = trackRequests(app, (request, reply, status) => {
    endTrace(request, status, requests.modelOf(request));
    metrics.request(
      {
        route: request.routeOptions.url ?? "none",
        status,
        model: requests.modelOf(request) ?? "none",
        client: keys?.nameOf(request) ?? "none",
      },
      reply.elapsedTime / 1000,
    );
  });
  app.addHook("onSend", async (_request, reply) => {
    reply.headers(embedResponseHeaders);
    if (state.draining) reply.header("connection", "close");
  });
  app.addHook("preClose", async () => {
    state.draining = true;
    await drainHttp(app, accepted, options.shutdownGraceMs);
  });
  app.addHook("onClose", async () => {
    await preprocessor.close();
    await bodies.close();
    await remoteImages.close();
    await models.close();
  });

  const requests = new RequestAdmission(app, {
    limits,
    queuedItems: () => pipeline.queuedItems,
    state: () => {
      if (state.draining) return "draining";
      return models.loaded ? "serving" : "loading";
    },
  });
  metrics.pendingBytesFrom(() => requests.bytes);
  metrics.readyFrom(async () => !state.draining && (await models.ready()));
  registerErrorResponses(app, requests, (request) => keys?.nameOf(request));
  if (options.loopbackOnly === true) rejectOtherOrigins(app);
  const addRoute = routeAdder(app, keys);
  registerOperationsRoutes(addRoute, options, () => state.draining);
  const routeOptions = {
    requests,
    pipeline,
    bodies,
    metrics,
    models,
    maxBodyBytes: limits.maxBodyBytes,
  };
  registerEmbedRoutes(addRoute, routeOptions);
  registerOpenAiRoutes(addRoute, { ...routeOptions, remoteImages });
  return app;
}

/** Thread that parses the bodies of all routes. */
export function openBodyThread(): BodyThread {
  return new BodyThread(new URL("./body-worker", import.meta.url));
}

function createServer({ limits, tls, tracing, logLevel = "silent" }: AppOptions): FastifyInstance {
  const server: ServerOptions = {
    headersTimeout: headersTimeoutMs,
    connectionsCheckingInterval: timeoutCheckMs,
  };
  const common = {
    logger: { level: logLevel, stream: { write: (line: string) => writeLog(1, line) } },
    // a drain takes as long as its requests
    pluginTimeout: 0,
    // one line per request is too expensive; failures are logged, and metrics count the rest
    logController: new LogController({ disableRequestLogging: true }),
    requestTimeout: requestTimeoutMs,
    ...(limits.keepAliveTimeoutMs !== undefined && { keepAliveTimeout: limits.keepAliveTimeoutMs }),
    // this server sends its own response while draining
    return503OnClosing: false,
    forceCloseConnections: "idle",
    clientErrorHandler: respondToClientError,
    // names of models, checked by their route
    routerOptions: { maxParamLength: maxHeaderSize },
    frameworkErrors: (cause: Error, request: FastifyRequest, reply: FastifyReply) => {
      const error = toEmbedError(cause);
      reply
        .code(error.status)
        .type("application/json")
        .headers(embedResponseHeaders)
        .send(errorBody(request, error));
    },
  } as const;
  const app =
    tls === undefined
      ? Fastify({ ...common, http: server })
      : (Fastify({
          ...common,
          https: { ...server, ...tls, minVersion: minTlsVersion },
        }) as unknown as FastifyInstance);
  limitUnreadResponses(app);
  if (tracing === true) beginTraces(app);
  if (limits.maxConnections !== undefined) limitConnections(app, limits.maxConnections);
  return app;
}

function registerOperationsRoutes(
  addRoute: AddRoute,
  { models, metrics, keys }: AppOptions,
  draining: () => boolean,
): void {
  // A failed liveness probe restarts the container, so it must not depend on the model.
  for (const route of [embedRoutes.healthz, embedRoutes.health]) {
    addRoute(route, async () => ({ status: "ok" }));
  }
  addRoute(embedRoutes.readyz, async (_request, reply) => {
    const ready = !draining() && (await models.ready());
    const reason = ready || draining() ? undefined : models.unavailableReason;
    // the route needs no key
    if (reason !== undefined && keys !== undefined) {
      return reply.code(503).send({ ready, reason: withoutAddresses(reason) });
    }
    return reply.code(ready ? 200 : 503).send({ ready, reason });
  });
  addRoute(embedRoutes.metrics, async (_request, reply) =>
    reply.type(metrics.contentType).send(await metrics.text()),
  );
  const requiresKey = keys !== undefined;
  const openApi = Buffer.from(
    JSON.stringify(
      openApiDocument({
        requiresKey,
        models: models.specs.map(({ name }) => name),
      }),
    ),
  );
  addRoute(embedRoutes.openapi, async () => openApi);
  let loadedPage: Buffer | undefined;
  addRoute(embedRoutes.page, async (_request, reply) => {
    if (models.loaded) loadedPage ??= Buffer.from(page(models, requiresKey));
    const body = loadedPage ?? page(models, requiresKey);
    return reply.header("content-security-policy", pageSecurityPolicy).send(body);
  });
}
