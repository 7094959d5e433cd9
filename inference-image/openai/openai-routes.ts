import { maxJsonBytes } from "../../client/triton/parse-json.ts";
import { maxImagesPerRequest, warningHeader } from "../../contract/embed-api.ts";
import { embedRoutes } from "../../contract/embed-routes.ts";
import type { Modality, ModelSpec } from "../../contract/model-spec.ts";
import type { ModelResponse } from "../../contract/openai-api.ts";
import { tooManyImages } from "../../http/embed-error.ts";
import type { AddRoute } from "../embed/add-route.ts";
import { type EmbedJob, embedHandler, jsonBodyOf } from "../embed/embed-handler.ts";
import { textsInQueue } from "../embed/embed-pipeline.ts";
import type { ServedModels } from "../models/served-models.ts";
import { embedInputs, inOrder, type OpenAiRoutesOptions } from "./embed-inputs.ts";
import { type EmbeddingsBody, embeddingsParser } from "./embeddings-body.ts";
import { checkDimensions, embeddingsBody, truncated } from "./embeddings-response.ts";

/** Registers `POST /v1/embeddings`, `GET /v1/models` and `GET /v1/models/{model}`. */
export function registerOpenAiRoutes(addRoute: AddRoute, options: OpenAiRoutesOptions): void {
  const { requests, models, maxBodyBytes } = options;
  addRoute(
    embedRoutes.openAiEmbeddings,
    embedHandler(
      options,
      (request) => options.bodies.parse(embeddingsParser, jsonBodyOf(request)),
      (body) => embeddingsJob(body, options),
    ),
    requests.hook(["application/json"], Math.min(maxJsonBytes, maxBodyBytes)),
  );
  const created = Math.floor(Date.now() / 1000);
  addRoute(embedRoutes.openAiModels, async () => ({
    object: "list",
    data: modelEntries(models, created),
  }));
  addRoute(embedRoutes.openAiModel, async ({ params }) => {
    const { model } = params as { readonly model: string };
    models.checkName(model);
    return modelEntries(models, created).find(({ id }) => id === model);
  });
}

function modelEntries(models: ServedModels, created: number): readonly ModelResponse[] {
  const loaded = new Map(models.all.map((model) => [model.spec.name, model]));
  return models.specs.map((spec) => {
    const served = loaded.get(spec.name);
    const towers: Partial<Record<Modality, unknown>> = served ?? spec.towers;
    return {
      id: spec.name,
      object: "model",
      created,
      owned_by: "clipstack",
      modalities: (["image", "text"] as const).filter((modality) => towers[modality] !== undefined),
      dimensions: spec.embedding.width,
      fingerprints: {
        image: served?.image?.embedder.fingerprint,
        text: served?.text?.embedder.fingerprint,
      },
    };
  });
}

function embeddingsJob(body: EmbeddingsBody, options: OpenAiRoutesOptions): EmbedJob {
  const { items, dimensions, format, ignored } = body;
  const spec = modelOf(options.models, body);
  checkDimensions(spec, dimensions);
  const texts = items.filter(({ kind }) => kind === "text").length;
  const images = items.length - texts;
  if (images > maxImagesPerRequest) throw tooManyImages(String(images));
  return {
    spec,
    items: items.length,
    queuedItems: images + Math.min(texts, textsInQueue(spec)),
    embed: (request) => embedInputs(spec, body, request, options),
    respond(embedded, reply) {
      if (ignored.length > 0) reply.header(warningHeader, ignoredFields(ignored));
      const width = dimensions ?? spec.embedding.width;
      const tokens = embedded.text?.tokens ?? [];
      return embeddingsBody({
        vectors: inOrder(items, embedded).map((vector) => truncated(vector, width)),
        format,
        model: spec.name,
        tokens: tokens.reduce((sum, count) => sum + count, 0),
      });
    },
  };
}

/** Value of the header `Warning` about fields of a request. Names are cut and reduced to characters that a header can contain. */
function ignoredFields(fields: readonly string[]): string {
  const names = fields.slice(0, maxNamedFields).map((name) => name.slice(0, 40));
  const rest = fields.length > maxNamedFields ? ` and ${fields.length - maxNamedFields} more` : "";
  return `299 - "ignored fields: ${names.join(", ").replaceAll(/[^\w, .-]/g, "?")}${rest}"`;
}

const maxNamedFields = 10;

/**
 * Returns the model of a request; by default the first one with all modalities of the input.
 *
 * @throws {EmbedError} `unknown_model` or `unsupported_modality`
 */
function modelOf(models: ServedModels, { model, items }: EmbeddingsBody): ModelSpec {
  const modalities = [...new Set(items.map(({ kind }) => (kind === "text" ? "text" : "image")))];
  const able = models.all.find((served) => modalities.every((it) => served[it] !== undefined));
  const [first] = modalities.map((modality) => models[modality](model ?? able?.spec.name));
  return first!.spec;
}
