import { setTimeout as sleep } from "node:timers/promises";
import type { FastifyInstance } from "fastify";
import { isLoopback } from "../../contract/loopback.ts";
import type { ServerEnv } from "../../contract/server/server-env.ts";
import { otlpTraceUrl } from "../../contract/triton-flags.ts";
import { writeLog } from "../../http/log-output.ts";
import type { EmbedMetrics } from "../models/metrics.ts";
import { type ServedModel, ServedModels } from "../models/served-models.ts";
import { closeModels, type OpeningModels, openModels, serveModels } from "../onnx/load-models.ts";
import { openServerFiles, type ServerFiles } from "./server-files.ts";
import { readSettings, SettingsError } from "./settings.ts";
import { readTritonSecurity } from "./tls.ts";

/** Maximum time that the start waits for the first model's thread before it loads the rest of the server, in milliseconds. */
const maxHeadStartMs = 100;

/** Embed server that listens. */
export interface RunningEmbedServer {
  readonly app: FastifyInstance;
  readonly port: number;
  /** Resolves when all models are warm; rejects if one cannot be loaded. */
  readonly loaded: Promise<void>;
  /** Rejects when the runtime's thread exits unexpectedly; the server can then no longer embed. */
  readonly died: Promise<never>;
  /** Reads the certificate and the keys of clients again, as it does when their files change. */
  reload(): Promise<void>;
  /** Drains: makes the server not ready, answers accepted requests, then closes everything. */
  stop(): Promise<void>;
}

/**
 * Listens while the models load: the server is live at once, and ready when all of them are warm. Port 0 selects a free port.
 *
 * @throws {Error} one line, if the port is in use
 */
export async function startEmbedServer(settings: ServerEnv): Promise<RunningEmbedServer> {
  const files = await openServerFiles(settings);
  const security = settings.BACKEND === "triton" ? await readTritonSecurity(settings) : undefined;
  const startedAt = performance.now();
  const opening = settings.BACKEND === "triton" ? undefined : await beginModels(settings);

  const [{ buildApp }, { createMetrics }] = await Promise.all([
    import("./app.ts"),
    import("../models/metrics.ts"),
  ]);
  const metrics = createMetrics();
  const models = new ServedModels(settings.MODELS);
  const app = buildApp({ ...appOptions(settings, files), models, metrics });
  files.watch(app, metrics);
  const endTracing = await startTracing(settings, app);
  const port = await listenOrClose(app, settings, opening);

  const load = async () => {
    if (opening === undefined) {
      models.load(await createGatewayModels(settings, security, metrics, app));
      return;
    }
    models.load(serveModels(await opening.opened, settings, metrics, app.log));
    const seconds = Math.round((performance.now() - startedAt) / 10) / 100;
    app.log.info({ models: models.specs.map(({ name }) => name), seconds }, "ready");
  };
  const loaded = load();
  loaded.catch(() => {});

  return {
    app,
    port,
    loaded,
    died: opening?.died ?? new Promise<never>(() => {}),
    reload: () => files.reload(),
    async stop() {
      await loaded.catch(() => {});
      await app.close();
      await endTracing();
    },
  };
}

/** Starts to export traces, if a collector is set. @returns Exports the remaining ones. */
async function startTracing(
  settings: ServerEnv,
  app: FastifyInstance,
): Promise<() => Promise<void>> {
  const { OTEL_EXPORTER_OTLP_ENDPOINT: endpoint } = settings;
  if (endpoint === undefined) return async () => {};
  const { startTraceExport } = await import("../../http/trace-export.ts");
  const protocol = settings.OTEL_EXPORTER_OTLP_PROTOCOL;
  return await startTraceExport({
    url: protocol === "grpc" ? endpoint : otlpTraceUrl(endpoint),
    protocol,
    serviceName: settings.OTEL_SERVICE_NAME,
    sampler: settings.OTEL_TRACES_SAMPLER,
    ratio: settings.OTEL_TRACES_SAMPLER_ARG,
    warn: (line) => app.log.warn(line),
  });
}

/**
 * Starts to open the models of the backend `onnxruntime`, and resolves once a thread has begun: reading a large file takes seconds,
 * in which the rest of the server loads and becomes live.
 */
async function beginModels(settings: ServerEnv): Promise<OpeningModels> {
  const opening = openModels(settings);
  await Promise.race([opening.begun, sleep(maxHeadStartMs)]);
  return opening;
}

function appOptions(settings: ServerEnv, { tls, keys }: ServerFiles) {
  return {
    limits: {
      maxQueueSize: settings.MAX_QUEUE_SIZE,
      maxQueueBytes: settings.MAX_QUEUE_BYTES,
      maxBodyBytes: settings.MAX_BODY_BYTES,
      maxImagePixels: settings.MAX_IMAGE_PIXELS,
      maxConnections: settings.MAX_CONNECTIONS,
      keepAliveTimeoutMs: settings.KEEP_ALIVE_TIMEOUT_MS,
    },
    keys,
    loopbackOnly: keys === undefined && isLoopback(settings.HOST),
    tls,
    preprocessing: {
      mode: settings.PREPROCESSING,
      threads: settings.PREPROCESS_THREADS,
      maxPixelsInFlight: settings.MAX_PIXELS_IN_FLIGHT,
      timeoutMs: settings.DECODE_TIMEOUT_MS,
    },
    remoteImages: {
      origins: settings.IMAGE_URL_HOSTS,
      maxBytes: settings.IMAGE_URL_MAX_BYTES,
      timeoutMs: settings.IMAGE_URL_TIMEOUT_MS,
      maxRedirects: settings.IMAGE_URL_MAX_REDIRECTS,
    },
    shutdownGraceMs: settings.SHUTDOWN_GRACE_SECONDS * 1000,
    tracing: settings.OTEL_EXPORTER_OTLP_ENDPOINT !== undefined,
    logLevel: settings.LOG_LEVEL,
  };
}

/** Creates the models of a gateway, whose metrics and log follow the health of its Triton servers. */
async function createGatewayModels(
  settings: ServerEnv,
  security: Awaited<ReturnType<typeof readTritonSecurity>> | undefined,
  metrics: EmbedMetrics,
  app: FastifyInstance,
): Promise<readonly ServedModel[]> {
  // only a gateway loads gRPC, which adds 0.2 s and 10 MB to the start
  const { createGateway } = await import("../gateway/gateway-models.ts");
  const models = await createGateway(settings, security, metrics, app.log);
  const names = models.map(({ spec }) => spec.name);
  app.log.info({ tritons: settings.TRITON_GRPC_URLS, models: names }, "gateway");
  return models;
}

async function listenOrClose(
  app: FastifyInstance,
  { HOST: host, PORT: port }: ServerEnv,
  opening: OpeningModels | undefined,
): Promise<number> {
  try {
    await app.listen({ host, port, listenTextResolver: (url) => `listening on ${url}` });
  } catch (error) {
    await app.close();
    await opening?.opened.then(closeModels, () => {});
    const { code, message } = error as { code?: string; message: string };
    throw new Error(
      code === "EADDRINUSE"
        ? `port ${port} on ${host} is in use: stop the program that uses it, or set PORT`
        : `cannot listen on ${host}:${port}: ${message}`,
    );
  }
  const address = app.server.address();
  return typeof address === "object" && address !== null ? address.port : port;
}

/**
 * Runs the embed server as the process: reads the settings from environment variables, serves until a signal, then exits.
 *
 * Exit codes: 0 drained, 1 failed, 2 invalid settings.
 */
export async function runEmbedServer(
  env: Readonly<Record<string, string | undefined>>,
): Promise<void> {
  let settings: ServerEnv;
  try {
    settings = readSettings(env);
  } catch (error) {
    return fail((error as Error).message, error instanceof SettingsError ? 2 : 1);
  }

  const state: ProcessState = { server: undefined, stopping: false };
  handleSignals(state, settings);
  try {
    state.server = await startEmbedServer(settings);
    await state.server.loaded;
    await state.server.died;
  } catch (error) {
    if (error instanceof SettingsError) fail(error.message, 2);
    if (!state.stopping) fail(`clipstack embed server: ${(error as Error).message}`, 1);
  }
}

interface ProcessState {
  server: RunningEmbedServer | undefined;
  stopping: boolean;
}

/** Handles SIGTERM and SIGINT (drain, or exit on the second one), and SIGHUP (reload certificate and keys, or drain without them). */
function handleSignals(state: ProcessState, settings: ServerEnv): void {
  const onSignal = async (signal: NodeJS.Signals) => {
    const { server, stopping } = state;
    // the second signal forces the exit; before the server listens there is nothing to drain
    if (stopping || server === undefined) process.exit(stopping ? 1 : 0);
    state.stopping = true;
    server.app.log.info({ signal }, "draining: accepted requests are answered");
    const { SHUTDOWN_GRACE_SECONDS: seconds } = settings;
    setTimeout(
      () => fail(`not drained within SHUTDOWN_GRACE_SECONDS (${seconds}): requests were lost`, 1),
      seconds * 1000,
    );
    await server.stop();
    server.app.log.info("stopped");
    process.exit(0);
  };
  process.on("SIGTERM", onSignal);
  process.on("SIGINT", onSignal);
  const hasFiles = settings.TLS_CERT_FILE !== undefined || settings.API_KEYS_FILE !== undefined;
  process.on("SIGHUP", hasFiles ? () => void state.server?.reload() : onSignal);
}

function fail(message: string, code: number): never {
  writeLog(2, `${message}\n`);
  process.exit(code);
}
