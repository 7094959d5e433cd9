import type { ConnectionOptions } from "node:tls";

/**
 * Requests that are written before the clock starts, so that a load measures the server and not the writing. They can be
 * sent to another process as they are (structured clone).
 */
export interface PreparedRequests {
  readonly transport: "http" | "grpc";
  /** `http://host:port`, or `host:port` for gRPC. */
  readonly url: string;
  /** HTTP method. @default "POST" */
  readonly method?: "GET";
  /** Path of the HTTP request, or of the gRPC method. */
  readonly path: string;
  /** Sent with each; what differs between them is in `requests`. For gRPC, metadata. */
  readonly headers: Readonly<Record<string, string>>;
  /** Sent one after the other, and around again; at least one. */
  readonly requests: readonly PreparedRequest[];
  readonly imagesPerRequest: number;
  /** How HTTP connects, beyond the URL: a Unix socket in place of its host, TLS keys. */
  readonly connect?: Pick<
    ConnectionOptions,
    "path" | "ca" | "cert" | "key" | "rejectUnauthorized" | "servername"
  >;
}

export interface PreparedRequest {
  readonly headers: Readonly<Record<string, string>>;
  /** The whole body; for gRPC, the encoded `ModelInferRequest` without its frame. */
  readonly body: Uint8Array;
}
