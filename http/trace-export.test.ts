import { type Context, propagation, TraceFlags, trace } from "@opentelemetry/api";
import {
  InMemorySpanExporter,
  type ReadableSpan,
  type SpanExporter,
} from "@opentelemetry/sdk-trace";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { BatchTrace, RequestTrace, sampledForError } from "./request-trace.ts";
import { startTraceExport } from "./trace-export.ts";

const options = {
  url: "http://127.0.0.1:4318/v1/traces",
  protocol: "http/protobuf",
  serviceName: "test",
  sampler: "parentbased_always_off",
  ratio: 1,
} as const;
/** Header of a request whose client samples the trace. */
const sampled = { traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" };

let failure: Error | undefined;
let failures = 0;
const warnings: string[] = [];
const memory = new InMemorySpanExporter();
const exporter: SpanExporter = {
  export(spans, onResult) {
    if (failure === undefined) return memory.export(spans, onResult);
    failures += 1;
    onResult({ code: 1, error: failure });
  },
  forceFlush: () => memory.forceFlush(),
  shutdown: async () => {},
};
let flush: () => Promise<void>;
let end: () => Promise<void>;
beforeAll(async () => {
  end = await startTraceExport({ ...options, warn: (line) => warnings.push(line) }, exporter);
  const provider = trace.getTracerProvider() as unknown as {
    getDelegate(): { forceFlush(): Promise<void> };
  };
  flush = () => provider.getDelegate().forceFlush();
});
afterEach(() => memory.reset());
afterAll(async () => {
  await end();
  trace.disable();
  propagation.disable();
});

async function exported(): Promise<readonly ReadableSpan[]> {
  await flush();
  return memory.getFinishedSpans();
}

test("a request that is not sampled is not exported", async () => {
  const request = new RequestTrace("POST /embed", {});
  request.stage("decode", request.startedAt);
  request.end({});
  expect(await exported()).toEqual([]);
});

test("a failed request is exported with its stages even if it is not sampled", async () => {
  const request = new RequestTrace("POST /embed", {});
  request.stage("decode", request.startedAt - 5, request.startedAt);
  request.end({ "http.route": "/embed" }, "503");

  const [decode, server] = await exported();
  expect(server).toMatchObject({
    name: "POST /embed",
    attributes: { "http.route": "/embed", "error.type": "503", [sampledForError]: true },
    status: { code: 2 },
  });
  expect(decode).toMatchObject({ name: "decode", attributes: { [sampledForError]: true } });
  expect(decode?.parentSpanContext?.spanId).toBe(server?.spanContext().spanId);
  expect(decode?.spanContext().traceFlags).toBe(TraceFlags.SAMPLED);
  expect(Number(decode?.duration[1]) / 1e6).toBeCloseTo(5);
});

test("a request continues the sampled trace of its client", async () => {
  const request = new RequestTrace("POST /embed", sampled);
  expect(request.ids.trace_id).toBe("0af7651916cd43dd8448eb211c80319c");
  request.end({});
  const [server] = await exported();
  expect(server?.parentSpanContext?.spanId).toBe("b7ad6b7169203331");
});

test("a batch is linked to all its requests, and belongs to the trace of a sampled one", async () => {
  const [other, request] = [new RequestTrace("a", {}), new RequestTrace("b", sampled)];
  const items = [other, request, request].map((it) => ({ trace: it, enqueuedAt: it.startedAt }));
  const batch = BatchTrace.begin(items, performance.now(), { "clipstack.batch.items": 3 });
  const idOf = (context: Context) => trace.getSpanContext(context)?.spanId;
  const batchId = idOf(batch!.context);
  batch?.end();
  request.end({});

  const spans = await exported();
  expect(spans.map(({ name }) => name)).toEqual(["batch", "queue", "infer", "b"]);
  const [span, , infer] = spans;
  expect(span?.links.map(({ context }) => context.spanId)).toEqual(
    [other, request].map(({ ids }) => ids.span_id),
  );
  expect(span?.parentSpanContext?.spanId).toBe(request.ids.span_id);
  expect(infer?.links.map(({ context }) => context.spanId)).toEqual([batchId]);
});

test("a batch of requests that are not traced has no trace", () => {
  expect(BatchTrace.begin([{ enqueuedAt: 0 }], 1, {})).toBeUndefined();
});

test("an unreachable collector is reported in one line, once", async () => {
  failure = new Error("connect ECONNREFUSED\n    at internal");
  // two full batches, which are exported at once
  for (let i = 0; i < 2 * 512; i++) new RequestTrace("POST /embed", sampled).end({});
  await expect.poll(() => failures).toBeGreaterThan(1);
  expect(warnings).toEqual([
    "traces cannot be exported to http://127.0.0.1:4318/v1/traces: connect ECONNREFUSED",
  ]);
});
