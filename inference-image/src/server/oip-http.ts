import { promisify } from "node:util";
import { deflate, gunzip, gzip, inflate } from "node:zlib";
import Fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest } from "fastify";
import { z } from "zod";
import { oipPaths } from "../contract/oip-paths.ts";
import { WireError } from "../triton/wire.ts";
import {
  decodeInferRequest,
  encodeInferResponse,
  type HttpBody,
  headerLengthField,
} from "../triton/wire-http.ts";
import type { ModelRegistry } from "./model-registry.ts";
import { OipError, type OipErrorCode, whereOf } from "./oip-error.ts";
import { modelMetadata, modelStatistics, serverMetadata } from "./oip-metadata.ts";
import { requestTimeoutMs } from "./request-timeout.ts";

export interface OipAppOptions {
  /** Largest request body, before and after decompression, in bytes: `--http-max-input-size`. */
  readonly maxInputBytes: number;
  /** Told of what went wrong on our side; the client only hears that it did. */
  readonly log?: (line: string) => void;
}

/** Open Inference Protocol over HTTP. It does not listen: the caller does, and tests call `inject()`. */
export function buildOipApp(registry: ModelRegistry, options: OipAppOptions): FastifyInstance {
  const { maxInputBytes, log = () => {} } = options;
  const app = Fastify({
    bodyLimit: maxInputBytes,
    requestTimeout: requestTimeoutMs,
    routerOptions: { maxParamLength: 1024 },
    // a request on a connection that is open while the server stops is still answered
    return503OnClosing: false,
    forceCloseConnections: "idle",
  });
  app.removeAllContentTypeParsers();
  app.addContentTypeParser("*", { parseAs: "buffer" }, (_request, body, done) => done(null, body));

  app.addHook("onSend", async (_request, reply) => {
    // Triton names no charset: JSON is UTF-8
    if (String(reply.getHeader("content-type")).startsWith("application/json")) {
      reply.header("content-type", "application/json");
    }
    // on the way out a connection ends with its answer
    if (registry.exit.aborted) reply.header("connection", "close");
  });
  app.setErrorHandler((error: Error & { code?: string; statusCode?: number }, _request, reply) => {
    const { status, message } = answerOf(error, maxInputBytes);
    if (status === 500 && !(error instanceof OipError)) log(`internal error: ${whereOf(error)}`);
    return reply.code(status).send({ error: message });
  });
  app.setNotFoundHandler((_request, reply) => reply.code(404).send({ error: "Not Found" }));

  const route = (method: "GET" | "POST", url: string, handler: Handler) => {
    app.route({ method, url, handler });
    const others = methods.filter(
      (other) => other !== method && (method !== "GET" || other !== "HEAD"),
    );
    app.route({
      method: others,
      url,
      handler: (_request, reply) => reply.code(405).send({ error: "Method Not Allowed" }),
    });
  };
  const forModel = (method: "GET" | "POST", rest: string, handler: Handler) => {
    route(method, `/v2/models/:model${rest}`, handler);
    route(method, `/v2/models/:model/versions/:version(^\\d+$)${rest}`, handler);
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

  forModel("POST", "/infer", async (request, reply) => {
    const { model, version } = modelOf(request);
    const served = registry.model(model, version);
    const body = await decompressed(bodyOf(request), request, reply, maxInputBytes);
    const inferRequest = decodeInferRequest(body, singleHeader(request, headerLengthField), model);
    const answer = await served.infer(inferRequest, abandoned(request, reply));
    const response = encodeAnswer(() =>
      encodeInferResponse(
        { id: answer.id, modelName: served.name, modelVersion: served.version },
        answer.outputs,
      ),
    );
    return sendBody(request, reply, response);
  });

  route("POST", "/v2/repository/index", async (request) => {
    const { ready } = parseControl(indexRequest, bodyOf(request));
    return await registry.index({ readyOnly: ready ?? false });
  });
  route("POST", "/v2/repository/models/:model/load", async (request, reply) => {
    const { model } = modelOf(request);
    const { parameters } = parseControl(loadRequest, bodyOf(request));
    const file = Object.keys(parameters ?? {}).find((name) => name !== "config");
    if (file !== undefined) {
      throw new OipError("unsupported", `load parameter '${file}' is not supported by this server`);
    }
    await registry.load(model, parameters?.config);
    return reply.code(200).send();
  });
  route("POST", "/v2/repository/models/:model/unload", async (request, reply) => {
    await registry.unload(modelOf(request).model);
    return reply.code(200).send();
  });

  return app;
}

type Handler = (request: FastifyRequest, reply: FastifyReply) => unknown;

const methods = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"] as const;

const statusOf: Readonly<Record<OipErrorCode, number>> = {
  "invalid-argument": 400,
  cancelled: 400,
  "not-found": 404,
  internal: 500,
  unsupported: 501,
  unavailable: 503,
};

function answerOf(
  error: Error & { code?: string; statusCode?: number },
  maxInputBytes: number,
): { status: number; message: string } {
  if (error instanceof OipError) return { status: statusOf[error.code], message: error.message };
  if (error instanceof WireError) {
    return { status: error.code === "unsupported" ? 501 : 400, message: error.message };
  }
  if (error.code === "FST_ERR_CTP_BODY_TOO_LARGE") {
    return {
      status: 400,
      message: `request body exceeds the maximum allowed input size of ${maxInputBytes} bytes. Use --http-max-input-size to increase the limit.`,
    };
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

function bodyOf(request: FastifyRequest): Buffer {
  return Buffer.isBuffer(request.body) ? request.body : Buffer.alloc(0);
}

function singleHeader(request: FastifyRequest, name: string): string | undefined {
  const value = request.headers[name];
  return Array.isArray(value) ? value[0] : value;
}

/** Goes off when the client is gone before it was answered. */
function abandoned(request: FastifyRequest, reply: FastifyReply): AbortSignal {
  const controller = new AbortController();
  reply.raw.once("close", () => {
    if (!reply.raw.writableFinished) controller.abort();
  });
  if (request.raw.destroyed && request.raw.errored) controller.abort();
  return controller.signal;
}

const decompressors = { gzip: promisify(gunzip), deflate: promisify(inflate) };
const compressors = { gzip: promisify(gzip), deflate: promisify(deflate) };

async function decompressed(
  body: Buffer,
  request: FastifyRequest,
  reply: FastifyReply,
  maxInputBytes: number,
): Promise<Buffer> {
  const encoding = singleHeader(request, "content-encoding") ?? "identity";
  if (encoding === "identity" || encoding === "") return body;
  if (encoding !== "gzip" && encoding !== "deflate") {
    reply.header("accept-encoding", "gzip, deflate");
    throw new OipError("unsupported", "Unsupported compression type");
  }
  try {
    return await decompressors[encoding](body, { maxOutputLength: maxInputBytes });
  } catch (error) {
    const tooLarge = (error as NodeJS.ErrnoException).code === "ERR_BUFFER_TOO_LARGE";
    throw new OipError(
      "invalid-argument",
      tooLarge
        ? `decompressed request exceeds the maximum allowed input size of ${maxInputBytes} bytes. Use --http-max-input-size to increase the limit.`
        : `failed to decompress the request: ${(error as Error).message}`,
      { cause: error },
    );
  }
}

/** Outputs that have no form in JSON are the model's doing, not the client's. */
function encodeAnswer(encode: () => HttpBody): HttpBody {
  try {
    return encode();
  } catch (error) {
    if (error instanceof WireError) {
      throw new OipError("internal", `failed to write output ${error.message}`, { cause: error });
    }
    throw error;
  }
}

async function sendBody(request: FastifyRequest, reply: FastifyReply, body: HttpBody) {
  const accepted = (singleHeader(request, "accept-encoding") ?? "").split(/[\s,;]+/);
  const encoding = (["gzip", "deflate"] as const).find((name) => accepted.includes(name));
  if (encoding === undefined) {
    return reply.headers(body.headers).send(Buffer.concat(body.chunks, body.byteLength));
  }
  const { "content-length": _, ...headers } = body.headers;
  const compressed = await compressors[encoding](Buffer.concat(body.chunks, body.byteLength));
  return reply.headers({ ...headers, "content-encoding": encoding }).send(compressed);
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
