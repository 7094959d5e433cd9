import {
  type Attributes,
  type Context,
  context,
  propagation,
  type Span,
  SpanKind,
  SpanStatusCode,
  TraceFlags,
  trace,
} from "@opentelemetry/api";

export interface TracedCall {
  /** Name of the span, the same for all calls of one kind. */
  readonly name: string;
  readonly attributes: Attributes;
  /** @default - the active context */
  readonly parent?: Context | undefined;
  /** Whether the server also receives the context of a trace that is not sampled. Triton would record its part of it. */
  readonly sendsUnsampled?: boolean;
}

/**
 * Runs a call in a client span if the application has registered an OpenTelemetry SDK; without one it costs less than a microsecond.
 *
 * @param send - Receives the headers that continue the trace on the server.
 */
export async function tracedCall<T>(
  { name, attributes, parent = context.active(), sendsUnsampled = false }: TracedCall,
  send: (headers: Readonly<Record<string, string>>, span: Span) => Promise<T>,
): Promise<T> {
  // not a constant, because the application may register its SDK later, in another copy of the API
  const tracer = trace.getTracer("@clipstack/client");
  const span = tracer.startSpan(name, { kind: SpanKind.CLIENT, attributes }, parent);
  const headers: Record<string, string> = {};
  if (sendsUnsampled || (span.spanContext().traceFlags & TraceFlags.SAMPLED) !== 0) {
    propagation.inject(trace.setSpan(parent, span), headers);
  }
  try {
    return await send(headers, span);
  } catch (error) {
    const { code, message } = error as Error & { readonly code?: unknown };
    span.setAttribute("error.type", String(code ?? (error as Error).name));
    span.setStatus({ code: SpanStatusCode.ERROR, message });
    throw error;
  } finally {
    span.end();
  }
}
