import { setTimeout as sleep } from "node:timers/promises";
import type { Server as TlsServer } from "node:tls";
import type { FastifyInstance } from "fastify";
import type { ModelPrecision, ServerEnv } from "../../contract/server-env.ts";
import { readSettings, SettingsError } from "../http/settings.ts";
import { readTlsFiles, readTritonSecurity } from "../http/tls.ts";
import type { Embedder } from "./embedder.ts";
import { createOnnxEmbedder } from "./onnx-embedder.ts";
import { openServerModel, type ServerModel } from "./server-model.ts";

/** How long the server waits for its model's thread before it loads the rest of itself, in milliseconds. */
const longestHeadStartMs = 100;

/** An embed server that listens. */
export interface RunningEmbedServer {
  readonly app: FastifyInstance;
  readonly port: number;
  /** Resolves when the model is warm; rejects when it cannot be loaded. */
  readonly loaded: Promise<void>;
  /** Rejects when the runtime dies by itself: nothing can be embedded any more. */
  readonly died: Promise<never>;
  /**
   * Read the certificate and its key again, for connections to come; nothing without TLS.
   *
   * @throws {SettingsError} one line; those that were read before stay
   */
  reloadTls(): Promise<void>;
  /** Not ready any more; what was accepted is answered; then everything is closed. */
  stop(): Promise<void>;
}

/**
 * Listen while the model loads: the server is live at once, and ready when the model is warm. Port 0 takes any free port.
 *
 * @throws {SettingsError} one line, if a certificate, a key or the metadata cannot be used
 * @throws {Error} one line, when the port is taken
 */
export async function startEmbedServer(settings: ServerEnv): Promise<RunningEmbedServer> {
  let embedder: Embedder | undefined;
  let weights = settings.MODEL_PRETRAINED;
  let reportDeath: (error: Error) => void = () => {};
  const died = new Promise<never>((_, reject) => {
    reportDeath = reject;
  });
  died.catch(() => {});

  const tls = await readTlsFiles(settings);
  const security = settings.BACKEND === "triton" ? await readTritonSecurity(settings) : undefined;
  const startedAt = performance.now();
  // begun first, and left alone until its thread has it: to load the rest of the server, meanwhile, takes as long
  let opening = () => {};
  const begun = new Promise<void>((resolve) => {
    opening = resolve;
  });
  const model =
    settings.BACKEND === "onnxruntime"
      ? openServerModel({
          modelPath: settings.MODEL_PATH,
          precision: settings.MODEL_PRECISION,
          intraOpThreads: settings.INTRA_OP_THREADS,
          instances: settings.MODEL_INSTANCES,
          executionProvider: settings.EXECUTION_PROVIDER,
          onOpening: opening,
          onDeath: reportDeath,
        })
      : undefined;
  model?.catch(() => {});
  // a file may take seconds to read: the server is live before
  if (model !== undefined) await Promise.race([begun, sleep(longestHeadStartMs)]);

  const [{ buildApp }, { createMetrics }] = await Promise.all([
    import("./app.ts"),
    import("./metrics.ts"),
  ]);
  const metrics = createMetrics();
  const app = buildApp({
    embedder: () => embedder,
    model: () => `${settings.MODEL_NAME}/${weights}`,
    metrics,
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
  });

  try {
    await listen(app, settings.HOST, settings.PORT);
  } catch (error) {
    await model?.then(
      ({ session }) => session.close(),
      () => {},
    );
    throw error;
  }
  const address = app.server.address();
  const port = typeof address === "object" && address !== null ? address.port : settings.PORT;

  const load = async () => {
    if (model === undefined) {
      // only a gateway needs gRPC, which takes 0.2 s and 10 MB of the start
      const { createTritonEmbedder } = await import("../gateway/triton-embedder.ts");
      embedder = createTritonEmbedder({
        targets: settings.TRITON_GRPC_URLS,
        model: settings.TRITON_MODEL,
        security,
        timeoutMs: settings.TRITON_TIMEOUT_MS,
        maxBatchSize: settings.MAX_BATCH_SIZE,
        observer: {
          ...metrics,
          health(target, healthy, reason) {
            metrics.health(target, healthy, reason);
            if (reason === "") app.log.info({ target, healthy }, `Triton ${target} is used`);
            else app.log.warn({ target, healthy }, `Triton ${target} is left out: ${reason}`);
          },
        },
      });
      app.log.info({ tritons: settings.TRITON_GRPC_URLS, model: settings.TRITON_MODEL }, "gateway");
      return;
    }
    const opened = await model;
    weights = opened.manifest?.weights ?? weights;
    embedder = createOnnxEmbedder(opened, {
      maxBatchSize: settings.MAX_BATCH_SIZE,
      maxQueueDelayMicroseconds: settings.MAX_QUEUE_DELAY_MICROSECONDS,
      observer: metrics,
    });
    logModel(app, opened, settings.MODEL_PRECISION, (performance.now() - startedAt) / 1000);
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

function logModel(
  app: FastifyInstance,
  { path, manifest }: ServerModel,
  precision: ModelPrecision,
  seconds: number,
): void {
  const facts = { path, ...manifest, precision, seconds: Math.round(seconds * 100) / 100 };
  if (manifest?.weights === "random") {
    app.log.warn(facts, "ready; the weights are random: embeddings mean nothing");
  } else {
    app.log.info(facts, "ready");
  }
}

async function listen(app: FastifyInstance, host: string, port: number): Promise<void> {
  try {
    await app.listen({ host, port, listenTextResolver: (url) => `listening on ${url}` });
  } catch (error) {
    await app.close();
    const { code, message } = error as { code?: string; message: string };
    throw new Error(
      code === "EADDRINUSE"
        ? `port ${port} on ${host} is in use: stop what listens there, or set PORT`
        : `cannot listen on ${host}:${port}: ${message}`,
    );
  }
}

/**
 * The program: read the settings from the environment, serve until a signal, end the process.
 *
 * Exit codes: 0 stopped in order, 1 failed, 2 wrong settings.
 */
export async function runEmbedServer(
  env: Readonly<Record<string, string | undefined>>,
): Promise<void> {
  const fail = (message: string, code: number): never => {
    process.stderr.write(`${message}\n`);
    process.exit(code);
  };
  let settings: ServerEnv;
  try {
    settings = readSettings(env);
  } catch (error) {
    return fail((error as Error).message, error instanceof SettingsError ? 2 : 1);
  }

  let server: RunningEmbedServer | undefined;
  let stopping = false;
  const onSignal = async (signal: NodeJS.Signals) => {
    // a second one is impatience; and while nothing listens there is nothing to wait for
    if (stopping || server === undefined) process.exit(stopping ? 1 : 0);
    stopping = true;
    const { app } = server;
    app.log.info({ signal }, "stopping: answering the requests that were accepted");
    setTimeout(() => {
      fail(
        `stopped after SHUTDOWN_GRACE_SECONDS (${settings.SHUTDOWN_GRACE_SECONDS}): requests were lost`,
        1,
      );
    }, settings.SHUTDOWN_GRACE_SECONDS * 1000);
    await server.stop();
    app.log.info("stopped");
    process.exit(0);
  };
  process.on("SIGTERM", onSignal);
  process.on("SIGINT", onSignal);
  if (settings.TLS_CERT_FILE !== undefined) {
    process.on("SIGHUP", () => {
      server?.reloadTls().then(
        () => server?.app.log.info("the certificate was read again"),
        (error: Error) =>
          server?.app.log.error(`the certificate stays as it was: ${error.message}`),
      );
    });
  }

  try {
    server = await startEmbedServer(settings);
    await server.loaded;
    await server.died;
  } catch (error) {
    if (error instanceof SettingsError) fail(error.message, 2);
    if (!stopping) fail(`clipstack embed server: ${(error as Error).message}`, 1);
  }
}
