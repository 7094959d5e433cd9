import { type EndpointName, sendsImageFiles } from "./environment.ts";

/** Payload formats: encodings in which an image or a text is sent. */
export const payloadFormats = [
  /** Image file, decoded by the server: JPEG, PNG or WebP. */
  "jpeg",
  /** float32, preprocessed. */
  "fp32",
  /** 8-bit pixels, resized and cropped. */
  "uint8",
  /** Text as JSON for the embed API, token ids for Triton. */
  "text",
] as const;
export type PayloadFormat = (typeof payloadFormats)[number];

/** Serialization of tensors over HTTP: the binary extension of the Open Inference Protocol, or JSON. */
export const serializations = ["binary", "json"] as const;
export type Serialization = (typeof serializations)[number];

/** Endpoint and the payload format sent to it. */
export interface BenchEndpoint {
  readonly endpoint: EndpointName;
  readonly payload: PayloadFormat;
  readonly serialization: Serialization;
}

/**
 * Name of an endpoint with its payload format, as accepted by `--backend`: `onnx-http_uint8`, `onnx-http_jpeg`,
 * `onnx-http_json`, `onnx-http_text`. The default format has no suffix: `jpeg` for the embed API, `fp32` for Triton.
 */
export function benchEndpointName({ endpoint, payload, serialization }: BenchEndpoint): string {
  const isEmbed = sendsImageFiles(endpoint);
  const defaultPayload = isEmbed ? "jpeg" : "fp32";
  const variant = payload === defaultPayload ? "" : `_${payload}`;
  return `${endpoint}${variant}${serialization === "json" && !isEmbed ? "_json" : ""}`;
}
