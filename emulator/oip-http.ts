import Fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest } from "fastify";
import { z } from "zod";
import { parseRequestJson } from "../client/triton/parse-json.ts";
import { WireError } from "../client/triton/wire.ts";
import {
  decodeRawRequest,
  encodeInferResponse,
  type HttpBody,
  headerLengthField,
} from "../client/triton/wire-http.ts";
import { oipPaths } from "../contract/oip-paths.ts";
import { type ControlApi, controlApis, type RestrictedApis } from "../contract/triton-flags.ts";
import { headersTimeoutMs, requestTimeoutMs, respondToClientError } from "../http/client-errors.ts";
import { limitUnreadResponses } from "../http/open-requests.ts";
import { beginTraces } from "../http/traced-requests.ts";
import { InferThread } from "./infer-thread.ts";
import type { ModelRegistry } from "./model-registry.ts";
import { OipAdmission } from "./oip-admission.ts";
import { bodyOf, RequestBodies, sendBody, singleHeader } from "./oip-body.ts";
import { errorWithLocation, invalidArgument, OipError, type OipErrorCode } from "./oip-error.ts";
import { modelMetadata, modelStatistics, serverMetadata } from "./oip-metadata.ts";

export interface OipAppOptions {
  /** Maximum request body in bytes, before and after decompression: `--http-max-input-size`. */
  readonly maxInputBytes: number;
  /**
   * Bounds the queue. Shared with the gRPC server.
   *
   * @default - a new one with default limits
   */
  readonly admission?: OipAdmission;
  /** Receives internal errors; their details are not sent to the client. */
  readonly log?: (line: string) => void;
  /**
   * Headers that the restricted APIs require.
   *
   * @default - none
   */
  readonly restricted?: RestrictedApis;
  /** Whether requests that continue a trace are traced. @default false */
  readonly tracing?: boolean;
}

/** Builds the Open Inference Protocol server over HTTP without listening; tests call `inject()`. */
export function buildOipApp(registry: ModelRegistry, options: OipAppOptions): FastifyInstance {
  const { maxInputBytes, log = () => {} } = options;
  const { admission = new OipAdmission(registry) } = options;
  const app = Fastify({
    http: { headersTimeout: headersTimeoutMs, connectionsCheckingInterval: timeoutCheckMs },
    requestTimeout: requestTimeoutMs,
    routerOptions: { maxParamLength: 1024 },
    // requests on open connections are still served while the server stops
    return503OnClosing: false,
    forceCloseConnections: "idle",
    clientErrorHandler: (error, socket) =>
      respondToClientError(error, socket, ({ message }) => ({ error: message })),
    frameworkErrors: (error: Error, _request: FastifyRequest, reply: FastifyReply) => {
      reply.code(400).type("application/json").send({ error: error.message });
    },
  });
  limitUnreadResponses(app);
  if (options.tracing === true) beginTraces(app);
  const thread = new InferThread();
  app.addHook("onClose", () => thread.close());
  const bodies = new RequestBodies(app, { admission, maxInputBytes });
  registerResponses(app, registry, admission, log);
  restrictApis(app, options.restricted ?? {});
  registerMetadataRoutes(app, registry);
  registerInferRoutes(app, { registry, admission, bodies, thread });
  registerControlRoutes(app, registry);
  return app;
}

function registerResponses(
  app: FastifyInstance,
  registry: ModelRegistry,
  admission: OipAdmission,
  log: (line: string) => void,
): void {
  app.addHook("onSend", async (_request, reply) => {
    // Triton sends no charset: JSON is UTF-8
    if (String(reply.getHeader("content-type")).startsWith("application/json")) {
      reply.header("content-type", "application/json");
    }
    // while the server drains, each connection is closed after its response
    if (registry.exit.aborted) reply.header("connection", "close");
  });
  app.setErrorHandler((error: Error & { code?: string; statusCode?: number }, _request, reply) => {
    const { status, message } = errorResponse(error);
    if (status === 429) reply.header("retry-after", admission.retryAfterSeconds);
    // closes the connection, so that the rest of a slow body is not read
    if (status === 408) reply.header("connection", "close");
    if (status === 500 && !(error instanceof OipError)) {
      log(`internal error: ${errorWithLocation(error)}`);
    }
    return reply.code(status).send({ error: message });
  });
  app.setNotFoundHandler((_request, reply) => reply.code(404).send({ error: "Not Found" }));
}

/** Registers a route of a model, with and without a version. */
function registerModelRoute(
  app: FastifyInstance,
  method: "GET" | "POST",
  path: string,
  handler: Handler,
  onRequest?: RequestHook,
): void {
  for (const url of [
    `/v2/models/:model${path}`,
    `/v2/models/:model/versions/:version(^\\d+$)${path}`,
  ]) {
    app.route({ method, url, handler, onRequest });
  }
}

function registerMetadataRoutes(app: FastifyInstance, registry: ModelRegistry): void {
  app.get("/v2", () => serverMetadata);
  app.get(oipPaths.live, (_request, reply) => reply.code(200).send());
  app.get(oipPaths.ready, (_request, reply) => reply.code(registry.ready ? 200 : 400).send());
  registerModelRoute(app, "GET", "/ready", (request, reply) => {
    const { model, version } = modelOf(request);
    if (registry.modelReady(model, version)) return reply.code(200).send();
    throw invalidArgument("Model version not ready");
  });
  registerModelRoute(app, "GET", "", (request) => {
    const { model: name, version } = modelOf(request);
    const model = registry.model(name, version);
    return modelMetadata(
      model,
      version === ""
        ? registry.models.filter((other) => other.name === name).map((other) => other.version)
        : [model.version],
    );
  });
  registerModelRoute(app, "GET", "/config", (request) => {
    const { model, version } = modelOf(request);
    return registry.model(model, version).config;
  });
  registerModelRoute(app, "GET", "/stats", (request) => {
    const { model, version } = modelOf(request);
    return { model_stats: registry.statistics(model, version).map(modelStatistics) };
  });
  app.get("/v2/models/stats", () => ({
    model_stats: registry.statistics("").map(modelStatistics),
  }));
}

interface InferRoutesOptions {
  readonly registry: ModelRegistry;
  readonly admission: OipAdmission;
  readonly bodies: RequestBodies;
  readonly thread: InferThread;
}

function registerInferRoutes(
  app: FastifyInstance,
  { registry, admission, bodies, thread }: InferRoutesOptions,
): void {
  const admit = async (request: FastifyRequest, reply: FastifyReply) => {
    const { model, version } = modelOf(request);
    bodies.admit(registry.model(model, version), request, reply);
  };
  const infer: Handler = async (request, reply) => {
    const { body, admitted } = await bodies.infer(request, reply);
    const { model, version } = modelOf(request);
    const headerLength = singleHeader(request, headerLengthField);
    // the model is looked up again: it may have been reloaded while the body arrived
    const current = () => registry.model(model, version);
    const inferRequest =
      headerLength === "0"
        ? decodeRawRequest(body, current().inputs, current().config.max_batch_size > 0, model)
        : await thread.parse(body, headerLength, model);
    const served = current();
    const items = served.itemCount(inferRequest.inputs.map(({ shape }) => shape));
    admission.checkCapacity(served, admitted.reservation, items);
    const { id, outputs } = await served.infer(inferRequest, admitted.signal);
    admission.recordCompleted(items);
    const response = encodeResponse(() =>
      encodeInferResponse({ id, modelName: served.name, modelVersion: served.version }, outputs),
    );
    return sendBody(request, reply, response);
  };
  registerModelRoute(app, "POST", "/infer", infer, admit);
}

/** Rejects requests to restricted APIs without the required header, also to those that this server does not have. */
function restrictApis(app: FastifyInstance, restricted: RestrictedApis): void {
  app.addHook("onRequest", async (request, reply) => {
    const path = request.url.split("?", 1)[0] ?? "";
    const api = controlApis.find((each) => pathsOf[each].test(path));
    const header = api && restricted[api];
    if (header === undefined || request.headers[header.name] === header.value) return;
    const error = `This API is restricted, expecting header '${header.name}'`;
    await reply.code(403).send({ error });
  });
}

const pathsOf = {
  "shared-memory": /^\/v2\/(?:system|cuda)sharedmemory\//,
  trace: /^\/v2\/(?:models\/[^/]+\/)?trace\/setting$/,
  logging: /^\/v2\/logging$/,
  "model-repository": /^\/v2\/repository\//,
} as const satisfies Record<ControlApi, RegExp>;

function registerControlRoutes(app: FastifyInstance, registry: ModelRegistry): void {
  app.post("/v2/repository/index", async (request) => {
    const { ready } = parseControl(indexRequest, bodyOf(request));
    return await registry.index({ readyOnly: ready ?? false });
  });
  app.post("/v2/repository/models/:model/load", async (request, reply) => {
    const { model } = modelOf(request);
    const { parameters } = parseControl(loadRequest, bodyOf(request));
    const file = Object.keys(parameters ?? {}).find((name) => name !== "config");
    if (file !== undefined) {
      throw new OipError("unsupported", `load parameter '${file}' is not supported by this server`);
    }
    await registry.load(model, parameters?.config);
    return reply.code(200).send();
  });
  app.post("/v2/repository/models/:model/unload", async (request, reply) => {
    const { parameters } = parseControl(unloadRequest, bodyOf(request));
    const withMembers = parameters?.unload_dependents ?? false;
    await registry.unload(modelOf(request).model, { withMembers });
    return reply.code(200).send();
  });
}

type Handler = (request: FastifyRequest, reply: FastifyReply) => unknown;
/** Hook that runs before the body is read. */
type RequestHook = (request: FastifyRequest, reply: FastifyReply) => Promise<void>;

/** Interval at which Node checks for requests that arrive too slowly, in milliseconds. */
const timeoutCheckMs = 5_000;

const statusOf: Readonly<Record<OipErrorCode, number>> = {
  "invalid-argument": 400,
  cancelled: 400,
  "not-found": 404,
  // Triton sends 501, but requesting an unsupported feature is an error of the client
  unsupported: 400,
  "too-slow": 408,
  overloaded: 429,
  internal: 500,
  unavailable: 503,
};

function errorResponse(error: Error & { code?: string; statusCode?: number }): {
  readonly status: number;
  readonly message: string;
} {
  if (error instanceof OipError) return { status: statusOf[error.code], message: error.message };
  if (error instanceof WireError) {
    return { status: error.code === "too_large" ? 413 : 400, message: error.message };
  }
  const status = error.statusCode ?? 500;
  // a status below 500 is set by Fastify for invalid requests; the message of any other error is
  // not sent to clients
  return status < 500
    ? { status: 400, message: error.message }
    : { status: 500, message: "internal error" };
}

function modelOf(request: FastifyRequest): { model: string; version: string } {
  const { model = "", version = "" } = request.params as { model?: string; version?: string };
  return { model, version };
}

/** Rejects outputs that JSON cannot represent, such as NaN: the client can request binary data instead. */
function encodeResponse(encode: () => HttpBody): HttpBody {
  try {
    return encode();
  } catch (error) {
    if (error instanceof WireError) {
      throw invalidArgument(`failed to write output ${error.message}`, error);
    }
    throw error;
  }
}

const indexRequest = z.object({ ready: z.boolean().optional() });
const unloadRequest = z.object({
  parameters: z.object({ unload_dependents: z.boolean().optional() }).optional(),
});
const loadRequest = z.object({ parameters: z.record(z.string(), z.string()).optional() });

function parseControl<T>(schema: z.ZodType<T>, body: Buffer): T {
  const result = schema.safeParse(body.byteLength > 0 ? parseRequestJson(body) : {});
  if (result.success) return result.data;
  const [issue] = result.error.issues;
  throw invalidArgument(`Invalid value for '${issue?.path.join(".")}': ${issue?.message}`);
}
