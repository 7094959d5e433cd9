import { setTimeout as sleep } from "node:timers/promises";
import { propagation, TraceFlags, trace } from "@opentelemetry/api";
import { setGlobalErrorHandler, W3CTraceContextPropagator } from "@opentelemetry/core";
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-proto";
import {
  defaultResource,
  detectResources,
  envDetector,
  resourceFromAttributes,
} from "@opentelemetry/resources";
import {
  AlwaysOffSampler,
  AlwaysOnSampler,
  BatchSpanProcessor,
  createAlwaysRecordSampler,
  ParentBasedSampler,
  type ReadableSpan,
  type Sampler,
  type SpanExporter,
  type SpanProcessor,
  TraceIdRatioBasedSampler,
  TracerProvider,
} from "@opentelemetry/sdk-trace";
import type { TraceSampler } from "../contract/server/server-env.ts";
import { sampledForError } from "./request-trace.ts";

/** Export of traces over OTLP. Only a process that exports traces loads this file, which loads OpenTelemetry's SDK. */

export interface TraceExportOptions {
  /** URL of the collector. */
  readonly url: string;
  readonly protocol: "grpc" | "http/protobuf";
  /** Replaced by OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES. */
  readonly serviceName: string;
  readonly sampler: TraceSampler;
  /** Share of the traces, for the samplers with a ratio. */
  readonly ratio: number;
  /** Receives one line if spans cannot be exported, at most once per minute. */
  readonly warn: (line: string) => void;
}

/** Minimum time between two warnings in milliseconds. */
const warningMs = 60_000;

/** Maximum time to export the remaining spans, in milliseconds: an unreachable collector must not delay a stop. */
const maxShutdownMs = 2_000;

/**
 * Starts to export the spans of this process, once.
 *
 * @param exporter - @default OTLP
 * @returns Exports the remaining spans and stops.
 */
export async function startTraceExport(
  options: TraceExportOptions,
  exporter?: SpanExporter,
): Promise<() => Promise<void>> {
  const { url, serviceName, warn } = options;
  let warnedAt = Number.NEGATIVE_INFINITY;
  setGlobalErrorHandler((error) => {
    if (performance.now() - warnedAt < warningMs) return;
    warnedAt = performance.now();
    const { message } = error as Error;
    warn(`traces cannot be exported to ${url}: ${message.split("\n", 1)[0]}`);
  });
  const batches = new BatchSpanProcessor({ exporter: exporter ?? (await exporterOf(options)) });
  const provider = new TracerProvider({
    resource: defaultResource()
      .merge(resourceFromAttributes({ "service.name": serviceName }))
      .merge(detectResources({ detectors: [envDetector] })),
    sampler: createAlwaysRecordSampler(samplers[options.sampler](options.ratio)),
    spanProcessors: [new ErrorProcessor(batches)],
  });
  trace.setGlobalTracerProvider(provider);
  propagation.setGlobalPropagator(new W3CTraceContextPropagator());
  return async () => {
    const shutdown = provider.shutdown().catch(() => {});
    await Promise.race([shutdown, sleep(maxShutdownMs, undefined, { ref: false })]);
  };
}

async function exporterOf({ url, protocol }: TraceExportOptions): Promise<SpanExporter> {
  if (protocol === "grpc") {
    const { OTLPTraceExporter: GrpcExporter } = await import("./otlp-grpc.ts");
    return new GrpcExporter({ url });
  }
  return new OTLPTraceExporter({ url });
}

const parentBased = (root: Sampler) => new ParentBasedSampler({ root });
const samplers: Readonly<Record<TraceSampler, (ratio: number) => Sampler>> = {
  always_on: () => new AlwaysOnSampler(),
  always_off: () => new AlwaysOffSampler(),
  traceidratio: (ratio) => new TraceIdRatioBasedSampler(ratio),
  parentbased_always_on: () => parentBased(new AlwaysOnSampler()),
  parentbased_always_off: () => parentBased(new AlwaysOffSampler()),
  parentbased_traceidratio: (ratio) => parentBased(new TraceIdRatioBasedSampler(ratio)),
};

/** Passes on spans that are sampled, and those of failed requests as if they were. */
class ErrorProcessor implements SpanProcessor {
  constructor(private readonly next: SpanProcessor) {}

  onStart(): void {}

  onEnd(span: ReadableSpan): void {
    const context = span.spanContext();
    if ((context.traceFlags & TraceFlags.SAMPLED) !== 0) {
      this.next.onEnd(span);
    } else if (span.attributes[sampledForError] === true) {
      const sampled = { ...context, traceFlags: context.traceFlags | TraceFlags.SAMPLED };
      this.next.onEnd(Object.create(span, { spanContext: { value: () => sampled } }));
    }
  }

  forceFlush(): Promise<void> {
    return this.next.forceFlush();
  }

  shutdown(): Promise<void> {
    return this.next.shutdown();
  }
}
