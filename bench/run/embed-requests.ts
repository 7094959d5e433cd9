import { type EmbedResponse, embedPaths, embedResponse } from "../../contract/embed-api.ts";
import { embeddingDims } from "../../contract/model-signature.ts";
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
): Promise<readonly Float32Array[]> {
  const response = await http.send(...requestOf(url, encoding, images));
  if (response.status !== 200) {
    throw new Error(
      `status ${response.status} to ${encoding}: ${response.body.toString("utf8").slice(0, 200)}`,
    );
  }
  if (encoding === "octet-stream") return rows(response.body);
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

/** Embeddings in an `application/octet-stream` response. Throws a one-line error if the length is invalid. */
export function rows(body: Buffer): readonly Float32Array[] {
  const rowBytes = embeddingDims * Float32Array.BYTES_PER_ELEMENT;
  if (body.length === 0 || body.length % rowBytes !== 0) {
    throw new Error(
      `response to octet-stream: expected rows of ${rowBytes} bytes, got ${body.length} bytes`,
    );
  }
  return Array.from({ length: body.length / rowBytes }, (_, row) =>
    Float32Array.from({ length: embeddingDims }, (_unused, i) =>
      body.readFloatLE(row * rowBytes + i * Float32Array.BYTES_PER_ELEMENT),
    ),
  );
}

/** URL and options of one request. */
export function requestOf(
  url: string,
  encoding: EmbedEncoding,
  images: readonly EncodedImage[],
): Parameters<HttpClient["send"]> {
  const first = images[0];
  if (encoding === "multipart") return [`${url}${embedPaths.embed}`, { body: multipart(images) }];
  if (encoding === "raw") {
    return [
      `${url}${embedPaths.embed}`,
      { headers: { "content-type": first?.contentType ?? "" }, body: first?.bytes },
    ];
  }
  const body = JSON.stringify({
    images: images.map(({ bytes }) => Buffer.from(bytes).toString("base64")),
  });
  const accept = encoding === "octet-stream" ? "application/octet-stream" : "application/json";
  return [
    `${url}${embedPaths.embedBase64}`,
    { headers: { "content-type": "application/json", accept }, body },
  ];
}

export function multipart(images: readonly EncodedImage[]): FormData {
  const form = new FormData();
  images.forEach(({ bytes, contentType }, i) => {
    form.append("images", new Blob([Buffer.from(bytes)], { type: contentType }), `image-${i}`);
  });
  return form;
}
