import type { FastifyInstance, FastifyRequest } from "fastify";
import { RequestTrace } from "./request-trace.ts";

declare module "fastify" {
  interface FastifyRequest {
    /** Undefined if the server exports no traces, or not those of the route. */
    trace?: RequestTrace | undefined;
  }
}

/** Begins a trace for each `POST` request to a route. Call it before hooks whose time is part of the trace. */
export function beginTraces(app: FastifyInstance): void {
  app.decorateRequest("trace", undefined);
  app.addHook("onRequest", (request, _reply, done) => {
    const { method, headers, routeOptions } = request;
    // health checks and metrics are read too often to be worth a trace
    if (method === "POST" && routeOptions.url !== undefined) {
      request.trace = new RequestTrace(`${method} ${routeOptions.url}`, headers);
    }
    done();
  });
}

/** Ends the trace of a request, with the attributes of OpenTelemetry's semantic conventions. */
export function endTrace(
  { trace, method, routeOptions, url, protocol }: FastifyRequest,
  status: number,
  model: string | undefined,
): void {
  trace?.end(
    {
      "http.request.method": method,
      "http.route": routeOptions.url ?? "",
      "url.path": url.split("?", 1)[0],
      "url.scheme": protocol,
      "http.response.status_code": status,
      "clipstack.model": model,
    },
    status >= 500 ? String(status) : undefined,
  );
}
