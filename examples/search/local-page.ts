import { once } from "node:events";
import { readFileSync } from "node:fs";
import type { AddressInfo } from "node:net";
import Fastify, { type FastifyInstance, type FastifyRequest } from "fastify";
import { z } from "zod";
import { CommandError } from "./report.ts";

const headers = {
  // no resource of another origin, and no script that a file name could inject
  "content-security-policy":
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  "cross-origin-resource-policy": "same-origin",
  "cross-origin-opener-policy": "same-origin",
  "x-content-type-options": "nosniff",
  "referrer-policy": "no-referrer",
  "cache-control": "no-store",
} as const;

const types: Readonly<Record<string, string>> = {
  html: "text/html",
  css: "text/css",
  js: "text/javascript",
};

/**
 * Builds the server of a page for this machine, without listening: requests from pages of another origin are rejected.
 *
 * @param folder - Contains the files, of which `index.html` is the page.
 */
export function buildLocalPage(folder: URL, files: readonly string[]): FastifyInstance {
  const app = Fastify({ logger: false, bodyLimit: 64 * 1024 * 1024 });
  app.addHook("onRequest", async (request, reply) => {
    reply.headers(headers);
    const problem = foreignOriginProblem(request);
    if (problem !== undefined) return reply.code(403).send({ error: problem });
  });
  app.setErrorHandler((error: Error & { readonly statusCode?: number }, _request, reply) => {
    const [issue] = error instanceof z.ZodError ? error.issues : [];
    if (issue) return reply.code(400).send({ error: `${issue.path.join(".")}: ${issue.message}` });
    return reply.code(error.statusCode ?? 500).send({ error: error.message.split("\n")[0] });
  });
  app.setNotFoundHandler((_request, reply) => reply.code(404).send({ error: "not found" }));
  for (const file of files) {
    const content = readFileSync(new URL(file, folder), "utf8");
    const type = `${types[file.split(".")[1] ?? ""]}; charset=utf-8`;
    const route = file === "index.html" ? "/" : `/${file}`;
    app.get(route, (_request, reply) => reply.type(type).send(content));
  }
  app.get("/favicon.ico", (_request, reply) => reply.code(204).send());
  return app;
}

/**
 * Returns the reason to reject a request that does not come from this page: `Host` reveals DNS rebinding, and `Origin`, which browsers
 * send with every POST, a page of another origin.
 */
function foreignOriginProblem({ headers: sent, method }: FastifyRequest): string | undefined {
  const { host = "", origin } = sent;
  if (!/^(127\.0\.0\.1|localhost|\[::1\])(:\d+)?$/.test(host)) {
    return "this page is for this machine: use http://127.0.0.1 or http://localhost";
  }
  const reads = method === "GET" || method === "HEAD";
  if (origin === `http://${host}` || (origin === undefined && reads)) return undefined;
  return "requests of other origins are rejected";
}

export interface ServeOptions {
  /** 0 selects a free port. */
  readonly port: number;
  readonly onListening: (url: string) => void;
  readonly signal: AbortSignal;
}

/** Serves a page on the loopback interface until the signal. */
export async function serveLocalPage(
  app: FastifyInstance,
  { port, onListening, signal }: ServeOptions,
): Promise<void> {
  try {
    const host = "127.0.0.1";
    await app.listen({ host, port }).catch((cause: NodeJS.ErrnoException) => {
      const inUse = cause.code === "EADDRINUSE";
      const problem = inUse ? "is in use: choose another with --port" : cause.message;
      throw new CommandError("usage", `port ${port} ${problem}`, { cause });
    });
    onListening(`http://${host}:${(app.server.address() as AddressInfo).port}/`);
    if (!signal.aborted) await once(signal, "abort");
  } finally {
    app.server.closeAllConnections();
    await app.close();
  }
}

/** Signal that Ctrl-C and SIGTERM abort. */
export function stopSignal(): AbortSignal {
  const stop = new AbortController();
  for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => stop.abort());
  return stop.signal;
}
