import { createHash, timingSafeEqual } from "node:crypto";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import type { EmbedRoute } from "../../contract/embed-routes.ts";
import { EmbedError } from "../../http/embed-error.ts";

/** Registers a route with the method, path, media type and authentication of the contract. */
export type AddRoute = (
  route: EmbedRoute,
  handler: (request: FastifyRequest, reply: FastifyReply) => Promise<unknown>,
  /** Called after authentication and before the body is read. */
  onRequest?: (request: FastifyRequest, reply: FastifyReply) => Promise<void>,
) => void;

/** @param apiKey - Bearer token required from clients. @default - no authentication */
export function routeAdder(app: FastifyInstance, apiKey: string | undefined): AddRoute {
  return ({ method, path, mediaType, requiresKey }, handler, onRequest) => {
    app.route({
      method,
      url: path,
      onRequest: [
        ...(requiresKey && apiKey !== undefined ? [apiKeyHook(apiKey)] : []),
        ...(onRequest === undefined ? [] : [onRequest]),
      ],
      handler: (request, reply) => handler(request, reply.type(mediaType)),
    });
  };
}

/** Hook that rejects requests without `Authorization: Bearer` and the key. */
function apiKeyHook(apiKey: string) {
  const expected = digestOf(apiKey);
  return async ({ headers: { authorization } }: FastifyRequest): Promise<void> => {
    const token = /^bearer +(\S+) *$/i.exec(authorization ?? "")?.[1];
    if (timingSafeEqual(digestOf(token ?? ""), expected) && token !== undefined) return;
    const got = authorization === undefined ? "none" : "a different value";
    throw new EmbedError(
      "unauthorized",
      `the header must be 'Authorization: Bearer' and the key of this server, got ${got}`,
    );
  };
}

/** Digest of equal length for all keys: a comparison reveals neither the key nor its length. */
function digestOf(text: string): Buffer {
  return createHash("sha256").update(text).digest();
}
