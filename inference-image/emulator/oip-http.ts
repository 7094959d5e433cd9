import Fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest } from "fastify";
import { z } from "zod";
import { WireError } from "../../client/triton/wire.ts";
import {
  encodeInferResponse,
  type HttpBody,
  headerLengthField,
} from "../../client/triton/wire-http.ts";
import { oipPaths } from "../../contract/oip-paths.ts";
import type { RequiredHeader } from "../../contract/triton-flags.ts";
import { headersTimeoutMs, requestTimeoutMs, respondToClientError } from "../http/client-errors.ts";
import { JsonThread } from "../http/json-thread.ts";
import type { ModelRegistry } from "./model-registry.ts";
import { OipAdmission } from "./oip-admission.ts";
import { bodyOf, RequestBodies, sendBody, singleHeader } from "./oip-body.ts";
import { OipError, type OipErrorCode, whereOf } from "./oip-error.ts";
import { modelMetadata, modelStatistics, serverMetadata } from "./oip-metadata.ts";

export interface OipAppOptions {
  /** Largest request body, before and after decompression, in bytes: `--http-max-input-size`. */
  readonly maxInputBytes: number;
  /**
   * Bounds what waits. The gRPC server shares it.
   *
   * @default - one with the default limits
   */
  readonly admission?: OipAdmission;
  /** Told of what went wrong on our side; the client only hears that it did. */
  readonly log?: (line: string) => void;
  /**
   * Header that the model control API requires.
   *
   * @default - none
   */
  readonly modelControl?: RequiredHeader;
}

/** Open Inference Protocol over HTTP. It does not listen: the caller does, and tests call `inject()`. */
export function buildOipApp(registry: ModelRegistry, options: OipAppOptions): FastifyInstance {
  const { maxInputBytes, modelControl, log = () => {} } = options;
  const { admission = new OipAdmission(registry) } = options;
  const app = Fastify({
    http: { headersTimeout: headersTimeoutMs, connectionsCheckingInterval: timeoutCheckMs },
    requestTimeout: requestTimeoutMs,
    routerOptions: { maxParamLength: 1024 },
    // a request on a connection that is open while the server stops is still answered
    return503OnClosing: false,
    forceCloseConnections: "idle",
    clientErrorHandler: (error, socket) =>
      respondToClientError(error, socket, ({ message }) => ({ error: message })),
    frameworkErrors: (error: Error, _request: FastifyRequest, reply: FastifyReply) => {
      reply.code(400).type("application/json").send({ error: error.message });
    },
  });
  const json = new JsonThread();
  app.addHook("onClose", () => json.close());
  const bodies = new RequestBodies(app, { admission, maxInputBytes });

  app.addHook("onSend", async (_request, reply) => {
    // Triton names no charset: JSON is UTF-8
    if (String(reply.getHeader("content-type")).startsWith("application/json")) {
      reply.header("content-type", "application/json");
    }
    // on the way out a connection ends with its answer
    if (registry.exit.aborted) reply.header("connection", "close");
  });
  app.setErrorHandler((error: Error & { code?: string; statusCode?: number }, _request, reply) => {
    const { status, message } = answerOf(error);
    if (status === 429) reply.header("retry-after", admission.retryAfterSeconds);
    // the rest of a slow body is nothing to wait for
    if (status === 408) reply.header("connection", "close");
    if (status === 500 && !(error instanceof OipError)) log(`internal error: ${whereOf(error)}`);
    return reply.code(status).send({ error: message });
  });
  app.setNotFoundHandler((_request, reply) => reply.code(404).send({ error: "Not Found" }));

  const route = (method: "GET" | "POST", url: string, handler: Handler, admit?: Admit) => {
    app.route({ method, url, handler, onRequest: admit });
  };
  const forModel = (method: "GET" | "POST", rest: string, handler: Handler, admit?: Admit) => {
    route(method, `/v2/models/:model${rest}`, handler, admit);
    route(method, `/v2/models/:model/versions/:version(^\\d+$)${rest}`, handler, admit);
  };

  route("GET", "/v2", () => serverMetadata);
  route("GET", oipPaths.live, (_request, reply) => reply.code(200).send());
  route("GET", oipPaths.ready, (_request, reply) => reply.code(registry.ready ? 200 : 400).send());

  forModel("GET", "/ready", (request, reply) => {
    const { model, version } = modelOf(request);
    if (registry.modelReady(model, version)) return reply.code(200).send();
    throw new OipError("invalid-argument", "Model version not ready");
  });
  forModel("GET", "", (request) => {
    const { model: name, version } = modelOf(request);
    const model = registry.model(name, version);
    return modelMetadata(
      model,
      version === ""
        ? registry.models.filter((other) => other.name === name).map((other) => other.version)
        : [model.version],
    );
  });
  forModel("GET", "/config", (request) => {
    const { model, version } = modelOf(request);
    return registry.model(model, version).config;
  });
  forModel("GET", "/stats", (request) => {
    const { model, version } = modelOf(request);
    return { model_stats: registry.statistics(model, version).map(modelStatistics) };
  });
  route("GET", "/v2/models/stats", () => ({
    model_stats: registry.statistics("").map(modelStatistics),
  }));

  const admit = async (request: FastifyRequest, reply: FastifyReply) => {
    const { model, version } = modelOf(request);
    bodies.admit(registry.model(model, version), request, reply);
  };
  const infer: Handler = async (request, reply) => {
    const { body, accepted } = await bodies.infer(request, reply);
    const { model, version } = modelOf(request);
    const headerLength = singleHeader(request, headerLengthField);
    const inferRequest = await json.inferRequest(body, headerLength, model);
    // as it is now: it may have been loaded anew while the body arrived
    const served = registry.model(model, version);
    const items = served.itemCount(inferRequest.inputs.map(({ shape }) => shape));
    admission.checkCapacity(served, accepted.place, items);
    const answer = await served.infer(inferRequest, accepted.signal);
    admission.recordCompleted(items);
    const response = encodeAnswer(() =>
      encodeInferResponse(
        { id: answer.id, modelName: served.name, modelVersion: served.version },
        answer.outputs,
      ),
    );
    return sendBody(request, reply, response);
  };
  forModel("POST", "/infer", infer, admit);

  const admitControl = async (request: FastifyRequest, reply: FastifyReply) => {
    if (modelControl === undefined) return;
    if (request.headers[modelControl.name] === modelControl.value) return;
    const error = `This API is restricted, expecting header '${modelControl.name}'`;
    await reply.code(403).send({ error });
  };
  const control = (path: string, handler: Handler) =>
    route("POST", `/v2/repository/${path}`, handler, admitControl);
  control("index", async (request) => {
    const { ready } = parseControl(indexRequest, bodyOf(request));
    return await registry.index({ readyOnly: ready ?? false });
  });
  control("models/:model/load", async (request, reply) => {
    const { model } = modelOf(request);
    const { parameters } = parseControl(loadRequest, bodyOf(request));
    const file = Object.keys(parameters ?? {}).find((name) => name !== "config");
    if (file !== undefined) {
      throw new OipError("unsupported", `load parameter '${file}' is not supported by this server`);
    }
    await registry.load(model, parameters?.config);
    return reply.code(200).send();
  });
  control("models/:model/unload", async (request, reply) => {
    await registry.unload(modelOf(request).model);
    return reply.code(200).send();
  });

  return app;
}

type Handler = (request: FastifyRequest, reply: FastifyReply) => unknown;
/** Asked before the body is read. */
type Admit = (request: FastifyRequest, reply: FastifyReply) => Promise<void>;

/** How often Node looks for requests that arrive too slowly, in milliseconds. */
const timeoutCheckMs = 5_000;

const statusOf: Readonly<Record<OipErrorCode, number>> = {
  "invalid-argument": 400,
  cancelled: 400,
  "not-found": 404,
  // Triton says 501; but a client that asks for what is not offered has made a mistake, and the server has not
  unsupported: 400,
  "too-slow": 408,
  overloaded: 429,
  internal: 500,
  unavailable: 503,
};

function answerOf(error: Error & { code?: string; statusCode?: number }): {
  readonly status: number;
  readonly message: string;
} {
  if (error instanceof OipError) return { status: statusOf[error.code], message: error.message };
  if (error instanceof WireError) {
    return { status: error.code === "too_large" ? 413 : 400, message: error.message };
  }
  const status = error.statusCode ?? 500;
  // what Fastify refuses is the client's mistake; anything else is ours, and none of its business
  return status < 500
    ? { status: 400, message: error.message }
    : { status: 500, message: "internal error" };
}

function modelOf(request: FastifyRequest): { model: string; version: string } {
  const { model = "", version = "" } = request.params as { model?: string; version?: string };
  return { model, version };
}

/** Outputs that have no form in JSON, such as NaN for pixels that are NaN: the client can ask for their bytes. */
function encodeAnswer(encode: () => HttpBody): HttpBody {
  try {
    return encode();
  } catch (error) {
    if (error instanceof WireError) {
      throw new OipError("invalid-argument", `failed to write output ${error.message}`, {
        cause: error,
      });
    }
    throw error;
  }
}

const indexRequest = z.object({ ready: z.boolean().optional() });
const loadRequest = z.object({ parameters: z.record(z.string(), z.string()).optional() });

function parseControl<T>(schema: z.ZodType<T>, body: Buffer): T {
  let value: unknown = {};
  try {
    if (body.byteLength > 0) value = JSON.parse(body.toString("utf8"));
  } catch (error) {
    throw new OipError("invalid-argument", `failed to parse JSON: ${(error as Error).message}`, {
      cause: error,
    });
  }
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const [issue] = result.error.issues;
  throw new OipError(
    "invalid-argument",
    `Invalid value for '${issue?.path.join(".")}': ${issue?.message}`,
  );
}
