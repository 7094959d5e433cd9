import { encodeGrpcRequest, methodOf } from "../../client/triton/wire-grpc.ts";
import { encodeInferRequest } from "../../client/triton/wire-http.ts";
import type { BenchEndpoint, PayloadFormat } from "../../contract/bench-endpoint.ts";
import { type EmbedTextRequest, embedPaths } from "../../contract/embed-api.ts";
import { hasEmbedApi } from "../../contract/environment.ts";
import {
  type ImagePayload,
  imagePixels,
  imageTensor,
  imageTowerOf,
  textTowerOf,
} from "../../contract/model-shapes.ts";
import { type ImageTower, type ModelSpec, valueRanges } from "../../contract/model-spec.ts";
import { elementCount, type Tensor } from "../../contract/tensor.ts";
import { tritonModelName } from "../../contract/triton-models.ts";
import { UserError } from "../../contract/user-error.ts";
import { isForDali } from "../../inference/preprocess/dali-files.ts";
import { paddedTensor } from "../../inference/session/payload-format.ts";
import { tokenTensor } from "../../inference/session/token-tensor.ts";
import { type EncodedImage, embedPath, multipart } from "./embed-requests.ts";
import { inputTensor, stack } from "./infer.ts";
import {
  isLoadText,
  type LoadImage,
  type LoadItem,
  type LoadText,
  loadImages,
} from "./load-items.ts";
import type { PreparedRequest, PreparedRequests } from "./prepared-requests.ts";
import { protocolOf } from "./server-protocol.ts";
import type { TargetEndpoint } from "./target-endpoint.ts";

/** Media type of embeddings as float32 rows. */
const binary = "application/octet-stream";

/** Maximum total size of a load's request bodies; larger loads use fewer distinct requests. */
const maxTotalBytes = 128 * 1024 * 1024;

/**
 * Builds the requests of a load: one per item, each starting with a different item, within a memory limit.
 *
 * An image is sent to the embed API as the file itself, several as `multipart/form-data`, and texts as JSON; all request
 * float32 rows instead of JSON. Requests to Triton use the binary tensor extension unless `serialization` is JSON.
 */
export async function prepareRequests(
  target: Pick<TargetEndpoint, "endpoint" | "url" | "model" | "spec" | "jpegKind" | "apiKey">,
  format: Pick<BenchEndpoint, "payload" | "serialization">,
  items: readonly LoadItem[],
  batch: number,
): Promise<PreparedRequests> {
  const requests =
    format.payload === "text"
      ? await writeAll(items.filter(isLoadText), batch, textWriter(target))
      : await writeAll(imagesFor(target, format, items), batch, imageWriter(target, format));
  return {
    transport: isGrpc(target) ? "grpc" : "http",
    url: target.url,
    path: pathOf(target, format),
    headers: target.apiKey === undefined ? {} : { authorization: `Bearer ${target.apiKey}` },
    requests,
    imagesPerRequest: batch,
  };
}

/**
 * Builds the requests of a load on the embed API, without tensors.
 *
 * @param url - May include a path, such as that of the Kubernetes API server's proxy to a Service.
 */
export async function prepareEmbedRequests(
  { url, apiKey }: Pick<TargetEndpoint, "url" | "apiKey">,
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

async function writeAll<Item>(
  items: readonly Item[],
  batch: number,
  write: (items: readonly Item[]) => Promise<PreparedRequest>,
): Promise<PreparedRequest[]> {
  const [first] = items;
  if (first === undefined) throw new UserError("a load needs an image or a text, got none");
  const requests: PreparedRequest[] = [];
  let bytes = 0;
  while (requests.length < items.length) {
    const batchItems = Array.from(
      { length: batch },
      (_, i) => items[(requests.length + i) % items.length] ?? first,
    );
    const request = await write(batchItems);
    bytes += request.body.byteLength;
    if (bytes > maxTotalBytes && requests.length > 0) break;
    requests.push(request);
  }
  return requests;
}

/** Returns the name of the Triton model that accepts a payload format. */
export function modelFor({ model, spec, jpegKind }: BenchModel, payload: PayloadFormat): string {
  if (payload === "fp32" || payload === "text") return model;
  return tritonModelName(spec, payload === "uint8" ? "u8" : (jpegKind ?? "jpeg"));
}

/** Model of a Triton server, and its model kind for JPEG files. */
export type BenchModel = Pick<TargetEndpoint, "model" | "spec"> & {
  readonly jpegKind?: TargetEndpoint["jpegKind"] | undefined;
};

/** 8-bit RGB pixels of a preprocessed image, interleaved; reverses the normalisation exactly. */
export function pixelsOf(tower: ImageTower, tensor: Float32Array): Uint8Array {
  const { mean, std, valueRange, channelOrder, layout } = tower.input;
  const channels = mean.length;
  const pixels = new Uint8Array(elementCount(imagePixels(tower).dims));
  const plane = pixels.length / channels;
  const scale = 255 / valueRanges[valueRange];
  mean.forEach((average, channel) => {
    const rgb = channelOrder === "rgb" ? channel : channels - 1 - channel;
    for (let i = 0; i < plane; i++) {
      const at = layout === "nchw" ? channel * plane + i : i * channels + channel;
      const value = (tensor[at] ?? 0) * (std[channel] ?? 1) + average;
      pixels[i * channels + rgb] = Math.round(value * scale);
    }
  });
  return pixels;
}

function isGrpc({ endpoint }: Pick<TargetEndpoint, "endpoint">): boolean {
  return endpoint === "onnx-grpc" || endpoint === "trt-grpc";
}

function pathOf(target: Target, { payload }: Pick<BenchEndpoint, "payload">): string {
  const protocol = protocolOf(target.endpoint);
  if (protocol !== undefined) return protocol.path;
  if (isGrpc(target)) return methodOf("ModelInfer").path;
  if (hasEmbedApi(target.endpoint)) {
    return payload === "text" ? embedPaths.embedText : embedPath(target.spec);
  }
  return `/v2/models/${encodeURIComponent(modelFor(target, payload))}/infer`;
}

type Target = Pick<TargetEndpoint, "endpoint"> & BenchModel;

/** Returns whether a Triton server, not a gateway, receives the files for DALI. */
function usesDali(
  { endpoint, jpegKind }: Target,
  { payload }: Pick<BenchEndpoint, "payload">,
): boolean {
  return endpoint !== "embed-http" && payload === "jpeg" && jpegKind !== undefined;
}

/** Returns the images that a target can decode. With DALI, only those that a gateway forwards to it. */
function imagesFor(
  target: Target,
  format: Pick<BenchEndpoint, "payload">,
  items: readonly LoadItem[],
): readonly LoadImage[] {
  const images = loadImages(items);
  if (!usesDali(target, format)) return images;
  const found = images.filter(({ bytes }) => isForDali(bytes, Number.POSITIVE_INFINITY));
  if (found.length > 0) return found;
  throw new UserError("DALI needs a JPEG with 8 bits per sample, grey or RGB, got none");
}

type Write<Item> = (items: readonly Item[]) => Promise<PreparedRequest>;

function imageWriter(
  target: Target,
  format: Pick<BenchEndpoint, "payload" | "serialization">,
): Write<LoadImage> {
  const writeJson = jsonWriter(target);
  if (writeJson !== undefined) return writeJson;
  if (hasEmbedApi(target.endpoint)) return writeEmbed;
  const { payload } = format;
  if (payload === "text") throw new Error("payload format text is not one of images");
  const tower = imageTowerOf(target.spec);
  const isForPipeline = usesDali(target, format);
  return tensorWriter(target, format, (images) =>
    isForPipeline
      ? paddedTensor(
          images.map(({ bytes }) => bytes),
          tower,
        )
      : tensorOf(tower, payload, images),
  );
}

function textWriter(target: Target): Write<LoadText> {
  const writeJson = jsonWriter(target);
  if (writeJson !== undefined) return writeJson;
  if (hasEmbedApi(target.endpoint)) return (texts) => writeTexts(target.spec, texts);
  const tower = textTowerOf(target.spec);
  const format = { payload: "text", serialization: "binary" } as const;
  return tensorWriter(target, format, (texts) =>
    tokenTensor(
      tower,
      texts.map(({ ids }) => ids),
    ),
  );
}

/** Writes requests to a server that is not clipstack's; undefined if the target is none. */
function jsonWriter({ endpoint, model }: Target): Write<LoadItem> | undefined {
  const protocol = protocolOf(endpoint);
  if (protocol === undefined) return undefined;
  return async (items) => ({
    headers: { "content-type": "application/json" },
    body: Buffer.from(JSON.stringify(protocol.body(items, model))),
  });
}

/** Writes requests to a Triton server. */
function tensorWriter<Item>(
  target: Target,
  { payload, serialization }: Pick<BenchEndpoint, "payload" | "serialization">,
  input: (items: readonly Item[]) => Tensor,
): Write<Item> {
  if (isGrpc(target)) {
    const model = modelFor(target, payload);
    const method = methodOf("ModelInfer");
    return async (items) => ({
      headers: {},
      body: method.requestSerialize(encodeGrpcRequest(model, [input(items)], {})),
    });
  }
  return async (items) => {
    const { headers, chunks } = encodeInferRequest([input(items)], { encoding: serialization });
    return { headers, body: Buffer.concat(chunks) };
  };
}

async function writeTexts(
  { name }: Pick<ModelSpec, "name">,
  texts: readonly LoadText[],
): Promise<PreparedRequest> {
  const body: EmbedTextRequest = { texts: texts.map(({ text }) => text), model: name };
  return {
    headers: { accept: binary, "content-type": "application/json" },
    body: Buffer.from(JSON.stringify(body)),
  };
}

async function writeEmbed(images: readonly EncodedImage[]): Promise<PreparedRequest> {
  const accept = binary;
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
function tensorOf(tower: ImageTower, payload: ImagePayload, images: readonly LoadImage[]): Tensor {
  if (payload === "fp32") return inputTensor(tower, stack(images), images.length);
  const { name, dims } = imageTensor(tower, payload);
  const shape = [images.length, ...dims];
  if (payload === "jpeg") {
    return { name, dataType: "BYTES", shape, data: images.map(({ bytes }) => bytes) };
  }
  const data = Buffer.concat(images.map(({ tensor }) => pixelsOf(tower, tensor)));
  return { name, dataType: "UINT8", shape, data };
}
