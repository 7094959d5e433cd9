/** A module of its own, because the compiled server cannot import the names of a CommonJS package dynamically. */
export { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-grpc";
