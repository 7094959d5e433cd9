import type { FastifyInstance } from "fastify";
import { isLoopback } from "../../contract/loopback.ts";
import { EmbedError } from "../../http/embed-error.ts";

/**
 * Rejects requests that a web page of another origin sends to a server on the loopback interface. Such a server has no key, and DNS
 * rebinding makes a page's own host name resolve to 127.0.0.1.
 */
export function rejectOtherOrigins(app: FastifyInstance): void {
  app.addHook("onRequest", async ({ headers: { host, origin } }) => {
    // only HTTP/1.0, which no browser sends, has none
    if (host !== undefined && !isLoopback(host.replace(/:\d+$/, ""))) {
      throw forbidden("Host", host);
    }
    if (origin !== undefined && !isLoopback(hostOf(origin))) throw forbidden("Origin", origin);
  });
}

function hostOf(url: string): string {
  return URL.canParse(url) ? new URL(url).hostname : "";
}

function forbidden(name: string, value: string): EmbedError {
  const got = value.slice(0, 100);
  return new EmbedError(
    "forbidden",
    `the header ${name} must name a loopback address because this server has no API_KEY, got '${got}'`,
  );
}
