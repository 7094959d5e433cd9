import {
  type EmbedResponse,
  type EmbedTextRequest,
  embedPaths,
  embedResponse,
  modelParameter,
} from "../../contract/embed-api.ts";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { type HttpClient, jsonOf } from "./http-client.ts";

/** Request encodings of the embed API. */
export const embedEncodings = ["multipart", "raw", "base64", "octet-stream"] as const;
export type EmbedEncoding = (typeof embedEncodings)[number];

export interface EncodedImage {
  readonly bytes: Uint8Array;
  readonly contentType: string;
}

/** Requests the embeddings of images; `raw` accepts one. Throws a one-line error on any status other than 200. */
export async function embedBy(
  http: HttpClient,
  url: string,
  encoding: EmbedEncoding,
  images: readonly EncodedImage[],
  spec: ModelSpec,
): Promise<readonly Float32Array[]> {
  return embeddingsIn(http, requestOf(url, encoding, images, spec), encoding, spec);
}

/** Requests the embeddings of texts. Throws a one-line error on any status other than 200. */
export async function embedTextBy(
  http: HttpClient,
  url: string,
  texts: readonly string[],
  spec: ModelSpec,
): Promise<readonly Float32Array[]> {
  return embeddingsIn(http, textRequestOf(url, texts, spec), "texts", spec);
}

async function embeddingsIn(
  http: HttpClient,
  request: Parameters<HttpClient["send"]>,
  encoding: EmbedEncoding | "texts",
  spec: ModelSpec,
): Promise<readonly Float32Array[]> {
  const response = await http.send(...request);
  if (response.status !== 200) {
    throw new Error(
      `status ${response.status} to ${encoding}: ${response.body.toString("utf8").slice(0, 200)}`,
    );
  }
  if (encoding === "octet-stream") return rows(response.body, spec.embedding.width);
  const parsed = embedResponse.safeParse(jsonOf(response));
  if (!parsed.success) {
    const issue = parsed.error.issues[0];
    throw new Error(
      `response to ${encoding}: ${issue?.path.join(".") ?? ""}: ${issue?.message ?? "is invalid"}`,
    );
  }
  return vectors(parsed.data);
}

function vectors(response: EmbedResponse): readonly Float32Array[] {
  return response.embeddings.map((embedding) => Float32Array.from(embedding));
}

/** Embeddings of `width` values in an `application/octet-stream` response. Throws a one-line error if the length is invalid. */
export function rows(body: Buffer, width: number): readonly Float32Array[] {
  const rowBytes = width * Float32Array.BYTES_PER_ELEMENT;
  if (body.length === 0 || body.length % rowBytes !== 0) {
    throw new Error(
      `the application/octet-stream response must be rows of ${rowBytes} bytes, got ${body.length} bytes`,
    );
  }
  return Array.from({ length: body.length / rowBytes }, (_, row) =>
    Float32Array.from({ length: width }, (_unused, i) =>
      body.readFloatLE(row * rowBytes + i * Float32Array.BYTES_PER_ELEMENT),
    ),
  );
}

/** Path of `POST /embed` for a model. */
export function embedPath({ name }: Pick<ModelSpec, "name">): string {
  return `${embedPaths.embed}?${modelParameter}=${encodeURIComponent(name)}`;
}

/** URL and options of one request for a model; without `spec`, for the server's default model. */
export function requestOf(
  url: string,
  encoding: EmbedEncoding,
  images: readonly EncodedImage[],
  spec?: Pick<ModelSpec, "name">,
): Parameters<HttpClient["send"]> {
  const first = images[0];
  const path = `${url}${spec === undefined ? embedPaths.embed : embedPath(spec)}`;
  if (encoding === "multipart") return [path, { body: multipart(images) }];
  if (encoding === "raw") {
    return [path, { headers: { "content-type": first?.contentType ?? "" }, body: first?.bytes }];
  }
  const body = JSON.stringify({
    images: images.map(({ bytes }) => Buffer.from(bytes).toString("base64")),
    model: spec?.name,
  });
  const accept = encoding === "octet-stream" ? "application/octet-stream" : "application/json";
  return [
    `${url}${embedPaths.embedBase64}`,
    { headers: { "content-type": "application/json", accept }, body },
  ];
}

/** URL and options of one request with texts for a model; without `spec`, for the server's default model. */
export function textRequestOf(
  url: string,
  texts: readonly string[],
  spec?: Pick<ModelSpec, "name">,
): Parameters<HttpClient["send"]> {
  const body: EmbedTextRequest = { texts: [...texts], model: spec?.name };
  return [
    `${url}${embedPaths.embedText}`,
    { headers: { "content-type": "application/json" }, body: JSON.stringify(body) },
  ];
}

export function multipart(images: readonly EncodedImage[]): FormData {
  const form = new FormData();
  images.forEach(({ bytes, contentType }, i) => {
    form.append("images", new Blob([Buffer.from(bytes)], { type: contentType }), `image-${i}`);
  });
  return form;
}
