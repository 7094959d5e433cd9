import { encodeGrpcRequest, methodOf } from "../../client/triton/wire-grpc.ts";
import { encodeInferRequest } from "../../client/triton/wire-http.ts";
import { embedPaths } from "../../contract/embed-api.ts";
import {
  clipNormalisation,
  imageElements,
  openclipVitB32,
  openclipVitB32Jpeg,
  openclipVitB32U8,
  pixelBytes,
} from "../../contract/model-signature.ts";
import type { Tensor } from "../../contract/tensor.ts";
import { UserError } from "../../contract/user-error.ts";
import type { BenchEndpoint, PayloadFormat } from "../record/bench-endpoint.ts";
import type { BenchTarget } from "../run/bench-target.ts";
import { type EncodedImage, multipart } from "../run/embed-requests.ts";
import { inputTensor, stack } from "../run/infer.ts";
import type { PreparedRequest, PreparedRequests } from "./prepared-requests.ts";

/** Image in every format that the endpoints accept. */
export interface LoadImage extends EncodedImage {
  /** `[3, 224, 224]` float32, CLIP-normalised. */
  readonly tensor: Float32Array;
}

/** Maximum total size of a load's request bodies; larger loads use fewer distinct requests. */
const maxTotalBytes = 128 * 1024 * 1024;

/**
 * Builds the requests of a load: one per image, each starting with a different image, within a memory limit.
 *
 * A batch of one is sent to the embed API as the file itself, a larger one as `multipart/form-data`; both request
 * float32 rows instead of JSON. Requests to Triton use the binary tensor extension unless `serialization` is JSON.
 *
 * @throws {UserError} without an image.
 */
export async function prepareRequests(
  target: Pick<BenchTarget, "endpoint" | "url" | "model" | "apiKey">,
  format: Pick<BenchEndpoint, "payload" | "serialization">,
  images: readonly LoadImage[],
  batch: number,
): Promise<PreparedRequests> {
  const write = writerOf(target, format);
  return {
    transport: isGrpc(target) ? "grpc" : "http",
    url: target.url,
    path: pathOf(target, format),
    headers: target.apiKey === undefined ? {} : { authorization: `Bearer ${target.apiKey}` },
    requests: await writeAll(images, batch, write),
    imagesPerRequest: batch,
  };
}

/**
 * Builds the requests of a load on the embed API, without tensors.
 *
 * @param url - May include a path, such as that of the Kubernetes API server's proxy to a Service.
 */
export async function prepareEmbedRequests(
  { url, apiKey }: Pick<BenchTarget, "url" | "apiKey">,
  images: readonly EncodedImage[],
): Promise<PreparedRequests> {
  const { origin, pathname } = new URL(url);
  return {
    transport: "http",
    url: origin,
    path: `${pathname.replace(/\/$/, "")}${embedPaths.embed}`,
    headers: apiKey === undefined ? {} : { authorization: `Bearer ${apiKey}` },
    requests: await writeAll(images, 1, writeEmbed),
    imagesPerRequest: 1,
  };
}

async function writeAll<Image>(
  images: readonly Image[],
  batch: number,
  write: (images: readonly Image[]) => Promise<PreparedRequest>,
): Promise<PreparedRequest[]> {
  const [first] = images;
  if (first === undefined) throw new UserError("a load needs an image, got none");
  const requests: PreparedRequest[] = [];
  let bytes = 0;
  while (requests.length < images.length) {
    const batchImages = Array.from(
      { length: batch },
      (_, i) => images[(requests.length + i) % images.length] ?? first,
    );
    const request = await write(batchImages);
    bytes += request.body.byteLength;
    if (bytes > maxTotalBytes && requests.length > 0) break;
    requests.push(request);
  }
  return requests;
}

/** Name of the model for a payload format: the target's model, or its variant on the same Triton. */
export function modelFor(model: string, payload: PayloadFormat): string {
  if (payload === "fp32") return model;
  const variant = payload === "uint8" ? openclipVitB32U8.name : openclipVitB32Jpeg.name;
  return `${model.replace(/_trt$/, "")}${variant.slice(openclipVitB32.name.length)}`;
}

/** 8-bit RGB pixels of a preprocessed image, interleaved; reverses the normalisation exactly. */
export function pixelsOf(tensor: Float32Array): Uint8Array {
  const { mean, std } = clipNormalisation;
  const pixels = new Uint8Array(pixelBytes);
  const plane = imageElements / mean.length;
  mean.forEach((average, channel) => {
    for (let i = 0; i < plane; i++) {
      const value = (tensor[channel * plane + i] ?? 0) * (std[channel] ?? 1) + average;
      pixels[i * mean.length + channel] = Math.round(value * 255);
    }
  });
  return pixels;
}

function isGrpc({ endpoint }: Pick<BenchTarget, "endpoint">): boolean {
  return endpoint === "onnx-grpc" || endpoint === "trt-grpc";
}

function pathOf(
  target: Pick<BenchTarget, "endpoint" | "model">,
  { payload }: Pick<BenchEndpoint, "payload">,
): string {
  if (isGrpc(target)) return methodOf("ModelInfer").path;
  return target.endpoint === "embed-http"
    ? embedPaths.embed
    : `/v2/models/${encodeURIComponent(modelFor(target.model, payload))}/infer`;
}

type Write = (images: readonly LoadImage[]) => Promise<PreparedRequest>;

function writerOf(
  target: Pick<BenchTarget, "endpoint" | "model">,
  { payload, serialization }: Pick<BenchEndpoint, "payload" | "serialization">,
): Write {
  if (target.endpoint === "embed-http") return writeEmbed;
  if (isGrpc(target)) {
    const model = modelFor(target.model, payload);
    const method = methodOf("ModelInfer");
    return async (images) => ({
      headers: {},
      body: method.requestSerialize(encodeGrpcRequest(model, [tensorOf(payload, images)], {})),
    });
  }
  return async (images) => {
    const { headers, chunks } = encodeInferRequest([tensorOf(payload, images)], {
      encoding: serialization,
    });
    return { headers, body: Buffer.concat(chunks) };
  };
}

async function writeEmbed(images: readonly EncodedImage[]): Promise<PreparedRequest> {
  const accept = "application/octet-stream";
  const [first] = images;
  if (images.length === 1 && first !== undefined) {
    return { headers: { accept, "content-type": first.contentType }, body: first.bytes };
  }
  const form = new Response(multipart(images));
  return {
    headers: { accept, "content-type": form.headers.get("content-type") ?? "" },
    body: new Uint8Array(await form.arrayBuffer()),
  };
}

/** Input tensor of the model for a payload format. */
function tensorOf(payload: PayloadFormat, images: readonly LoadImage[]): Tensor {
  if (payload === "fp32") return inputTensor(stack(images), images.length);
  const [{ name, dataType, dims }] = (payload === "jpeg" ? openclipVitB32Jpeg : openclipVitB32U8)
    .inputs;
  const shape = [images.length, ...dims];
  return dataType === "BYTES"
    ? { name, dataType, shape, data: images.map(({ bytes }) => bytes) }
    : { name, dataType, shape, data: Buffer.concat(images.map(({ tensor }) => pixelsOf(tensor))) };
}
