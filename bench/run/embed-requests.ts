import { type EmbedResponse, embedPaths, embedResponse } from "../../contract/embed-api.ts";
import { embeddingDims } from "../../contract/model-signature.ts";
import { type HttpClient, jsonOf } from "./http-client.ts";

/** The four ways to ask the embed API for embeddings. */
export const embedEncodings = ["multipart", "raw", "base64", "octet-stream"] as const;
export type EmbedEncoding = (typeof embedEncodings)[number];

export interface EncodedImage {
  readonly bytes: Uint8Array;
  readonly contentType: string;
}

/** Ask for the embeddings of some images; `raw` takes one. Throws a one-line error on any other answer than 200. */
export async function embedBy(
  http: HttpClient,
  url: string,
  form: EmbedEncoding,
  images: readonly EncodedImage[],
): Promise<readonly Float32Array[]> {
  const answer = await http.send(...requestOf(url, form, images));
  if (answer.status !== 200) {
    throw new Error(
      `status ${answer.status} to ${form}: ${answer.body.toString("utf8").slice(0, 200)}`,
    );
  }
  if (form === "octet-stream") return rows(answer.body);
  const parsed = embedResponse.safeParse(jsonOf(answer));
  if (!parsed.success) {
    const issue = parsed.error.issues[0];
    throw new Error(
      `answer to ${form}: ${issue?.path.join(".") ?? ""}: ${issue?.message ?? "is invalid"}`,
    );
  }
  return vectors(parsed.data);
}

function vectors(response: EmbedResponse): readonly Float32Array[] {
  return response.embeddings.map((embedding) => Float32Array.from(embedding));
}

/** The vectors in an answer as `application/octet-stream`. Throws a one-line error where it is none. */
export function rows(body: Buffer): readonly Float32Array[] {
  const rowBytes = embeddingDims * Float32Array.BYTES_PER_ELEMENT;
  if (body.length === 0 || body.length % rowBytes !== 0) {
    throw new Error(
      `answer to octet-stream: expected rows of ${rowBytes} bytes, got ${body.length} bytes`,
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
  form: EmbedEncoding,
  images: readonly EncodedImage[],
): Parameters<HttpClient["send"]> {
  const first = images[0];
  if (form === "multipart") return [`${url}${embedPaths.embed}`, { body: multipart(images) }];
  if (form === "raw") {
    return [
      `${url}${embedPaths.embed}`,
      { headers: { "content-type": first?.contentType ?? "" }, body: first?.bytes },
    ];
  }
  const body = JSON.stringify({
    images: images.map(({ bytes }) => Buffer.from(bytes).toString("base64")),
  });
  const accept = form === "octet-stream" ? "application/octet-stream" : "application/json";
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
