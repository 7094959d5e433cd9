import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { buffer } from "node:stream/consumers";
import { z } from "zod";
import { startChild } from "../artefact/child-process.ts";
import { freePorts, isPortInUse } from "../artefact/free-ports.ts";

/** OpenTelemetry collector for tests, built by `.ci/otel-collector`. */
const { CLIPSTACK_OTELCOL = "" } = process.env;

/** Reason why no collector is available; otherwise empty. */
export const collectorMissing =
  CLIPSTACK_OTELCOL === "" ? "CLIPSTACK_OTELCOL is not set: run .ci/otel-collector" : "";

const attributes = z
  .array(z.object({ key: z.string(), value: z.record(z.string(), z.unknown()) }))
  .default([])
  .transform((all) =>
    Object.fromEntries(all.map(({ key, value }) => [key, Object.values(value)[0]])),
  );
const exportedSpan = z.object({
  traceId: z.string(),
  spanId: z.string(),
  parentSpanId: z.string().default(""),
  name: z.string(),
  attributes,
  links: z.array(z.object({ traceId: z.string(), spanId: z.string() })).default([]),
  status: z.object({ code: z.number().default(0) }).default({ code: 0 }),
});
const exportRequest = z.object({
  resourceSpans: z.array(
    z.object({
      resource: z.object({ attributes }),
      scopeSpans: z.array(z.object({ spans: z.array(exportedSpan) })),
    }),
  ),
});

export type CollectedSpan = z.infer<typeof exportedSpan> & { readonly service: unknown };

export interface TestCollector {
  /** Addresses for OTLP over HTTP and gRPC. */
  readonly http: string;
  readonly grpc: string;
  /** Spans that have arrived. */
  readonly spans: readonly CollectedSpan[];
  stop(): Promise<void>;
}

/** Starts a collector on free ports of 127.0.0.1, which forwards all spans to this process. */
export async function startCollector(): Promise<TestCollector> {
  const spans: CollectedSpan[] = [];
  const sink = createServer(async (request, response) => {
    const { resourceSpans } = exportRequest.parse(JSON.parse(String(await buffer(request))));
    for (const { resource, scopeSpans } of resourceSpans) {
      const service = resource.attributes["service.name"];
      spans.push(...scopeSpans.flatMap((scope) => scope.spans.map((it) => ({ ...it, service }))));
    }
    response.setHeader("content-type", "application/json").end("{}");
  });
  await new Promise<void>((resolve) => sink.listen(0, "127.0.0.1", resolve));
  const { port } = sink.address() as AddressInfo;
  const [http, grpc] = (await freePorts(2)).map((free) => `127.0.0.1:${free}`);
  const folder = await mkdtemp(join(tmpdir(), "clipstack-collector-"));
  const config = {
    receivers: { otlp: { protocols: { http: { endpoint: http }, grpc: { endpoint: grpc } } } },
    exporters: {
      otlp_http: { endpoint: `http://127.0.0.1:${port}`, encoding: "json", compression: "none" },
    },
    service: {
      telemetry: { metrics: { level: "none" } },
      pipelines: { traces: { receivers: ["otlp"], exporters: ["otlp_http"] } },
    },
  };
  const file = join(folder, "config.yaml");
  await writeFile(file, JSON.stringify(config));
  const child = startChild({ command: [CLIPSTACK_OTELCOL], args: ["--config", file], env: {} });
  while (!(await isPortInUse(Number(http!.split(":")[1])))) {
    if (child.exit !== undefined)
      throw new Error(`the collector ended: ${child.lastLines(5).join("\n")}`);
  }
  return {
    http: `http://${http}`,
    grpc: `http://${grpc}`,
    spans,
    async stop() {
      await child.stop(10);
      sink.close();
      await rm(folder, { recursive: true });
    },
  };
}
