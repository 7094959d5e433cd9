import type { ConnectionOptions } from "node:tls";

/**
 * Requests that are encoded before the measurement, so that it excludes encoding. They can be sent to another process by
 * structured clone.
 */
export interface PreparedRequests {
  readonly transport: "http" | "grpc";
  /** `http://host:port`, or `host:port` for gRPC. */
  readonly url: string;
  /** HTTP method. @default "POST" */
  readonly method?: "GET";
  /** Path of the HTTP request, or of the gRPC method. */
  readonly path: string;
  /** Headers of every request, in addition to its own. For gRPC, metadata. */
  readonly headers: Readonly<Record<string, string>>;
  /** Sent in a cycle; at least one. */
  readonly requests: readonly PreparedRequest[];
  readonly imagesPerRequest: number;
  /** Connection options of HTTP: a Unix socket in place of the host, TLS keys. */
  readonly connect?: Pick<
    ConnectionOptions,
    "path" | "ca" | "cert" | "key" | "rejectUnauthorized" | "servername"
  >;
}

export interface PreparedRequest {
  readonly headers: Readonly<Record<string, string>>;
  /** Body; for gRPC, the encoded `ModelInferRequest` without its prefix. */
  readonly body: Uint8Array;
}
