import type { IncomingHttpHeaders } from "node:http";
import {
  type Attributes,
  type Context,
  propagation,
  ROOT_CONTEXT,
  type Span,
  type SpanContext,
  SpanKind,
  SpanStatusCode,
  TraceFlags,
  trace,
} from "@opentelemetry/api";

const tracer = trace.getTracer("clipstack");

/** Attribute of the spans that are exported only because their request failed. */
export const sampledForError = "clipstack.sampled_for_error";

interface Stage {
  readonly name: string;
  /** Times of `performance.now()`. */
  readonly startedAt: number;
  readonly endedAt: number;
  readonly batch: SpanContext | undefined;
}

/**
 * Trace of one request on this server. Its stages are kept as times and become spans at the end, because most traces are not exported:
 * a trace is if it is sampled or the request failed, which is known only then.
 */
export class RequestTrace {
  readonly startedAt = performance.now();
  readonly span: Span;
  /** Context of the request's span. */
  readonly context: Context;
  readonly #stages: Stage[] = [];

  /** Continues the trace of the header `traceparent`, or begins one. */
  constructor(name: string, headers: IncomingHttpHeaders) {
    const remote =
      headers.traceparent === undefined ? ROOT_CONTEXT : propagation.extract(ROOT_CONTEXT, headers);
    const { startedAt: startTime } = this;
    this.span = tracer.startSpan(name, { kind: SpanKind.SERVER, startTime }, remote);
    this.context = trace.setSpan(remote, this.span);
  }

  get isSampled(): boolean {
    return (this.span.spanContext().traceFlags & TraceFlags.SAMPLED) !== 0;
  }

  /** Fields of log lines about the request. */
  get ids() {
    const { traceId, spanId } = this.span.spanContext();
    return { trace_id: traceId, span_id: spanId };
  }

  /** Adds a stage that has ended. */
  stage(name: string, startedAt: number, endedAt = performance.now(), batch?: SpanContext): void {
    this.#stages.push({ name, startedAt, endedAt, batch });
  }

  /** @param error - Type of the error if the server failed. */
  end(attributes: Attributes, error?: string): void {
    if (!this.isSampled && error === undefined) return;
    const common: Attributes = this.isSampled ? {} : { [sampledForError]: true };
    for (const { name, startedAt: startTime, endedAt, batch } of this.#stages) {
      const links = batch === undefined ? [] : [{ context: batch }];
      tracer.startSpan(name, { startTime, links, attributes: common }, this.context).end(endedAt);
    }
    this.span.setAttributes({ ...attributes, ...common });
    if (error !== undefined) {
      this.span.setAttribute("error.type", error).setStatus({ code: SpanStatusCode.ERROR });
    }
    this.span.end(performance.now());
  }
}

/** Items of one request in a batch. */
export interface TracedItems {
  readonly trace?: RequestTrace | undefined;
  /** Time of `performance.now()`. */
  readonly enqueuedAt: number;
}

/** Trace of one execution of a model, whose span is linked to those of all its requests and part of the trace of one of them. */
export class BatchTrace {
  /** Context of calls for the batch. */
  readonly context: Context;
  readonly #traces: Iterable<RequestTrace>;
  readonly #startedAt: number;
  /** Undefined if no request of the batch is sampled. */
  readonly #span: Span | undefined;

  private constructor(
    traces: readonly [RequestTrace, ...RequestTrace[]],
    startTime: number,
    attributes: Attributes,
  ) {
    const { context, isSampled } = traces.find((request) => request.isSampled) ?? traces[0];
    const links = traces.map(({ span }) => ({ context: span.spanContext() }));
    this.#span = isSampled
      ? tracer.startSpan("batch", { startTime, links, attributes }, context)
      : undefined;
    this.context = this.#span === undefined ? context : trace.setSpan(context, this.#span);
    this.#traces = traces;
    this.#startedAt = startTime;
  }

  /**
   * Begins the trace of a batch, and ends the stage `queue` of its requests.
   *
   * @param startedAt - Time of `performance.now()`.
   * @returns undefined if no request of the batch is traced.
   */
  static begin(
    items: readonly TracedItems[],
    startedAt: number,
    attributes: Attributes,
  ): BatchTrace | undefined {
    const enqueued = new Map<RequestTrace, number>();
    for (const { trace: request, enqueuedAt } of items) {
      if (request === undefined) continue;
      enqueued.set(request, Math.min(enqueuedAt, enqueued.get(request) ?? enqueuedAt));
    }
    const [first, ...others] = enqueued.keys();
    if (first === undefined) return undefined;
    for (const [request, enqueuedAt] of enqueued) request.stage("queue", enqueuedAt, startedAt);
    return new BatchTrace([first, ...others], startedAt, attributes);
  }

  /** Ends the batch and the stage `infer` of its requests. */
  end(error?: unknown): void {
    const endedAt = performance.now();
    for (const request of this.#traces) {
      request.stage("infer", this.#startedAt, endedAt, this.#span?.spanContext());
    }
    if (error !== undefined) {
      this.#span?.setStatus({ code: SpanStatusCode.ERROR, message: String(error) });
    }
    this.#span?.end(endedAt);
  }
}
