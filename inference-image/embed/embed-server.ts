import { setTimeout as sleep } from "node:timers/promises";
import type { Server as TlsServer } from "node:tls";
import type { FastifyInstance } from "fastify";
import type { ServerEnv } from "../../contract/server-env.ts";
import { readSettings, SettingsError } from "../http/settings.ts";
import { readTlsFiles, readTritonSecurity, type TlsFiles } from "../http/tls.ts";
import type { Embedder } from "./embedder.ts";
import type { EmbedMetrics } from "./metrics.ts";
import { createOnnxEmbedder, openServerModel, type ServerModel } from "./onnx-embedder.ts";

/** Maximum time that the start waits for the model's thread before it loads the rest of the server, in milliseconds. */
const maxHeadStartMs = 100;

/** Embed server that listens. */
export interface RunningEmbedServer {
  readonly app: FastifyInstance;
  readonly port: number;
  /** Resolves when the model is warm; rejects if it cannot be loaded. */
  readonly loaded: Promise<void>;
  /** Rejects when the runtime's thread exits unexpectedly; the server can then no longer embed. */
  readonly died: Promise<never>;
  /**
   * Reads the certificate and its key again, for new connections; does nothing without TLS.
   *
   * @throws {SettingsError} one line; the previous certificate stays in use
   */
  reloadTls(): Promise<void>;
  /** Drains: makes the server not ready, answers accepted requests, then closes everything. */
  stop(): Promise<void>;
}

/**
 * Listens while the model loads: the server is live at once, and ready when the model is warm. Port 0 selects a free port.
 *
 * @throws {SettingsError} one line, if a certificate, a key or the metadata file is invalid
 * @throws {Error} one line, if the port is in use
 */
export async function startEmbedServer(settings: ServerEnv): Promise<RunningEmbedServer> {
  const tls = await readTlsFiles(settings);
  const security = settings.BACKEND === "triton" ? await readTritonSecurity(settings) : undefined;
  const startedAt = performance.now();
  const { model, died } = await beginModel(settings);

  const [{ buildApp }, { createMetrics }] = await Promise.all([
    import("./app.ts"),
    import("./metrics.ts"),
  ]);
  const metrics = createMetrics();
  let embedder: Embedder | undefined;
  let weights = settings.MODEL_PRETRAINED;
  const app = buildApp({
    ...appOptions(settings, tls),
    embedder: () => embedder,
    model: () => `${settings.MODEL_NAME}/${weights}`,
    metrics,
  });
  const port = await listenOrClose(app, settings, model);

  const load = async () => {
    if (model === undefined) {
      embedder = await createGatewayEmbedder(settings, security, metrics, app);
      return;
    }
    const opened = await model;
    weights = opened.manifest?.weights ?? weights;
    embedder = createOnnxEmbedder(opened, {
      maxBatchSize: settings.MAX_BATCH_SIZE,
      maxQueueDelayMicroseconds: settings.MAX_QUEUE_DELAY_MICROSECONDS,
      observer: metrics,
    });
    logModel(app, opened, settings, (performance.now() - startedAt) / 1000);
  };
  const loaded = load();
  loaded.catch(() => {});

  return {
    app,
    port,
    loaded,
    died,
    async reloadTls() {
      const files = await readTlsFiles(settings);
      if (files !== undefined) (app.server as unknown as TlsServer).setSecureContext(files);
    },
    async stop() {
      await loaded.catch(() => {});
      await app.close();
    },
  };
}

/**
 * Starts to open the model of the backend `onnxruntime`, and resolves once its thread has begun: reading a large file takes
 * seconds, in which the rest of the server loads and becomes live.
 */
async function beginModel(settings: ServerEnv) {
  let onDeath: (error: Error) => void = () => {};
  const died = new Promise<never>((_, reject) => {
    onDeath = reject;
  });
  died.catch(() => {});
  if (settings.BACKEND === "triton") return { model: undefined, died };

  let onOpening = () => {};
  const opening = new Promise<void>((resolve) => {
    onOpening = resolve;
  });
  const model = openServerModel({
    modelPath: settings.MODEL_PATH,
    precision: settings.MODEL_PRECISION,
    intraOpThreads: settings.INTRA_OP_THREADS,
    instances: settings.MODEL_INSTANCES,
    executionProvider: settings.EXECUTION_PROVIDER,
    onOpening,
    onDeath,
  });
  model.catch(() => {});
  await Promise.race([opening, sleep(maxHeadStartMs)]);
  return { model, died };
}

function appOptions(settings: ServerEnv, tls: TlsFiles | undefined) {
  return {
    limits: {
      maxQueueSize: settings.MAX_QUEUE_SIZE,
      maxQueueBytes: settings.MAX_QUEUE_BYTES,
      maxBodyBytes: settings.MAX_BODY_BYTES,
      maxImagePixels: settings.MAX_IMAGE_PIXELS,
      maxConnections: settings.MAX_CONNECTIONS,
    },
    apiKey: settings.API_KEY,
    tls,
    preprocessing: {
      mode: settings.PREPROCESSING,
      threads: settings.PREPROCESS_THREADS,
      maxPixelsInFlight: settings.MAX_PIXELS_IN_FLIGHT,
      timeoutMs: settings.DECODE_TIMEOUT_MS,
    },
    logLevel: settings.LOG_LEVEL,
  };
}

/** Creates the embedder of a gateway, whose metrics and log follow the health of its Tritons. */
async function createGatewayEmbedder(
  settings: ServerEnv,
  security: Awaited<ReturnType<typeof readTritonSecurity>> | undefined,
  metrics: EmbedMetrics,
  app: FastifyInstance,
): Promise<Embedder> {
  // only a gateway loads gRPC, which adds 0.2 s and 10 MB to the start
  const { createTritonEmbedder } = await import("../gateway/triton-embedder.ts");
  const embedder = createTritonEmbedder({
    targets: settings.TRITON_GRPC_URLS,
    model: settings.TRITON_MODEL,
    security,
    timeoutMs: settings.TRITON_TIMEOUT_MS,
    maxBatchSize: settings.MAX_BATCH_SIZE,
    observer: {
      ...metrics,
      health(target, healthy, reason) {
        metrics.health(target, healthy, reason);
        if (reason === "") app.log.info({ target, healthy }, `Triton ${target} is in rotation`);
        else app.log.warn({ target, healthy }, `Triton ${target} is out of rotation: ${reason}`);
      },
    },
  });
  app.log.info({ tritons: settings.TRITON_GRPC_URLS, model: settings.TRITON_MODEL }, "gateway");
  return embedder;
}

function logModel(
  app: FastifyInstance,
  { path, manifest }: ServerModel,
  { MODEL_PRECISION: precision }: ServerEnv,
  seconds: number,
): void {
  const facts = { path, ...manifest, precision, seconds: Math.round(seconds * 100) / 100 };
  if (manifest?.weights === "random") {
    app.log.warn(facts, "ready; the weights are random, so embeddings are meaningless");
  } else {
    app.log.info(facts, "ready");
  }
}

async function listenOrClose(
  app: FastifyInstance,
  { HOST: host, PORT: port }: ServerEnv,
  model: Promise<ServerModel> | undefined,
): Promise<number> {
  try {
    await app.listen({ host, port, listenTextResolver: (url) => `listening on ${url}` });
  } catch (error) {
    await app.close();
    await model?.then(
      ({ session }) => session.close(),
      () => {},
    );
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

/** Handles SIGTERM and SIGINT (drain, or exit on the second one), and SIGHUP (reload the certificate). */
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
  if (settings.TLS_CERT_FILE === undefined) return;
  process.on("SIGHUP", () => {
    const { server } = state;
    server?.reloadTls().then(
      () => server.app.log.info("certificate reloaded"),
      (error: Error) => server.app.log.error(`certificate not reloaded: ${error.message}`),
    );
  });
}

function fail(message: string, code: number): never {
  process.stderr.write(`${message}\n`);
  process.exit(code);
}
