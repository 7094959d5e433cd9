import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import type { EmbedRoute } from "../../contract/embed-routes.ts";
import type { ClientKeys } from "./client-keys.ts";

/** Registers a route with the method, path, media type and authentication of the contract. */
export type AddRoute = (
  route: EmbedRoute,
  handler: (request: FastifyRequest, reply: FastifyReply) => Promise<unknown>,
  /** Called after authentication and before the body is read. */
  onRequest?: (request: FastifyRequest, reply: FastifyReply) => Promise<void>,
) => void;

/** @param keys - Keys of which clients must send one. @default - no authentication */
export function routeAdder(app: FastifyInstance, keys: ClientKeys | undefined): AddRoute {
  return ({ method, path, mediaType, requiresKey }, handler, onRequest) => {
    const authenticate = async (request: FastifyRequest) => {
      const client = keys?.authenticate(request);
      // reading metrics or names of models is not limited
      if (client !== undefined && method === "POST") keys?.limit(client);
    };
    app.route({
      method,
      url: path,
      onRequest: [
        ...(requiresKey && keys !== undefined ? [authenticate] : []),
        ...(onRequest === undefined ? [] : [onRequest]),
      ],
      handler: (request, reply) => handler(request, reply.type(mediaType)),
    });
  };
}
