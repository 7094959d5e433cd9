/**
 * The bundled server with a planted fault, for tests: `TEST_FAULT` in the container's environment says which. It stands
 * where the server's own file does.
 */
import { subscribe } from "node:diagnostics_channel";
import { type IncomingMessage, ServerResponse } from "node:http";

const fault = process.env.TEST_FAULT;

if (fault === "loses requests") process.once("SIGTERM", () => process.exit(0));
if (fault === "does not stop") {
  setInterval(() => {}, 1_000);
  process.exit = (() => {}) as unknown as typeof process.exit;
}
if (fault === "hides errors") {
  const { writeHead } = ServerResponse.prototype;
  ServerResponse.prototype.writeHead = function (
    this: ServerResponse,
    status: number,
    ...rest: []
  ) {
    return writeHead.call(this, status === 422 ? 500 : status, ...rest);
  } as typeof writeHead;
}
if (fault === "dies at work") {
  subscribe("http.server.request.start", (message) => {
    const { request } = message as { readonly request: IncomingMessage };
    if (request.method === "POST") process.exit(9);
  });
}

await import("../../inference-image/src/server/main.ts");
