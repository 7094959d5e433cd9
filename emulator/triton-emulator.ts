import {
  type Server as GrpcServer,
  logVerbosity,
  ServerCredentials,
  setLogVerbosity,
} from "@grpc/grpc-js";
import Fastify, { type FastifyInstance } from "fastify";
import { serverEnv } from "../contract/server/server-env.ts";
import {
  modelControlKeyVariable,
  type OpenTelemetrySettings,
  openTelemetryOf,
  parseTritonArgs,
  type ResolvedTritonFlags,
  requiredHeaders,
} from "../contract/triton-flags.ts";
import type { AdmissionLimits } from "../http/admission.ts";
import { requestTimeoutMs } from "../http/client-errors.ts";
import {
  type AcceptedRequests,
  arrival,
  CallCounter,
  ConnectionTracker,
  drainHttp,
  quiet,
  trackRequests,
} from "../http/drain.ts";
import { writeLog } from "../http/log-output.ts";
import { limitUnreadResponses } from "../http/open-requests.ts";
import { endTrace } from "../http/traced-requests.ts";
import { type ModelRegistry, openModelRegistry } from "./model-registry.ts";
import { OipAdmission } from "./oip-admission.ts";
import { buildOipGrpcServer } from "./oip-grpc.ts";
import { buildOipApp } from "./oip-http.ts";
import { metricsContentType, renderTritonMetrics } from "./triton-metrics.ts";

export interface TritonEmulatorOptions {
  /** Receives the log lines of Triton. */
  readonly log: (line: string) => void;
  /**
   * Bounds of the queue of all models, for which Triton has no option.
   *
   * @default - the defaults of MAX_QUEUE_SIZE and MAX_QUEUE_BYTES
   */
  readonly limits?: AdmissionLimits;
  /**
   * Key of the model control API.
   *
   * @default - an API that requires the key is closed
   */
  readonly controlKey?: string;
}

/** Running Triton emulator: same model repository, flags and ports as Triton. */
export interface RunningTritonEmulator {
  readonly ports: {
    readonly http: number;
    readonly grpc: number;
    /** `undefined` with `--allow-metrics=false`. */
    readonly metrics: number | undefined;
  };
  /**
   * Drains: makes the server not ready, answers accepted requests, then closes everything.
   *
   * @throws {Error} if draining took longer than `--exit-timeout-secs`; everything is closed nevertheless
   */
  stop(): Promise<void>;
}

/** Flags of a server on free ports of 127.0.0.1. */
export function localFlags(repository: string, args: readonly string[] = []): ResolvedTritonFlags {
  const flags = parseTritonArgs([
    `--model-repository=${repository}`,
    ...["http", "grpc", "metrics"].map((service) => `--${service}-address=127.0.0.1`),
    ...args,
  ]);
  return { ...flags, "http-port": 0, "grpc-port": 0, "metrics-port": 0 };
}

/**
 * Loads the models, then listens. Port 0 selects a free port.
 *
 * @throws {Error} one line: the model and its error, or the port in use
 */
export async function startTritonEmulator(
  flags: ResolvedTritonFlags,
  { log, limits, controlKey }: TritonEmulatorOptions,
): Promise<RunningTritonEmulator> {
  if (flags["model-control-mode"] === "poll") {
    throw new Error("--model-control-mode must be none or explicit with this server, got 'poll'");
  }
  const registry = await openModelRegistry(flags, log);
  const grpcCalls = new CallCounter();
  const openTelemetry = openTelemetryOf(flags);
  const endTracing = openTelemetry && (await startTracing(openTelemetry, log));
  const common = {
    log,
    admission: new OipAdmission(registry, limits),
    maxInputBytes: flags["http-max-input-size"],
    tracing: openTelemetry !== undefined,
  };
  const grpc = buildOipGrpcServer(registry, {
    ...common,
    accepted: grpcCalls,
    restricted: requiredHeaders(flags, "grpc-restricted-protocol", controlKey),
  });
  const http = buildOipApp(registry, {
    ...common,
    restricted: requiredHeaders(flags, "http-restricted-api", controlKey),
  });
  const httpRequests = trackRequests(http, (request, _reply, status) =>
    endTrace(request, status, undefined),
  );
  const metrics = buildMetricsApp(registry);
  let grpcConnections: ConnectionTracker | undefined;
  let stopped: Promise<void> | undefined;
  const close = async () => {
    await Promise.all([
      drainHttp(http, httpRequests, flags["exit-timeout-secs"] * 1000),
      shutdown(grpc, grpcCalls, grpcConnections),
    ]);
    await http.close();
    await registry.close();
    await metrics.close();
    await endTracing?.();
  };

  try {
    const grpcPort = await bindGrpc(grpc, flags["grpc-address"], flags["grpc-port"]);
    grpcConnections = new ConnectionTracker(grpcPort);
    log(`Started GRPCInferenceService at ${flags["grpc-address"]}:${grpcPort}`);
    const httpPorts = await listenHttp({ http, metrics }, flags, log);
    return {
      ports: { grpc: grpcPort, ...httpPorts },
      stop: () => {
        const parts = { registry, grpc, http, metrics, close };
        stopped ??= stopWithin(flags["exit-timeout-secs"], parts);
        return stopped;
      },
    };
  } catch (error) {
    grpc.forceShutdown();
    await close();
    throw error;
  }
}

/**
 * Reads the bounds of the queue from environment variables, because Triton would reject additional options.
 *
 * @throws {Error} one line, naming the variable, the rule and the value
 */
export function limitsFromEnv(env: Readonly<Record<string, string | undefined>>): AdmissionLimits {
  const limit = (name: "MAX_QUEUE_SIZE" | "MAX_QUEUE_BYTES") => {
    const result = serverEnv.shape[name].safeParse(env[name] || undefined);
    if (result.success) return result.data;
    throw new Error(`${name}: ${result.error.issues[0]?.message}, got '${env[name]}'`);
  };
  return { maxQueueSize: limit("MAX_QUEUE_SIZE"), maxQueueBytes: limit("MAX_QUEUE_BYTES") };
}

/**
 * Runs the Triton emulator as the process: reads the command line, serves until a signal, then exits.
 *
 * @param args - Arguments without the program's name.
 * @param env - For {@link limitsFromEnv} and the key of the model control API.
 */
export async function runTritonEmulator(
  args: readonly string[],
  env: Readonly<Record<string, string | undefined>> = process.env,
): Promise<void> {
  let flags: ResolvedTritonFlags;
  let limits: AdmissionLimits;
  try {
    flags = parseTritonArgs(args);
    limits = limitsFromEnv(env);
  } catch (error) {
    writeLog(2, `tritonserver: ${(error as Error).message}\n`);
    process.exit(2);
  }
  const log = (line: string) => writeLog(2, `${stamp(new Date())}] ${line}\n`);

  // its messages repeat those of the errors
  setLogVerbosity(logVerbosity.NONE);

  let server: RunningTritonEmulator | undefined;
  let signals = 0;
  const onSignal = async (signal: NodeJS.Signals) => {
    signals += 1;
    // the second signal forces the exit; while models load there is nothing to drain
    if (signals > 1 || server === undefined) process.exit(signals > 1 ? 1 : 0);
    log(`Received ${signal}, draining accepted requests`);
    try {
      await server.stop();
      log("Stopped");
      process.exit(0);
    } catch (error) {
      writeLog(2, `error: ${(error as Error).message}\n`);
      process.exit(1);
    }
  };
  for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"] as const) process.on(signal, onSignal);

  try {
    server = await startTritonEmulator(flags, {
      log,
      limits,
      controlKey: env[modelControlKeyVariable],
    });
  } catch (error) {
    writeLog(2, `error: creating server: ${(error as Error).message}\n`);
    process.exit(1);
  }
}

async function startTracing(
  { url, service, rate }: OpenTelemetrySettings,
  warn: (line: string) => void,
) {
  const { startTraceExport } = await import("../http/trace-export.ts");
  return await startTraceExport({
    url,
    protocol: "http/protobuf",
    serviceName: service,
    sampler: "parentbased_traceidratio",
    ratio: rate === 0 ? 0 : 1 / rate,
    warn,
  });
}

function buildMetricsApp(registry: ModelRegistry): FastifyInstance {
  const app = Fastify({ forceCloseConnections: true, requestTimeout: requestTimeoutMs });
  limitUnreadResponses(app);
  app.get("/metrics", async (_request, reply) =>
    reply.header("content-type", metricsContentType).send(await renderTritonMetrics(registry)),
  );
  app.setNotFoundHandler((_request, reply) => reply.code(404).send({ error: "Not Found" }));
  return app;
}

interface HttpServers {
  readonly http: FastifyInstance;
  readonly metrics: FastifyInstance;
}

async function listenHttp(
  { http, metrics }: HttpServers,
  flags: ResolvedTritonFlags,
  log: TritonEmulatorOptions["log"],
): Promise<Omit<RunningTritonEmulator["ports"], "grpc">> {
  const port = await listen(http, "HTTP", flags["http-address"], flags["http-port"]);
  log(`Started HTTPService at ${flags["http-address"]}:${port}`);
  if (!flags["allow-metrics"]) return { http: port, metrics: undefined };
  const host = flags["metrics-address"];
  const metricsPort = await listen(metrics, "Metrics", host, flags["metrics-port"]);
  log(`Started Metrics Service at ${host}:${metricsPort}`);
  return { http: port, metrics: metricsPort };
}

async function listen(
  app: FastifyInstance,
  service: string,
  host: string,
  port: number,
): Promise<number> {
  try {
    await app.listen({ host, port });
  } catch (error) {
    throw portError(service, host, port, (error as Error).message);
  }
  const address = app.server.address();
  return typeof address === "object" && address !== null ? address.port : port;
}

function bindGrpc(server: GrpcServer, host: string, port: number): Promise<number> {
  const authority = host.includes(":") ? `[${host}]` : host;
  return new Promise((resolve, reject) => {
    server.bindAsync(`${authority}:${port}`, ServerCredentials.createInsecure(), (error, bound) => {
      if (error === null) resolve(bound);
      else reject(portError("GRPC", host, port, error.message));
    });
  });
}

function portError(service: string, host: string, port: number, reason: string): Error {
  return new Error(
    /EADDRINUSE/.test(reason)
      ? `failed to start ${service} service: Socket '${host}:${port}' already in use`
      : `failed to start ${service} service at ${host}:${port}: ${reason}`,
  );
}

/** Closes idle connections and finishes calls in flight; a call that stops arriving is aborted. */
async function shutdown(
  server: GrpcServer,
  calls: AcceptedRequests,
  connections?: ConnectionTracker,
): Promise<void> {
  let open = true;
  const closed = new Promise<void>((resolve) => server.tryShutdown(() => resolve())).then(() => {
    open = false;
  });
  await quiet();
  await calls.answered();
  // the last responses are being sent, or calls are still arriving
  await arrival(() => (open ? connections?.bytesRead : undefined));
  await calls.answered();
  await Promise.race([closed, quiet()]);
  connections?.stop();
  server.forceShutdown();
}

interface EmulatorParts extends HttpServers {
  readonly grpc: GrpcServer;
  readonly registry: ModelRegistry;
  close(): Promise<void>;
}

async function stopWithin(seconds: number, parts: EmulatorParts): Promise<void> {
  const { registry, grpc, http, metrics, close } = parts;
  registry.beginExit();
  let timer: NodeJS.Timeout | undefined;
  const expired = new Promise<"expired">((resolve) => {
    timer = setTimeout(() => resolve("expired"), seconds * 1000);
  });
  const outcome = await Promise.race([close().then(() => "closed" as const), expired]);
  clearTimeout(timer);
  if (outcome === "closed") return;
  grpc.forceShutdown();
  http.server.closeAllConnections();
  metrics.server.closeAllConnections();
  throw new Error("Exit timeout expired. Exiting immediately.");
}

/** Prefix of a log line in Triton's format: `I1121 10:52:27.123456 42`. */
function stamp(now: Date): string {
  const two = (value: number) => String(value).padStart(2, "0");
  const day = `${two(now.getMonth() + 1)}${two(now.getDate())}`;
  const time = [now.getHours(), now.getMinutes(), now.getSeconds()].map(two).join(":");
  return `I${day} ${time}.${String(now.getMilliseconds()).padStart(3, "0")}000 ${process.pid}`;
}
