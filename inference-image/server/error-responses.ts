import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { methodsOf } from "../../contract/embed-routes.ts";
import { openAiPrefix } from "../../contract/openai-api.ts";
import { EmbedError } from "../../http/embed-error.ts";
import { toEmbedError } from "../embed/errors.ts";
import type { RequestAdmission } from "../embed/request-admission.ts";
import { openAiErrorBody } from "../openai/error-body.ts";

/** `Retry-After` of a 503, in seconds. */
const unavailableSeconds = 1;

/** Makes every error a response of the embed API, with the headers that its code requires. */
export function registerErrorResponses(
  app: FastifyInstance,
  requests: RequestAdmission,
  clientOf: (request: FastifyRequest) => string | undefined,
): void {
  const sendError = (request: FastifyRequest, reply: FastifyReply, error: EmbedError) => {
    if (error.code === "overloaded") reply.header("retry-after", requests.retryAfterSeconds);
    if (error.code === "rate_limited") reply.header("retry-after", error.retryAfterSeconds);
    if (error.code === "unavailable") reply.header("retry-after", unavailableSeconds);
    if (error.code === "unauthorized") reply.header("www-authenticate", 'Bearer realm="clipstack"');
    // closes the connection, so that the rest of a slow body is not read
    if (error.code === "request_timeout") reply.header("connection", "close");
    return reply.code(error.status).type("application/json").send(errorBody(request, error));
  };
  const sendNotFound = (request: FastifyRequest, reply: FastifyReply) =>
    sendError(request, reply, notFoundError(request, reply));

  app.setNotFoundHandler(sendNotFound);
  app.setErrorHandler((cause, request, reply) => {
    // Fastify checks the content type before it finds that no route has the method
    const { code } = cause as { readonly code?: string };
    if (code === "FST_ERR_ROUTE_MISSING_CONTENT_TYPE") return sendNotFound(request, reply);
    const error = toEmbedError(cause);
    logError(request, reply, error, { cause, client: clientOf(request) });
    return sendError(request, reply, error);
  });
}

/** Body of an error in the format of the route's API. */
export function errorBody({ url }: FastifyRequest, error: EmbedError): unknown {
  return url.startsWith(openAiPrefix) ? openAiErrorBody(error) : error.body;
}

/** Error for an unknown path, or a path that does not accept the method: sets `Allow`. */
function notFoundError(request: FastifyRequest, reply: FastifyReply): EmbedError {
  const path = request.url.split("?", 1)[0]!;
  const allowed = methodsOf(path);
  if (allowed.length === 0) return new EmbedError("not_found", `no route has the path ${path}`);
  const methods = allowed.join(", ");
  reply.header("allow", methods);
  return new EmbedError("method_not_allowed", `${path} requires ${methods}, got ${request.method}`);
}

/** Logs server errors as errors, unless the client has disconnected; everything else at debug level. */
function logError(
  request: FastifyRequest,
  reply: FastifyReply,
  error: EmbedError,
  { cause, client }: { readonly cause: unknown; readonly client: string | undefined },
): void {
  const expected = error.status < 500 || ["unavailable", "timeout"].includes(error.code);
  const ids = request.trace?.ids;
  if (expected || reply.raw.destroyed) {
    request.log.debug({ ...ids, code: error.code, image: error.image, client }, error.message);
  } else {
    request.log.error(
      { ...ids, err: cause, route: request.routeOptions.url, client },
      error.message,
    );
  }
}
