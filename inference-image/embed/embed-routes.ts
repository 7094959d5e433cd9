import type { FastifyReply, FastifyRequest } from "fastify";
import { maxJsonBytes } from "../../client/triton/parse-json.ts";
import {
  embeddingShapeHeader,
  imageContentTypes,
  modelParameter,
} from "../../contract/embed-api.ts";
import { embedRoutes } from "../../contract/embed-routes.ts";
import type { Admission } from "../../http/admission.ts";
import { EmbedError } from "../../http/embed-error.ts";
import { isTransferable } from "../../inference/transferable.ts";
import type { JsonThread } from "../http/json-thread.ts";
import type { AddRoute } from "./add-route.ts";
import { type EmbedPipeline, type StageTimes, textsInQueue } from "./embed-pipeline.ts";
import { type ImageRequest, repeatedModel } from "./form-files.ts";
import type { EmbedMetrics, TowerMetrics } from "./metrics.ts";
import type { AdmittedRequest, RequestAdmission } from "./request-admission.ts";
import { imagesOfBody } from "./request-images.ts";
import { binaryBody, jsonBody } from "./response-body.ts";
import { identify } from "./response-identity.ts";
import type { ServedModels } from "./served-models.ts";
import { noTimes, recordTimes } from "./server-timing.ts";

export interface EmbedRoutesOptions {
  readonly models: ServedModels;
  readonly requests: RequestAdmission;
  readonly pipeline: EmbedPipeline;
  readonly admission: Admission;
  readonly json: JsonThread;
  readonly metrics: EmbedMetrics;
  readonly maxBodyBytes: number;
}

/** Registers `POST /embed`, `POST /embed/base64` and `POST /embed/text`. */
export function registerEmbedRoutes(addRoute: AddRoute, options: EmbedRoutesOptions): void {
  const { requests, json, maxBodyBytes, models } = options;
  const multipartOrImage = ["multipart/form-data", ...imageContentTypes];
  const admit = requests.hook(multipartOrImage, maxBodyBytes);
  const admitJson = requests.hook(["application/json"], Math.min(maxJsonBytes, maxBodyBytes));
  addRoute(
    embedRoutes.embed,
    (request, reply) =>
      embedImages(
        request,
        reply,
        async () => withModel(await imagesOfBody(request, json), modelOf(request)),
        options,
      ),
    async (request, reply) => {
      // before the body is received
      models.checkName(modelOf(request));
      await admit(request, reply);
    },
  );
  addRoute(
    embedRoutes.embedBase64,
    (request, reply) => embedImages(request, reply, () => json.images(bodyOf(request)), options),
    admitJson,
  );
  addRoute(
    embedRoutes.embedText,
    (request, reply) => embedTexts(request, reply, options),
    admitJson,
  );
}

/** Name of the model in the query of a request. */
function modelOf({ query }: FastifyRequest): string | undefined {
  const name = (query as Record<string, unknown>)[modelParameter];
  if (name === undefined || typeof name === "string") return name;
  throw repeatedModel();
}

/** Request with the model of its query, or of its form. */
function withModel(form: ImageRequest, queried: string | undefined): ImageRequest {
  if (queried === undefined) return form;
  if (form.model !== undefined && form.model !== queried) throw repeatedModel();
  return { ...form, model: queried };
}

function bodyOf({ body }: FastifyRequest): Buffer {
  if (Buffer.isBuffer(body)) return body;
  throw new EmbedError("bad_request", "the body is empty: send JSON");
}

async function embedImages(
  request: FastifyRequest,
  reply: FastifyReply,
  read: () => Promise<ImageRequest>,
  { models, requests, pipeline, admission, metrics }: EmbedRoutesOptions,
): Promise<FastifyReply> {
  const admitted = requests.of(request);
  const { reservation, signal } = admitted;
  const { images, model: name } = await read();
  signal.throwIfAborted();
  reservation.parsed();
  const model = models.image(name);
  admitted.model = model.spec.name;
  admission.checkItems(images.length);
  const times = noTimes();
  metrics.pending(images.length);
  // images that share one body cannot be transferred to different threads
  const transferable =
    images.every(isTransferable) ||
    (images.length === 1 && request.body instanceof Uint8Array && isTransferable(request.body));
  const file = transferable ? "transferred" : "copied";
  const vectors = await pipeline
    .images(model, images, { signal, file }, times)
    .finally(() => metrics.pending(-images.length));
  identify(reply, model.spec.name, { image: model.embedder.fingerprint });
  const tower = metrics.tower(model.spec.name, "image");
  tower.embedded(vectors.length);
  admission.recordCompleted(vectors.length);
  return await sendVectors(request, reply, vectors, { admitted, times, tower });
}

async function embedTexts(
  request: FastifyRequest,
  reply: FastifyReply,
  { models, requests, pipeline, admission, metrics, json }: EmbedRoutesOptions,
): Promise<FastifyReply> {
  const admitted = requests.of(request);
  const { reservation, signal } = admitted;
  const { texts, model: name } = await json.texts(bodyOf(request));
  signal.throwIfAborted();
  reservation.parsed();
  const model = models.text(name ?? undefined);
  admitted.model = model.spec.name;
  admission.checkItems(Math.min(texts.length, textsInQueue(model.spec)));
  const times = noTimes();
  metrics.pending(texts.length);
  const { vectors } = await pipeline
    .texts(model, texts, { signal }, times)
    .finally(() => metrics.pending(-texts.length));
  identify(reply, model.spec.name, { text: model.embedder.fingerprint });
  const tower = metrics.tower(model.spec.name, "text");
  tower.embedded(vectors.length);
  admission.recordCompleted(vectors.length);
  return await sendVectors(request, reply, vectors, { admitted, times, tower });
}

interface SendOptions {
  readonly admitted: AdmittedRequest;
  readonly times: StageTimes;
  readonly tower: TowerMetrics;
}

/** Sends embeddings as JSON or, if the client accepts it, as float32. */
async function sendVectors(
  { headers }: FastifyRequest,
  reply: FastifyReply,
  vectors: readonly Float32Array[],
  { admitted, times, tower }: SendOptions,
): Promise<FastifyReply> {
  const binary = headers.accept?.includes("application/octet-stream") ?? false;
  const body = binary ? binaryBody(vectors) : await jsonBody(vectors, admitted.model ?? "");
  recordTimes(reply, admitted, times, tower);
  if (binary) {
    reply
      .type("application/octet-stream")
      .header(embeddingShapeHeader, `${vectors.length},${vectors[0]!.length}`);
  }
  return reply.send(body);
}
