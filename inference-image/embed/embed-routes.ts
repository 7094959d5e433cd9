import type { FastifyReply, FastifyRequest } from "fastify";
import { maxJsonBytes } from "../../client/triton/parse-json.ts";
import {
  type EmbedTextRequest,
  embeddingShapeHeader,
  imageContentTypes,
  modelParameter,
} from "../../contract/embed-api.ts";
import { embedRoutes } from "../../contract/embed-routes.ts";
import { isTransferable } from "../../inference/threads/transferable.ts";
import type { ServedModels } from "../models/served-models.ts";
import type { AddRoute } from "./add-route.ts";
import { base64Parser } from "./base64-images.ts";
import type { BodyThread } from "./body-thread.ts";
import {
  type EmbedHandlerOptions,
  type EmbedJob,
  embedHandler,
  jsonBodyOf,
} from "./embed-handler.ts";
import { type EmbedPipeline, textsInQueue } from "./embed-pipeline.ts";
import { type ImageRequest, repeatedModel } from "./form-files.ts";
import { textParser } from "./parse-body.ts";
import { imagesOfBody } from "./request-images.ts";
import { binaryBody, jsonBody } from "./response-body.ts";

export interface EmbedRoutesOptions extends EmbedHandlerOptions {
  readonly models: ServedModels;
  readonly pipeline: EmbedPipeline;
  readonly bodies: BodyThread;
  readonly maxBodyBytes: number;
}

/** Registers `POST /embed`, `POST /embed/base64` and `POST /embed/text`. */
export function registerEmbedRoutes(addRoute: AddRoute, options: EmbedRoutesOptions): void {
  const { requests, bodies, maxBodyBytes, models } = options;
  const multipartOrImage = ["multipart/form-data", ...imageContentTypes];
  const admit = requests.hook(multipartOrImage, maxBodyBytes);
  const admitJson = requests.hook(["application/json"], Math.min(maxJsonBytes, maxBodyBytes));
  addRoute(
    embedRoutes.embed,
    embedHandler(
      options,
      async (request) => withModel(await imagesOfBody(request, bodies), modelOf(request)),
      (parsed, request) => imageJob(parsed, request, options),
    ),
    async (request, reply) => {
      // before the body is received
      models.checkName(modelOf(request));
      await admit(request, reply);
    },
  );
  addRoute(
    embedRoutes.embedBase64,
    embedHandler(
      options,
      (request) => bodies.parse(base64Parser, jsonBodyOf(request)),
      (parsed, request) => imageJob(parsed, request, options),
    ),
    admitJson,
  );
  addRoute(
    embedRoutes.embedText,
    embedHandler(
      options,
      (request) => bodies.parse(textParser, jsonBodyOf(request)),
      (parsed, request) => textJob(parsed, request, options),
    ),
    admitJson,
  );
}

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

function imageJob(
  { images, model: name }: ImageRequest,
  request: FastifyRequest,
  { models, pipeline }: EmbedRoutesOptions,
): EmbedJob {
  const model = models.image(name);
  const { body } = request;
  // images that share one body cannot be transferred to different threads
  const transferable =
    images.every(isTransferable) ||
    (images.length === 1 && body instanceof Uint8Array && isTransferable(body));
  const file = transferable ? "transferred" : "copied";
  return {
    spec: model.spec,
    items: images.length,
    queuedItems: images.length,
    embed: async (options) => ({
      image: await pipeline.images(model, images, { ...options, file }),
    }),
    respond: ({ image }, reply) => vectorsBody(request, reply, image!.vectors, model.spec.name),
  };
}

function textJob(
  { texts, model: name }: EmbedTextRequest,
  request: FastifyRequest,
  { models, pipeline }: EmbedRoutesOptions,
): EmbedJob {
  const model = models.text(name ?? undefined);
  return {
    spec: model.spec,
    items: texts.length,
    queuedItems: Math.min(texts.length, textsInQueue(model.spec)),
    embed: async (options) => ({ text: await pipeline.texts(model, texts, options) }),
    respond: ({ text }, reply) => vectorsBody(request, reply, text!.vectors, model.spec.name),
  };
}

/** Embeddings as JSON or, if the client accepts it, as float32. */
async function vectorsBody(
  { headers }: FastifyRequest,
  reply: FastifyReply,
  vectors: readonly Float32Array[],
  model: string,
): Promise<Buffer> {
  if (!headers.accept?.includes("application/octet-stream")) return await jsonBody(vectors, model);
  reply
    .type("application/octet-stream")
    .header(embeddingShapeHeader, `${vectors.length},${vectors[0]!.length}`);
  return binaryBody(vectors);
}
