import { z } from "zod";
import {
  embedBase64Request,
  embeddingShapeHeader,
  embedErrorResponse,
  embedResponse,
  embedTextRequest,
  fingerprintHeader,
  healthResponse,
  imageContentTypes,
  maxImagesPerRequest,
  modelHeader,
  modelName,
  modelParameter,
  readyResponse,
  serverTimingHeader,
  timeoutMicroseconds,
  timeoutParameter,
  warningHeader,
} from "../../contract/embed-api.ts";
import { type EmbedRouteName, embedRoutes } from "../../contract/embed-routes.ts";
import {
  embeddingsRequest,
  embeddingsResponse,
  modelResponse,
  modelsResponse,
  openAiErrorResponse,
  openAiPrefix,
} from "../../contract/openai-api.ts";

export interface OpenApiOptions {
  /** Whether this server requires a bearer token. */
  readonly requiresKey: boolean;
  /** Names of the served models, the default first. */
  readonly models: readonly string[];
}

/** OpenAPI 3.1 document of the embed API, derived from its routes and from the schemas that validate requests. */
export function openApiDocument({
  requiresKey,
  models,
}: OpenApiOptions): Readonly<Record<string, unknown>> {
  return {
    openapi: "3.1.0",
    info: {
      title: "clipstack embed API",
      version: "1",
      description:
        "Embeddings of images and texts: image files or texts in, unit-norm vectors out.",
    },
    paths: Object.fromEntries(
      operationsOf(models).map((operation) => {
        const { method, path } = embedRoutes[operation.route];
        return [
          path.replace(/:(\w+)/g, "{$1}"),
          { [method.toLowerCase()]: operationObject(operation, requiresKey) },
        ];
      }),
    ),
    components: {
      ...(requiresKey ? { securitySchemes: { key: { type: "http", scheme: "bearer" } } } : {}),
      schemas: Object.fromEntries(
        Object.entries(schemas).map(([name, schema]) => [
          name,
          withModels(
            withoutDialect(
              z.toJSONSchema(schema, { io: name.endsWith("Request") ? "input" : "output" }),
            ),
            models,
          ),
        ]),
      ),
    },
  };
}

interface Operation {
  readonly route: EmbedRouteName;
  readonly operationId: string;
  readonly summary: string;
  readonly parameters?: readonly object[];
  readonly requestBody?: object;
  /** By status; 401 is added to routes that require a key. */
  readonly responses: Readonly<Record<number, object>>;
}

function operationObject(
  { route, responses, ...operation }: Operation,
  serverRequiresKey: boolean,
) {
  const { operationId, summary, ...rest } = operation;
  const requiresKey = serverRequiresKey && embedRoutes[route].requiresKey;
  return {
    operationId,
    summary,
    ...(requiresKey ? { security: [{ key: [] }] } : {}),
    ...rest,
    responses: {
      ...responses,
      ...(requiresKey
        ? { 401: response("The bearer token is missing or wrong.", errorSchemaOf(route)) }
        : {}),
    },
  };
}

function errorSchemaOf(route: EmbedRouteName): SchemaName {
  return embedRoutes[route].path.startsWith(openAiPrefix) ? "OpenAiError" : "Error";
}

const schemas = {
  EmbedBase64Request: embedBase64Request,
  EmbedTextRequest: embedTextRequest,
  EmbedResponse: embedResponse,
  Error: embedErrorResponse,
  EmbeddingsRequest: embeddingsRequest,
  EmbeddingsResponse: embeddingsResponse,
  Model: modelResponse,
  Models: modelsResponse,
  OpenAiError: openAiErrorResponse,
  Health: healthResponse,
  Ready: readyResponse,
};
type SchemaName = keyof typeof schemas;

const ref = (name: SchemaName) => ({ $ref: `#/components/schemas/${name}` });
const json = (name: SchemaName) => ({ "application/json": { schema: ref(name) } });
const response = (description: string, name: SchemaName) => ({ description, content: json(name) });

const binary = { type: "string", format: "binary" };

/** PNG file of one pixel, in base64. */
const onePixel =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

const timeoutParameters = [
  {
    name: timeoutParameter,
    in: "query",
    description: "Maximum time for the response, in microseconds; beyond it 504.",
    schema: withoutDialect(z.toJSONSchema(timeoutMicroseconds)),
  },
];

const timingHeader = {
  [serverTimingHeader]: {
    description:
      "Milliseconds spent receiving the body, decoding images or tokenizing texts, in the queue and in inference, downloading images, and in total.",
    schema: { type: "string" },
    example:
      "receive;dur=0.104, decode;dur=1.873, queue;dur=0.031, infer;dur=35.201, total;dur=37.518",
  },
};

const identityHeaders = {
  [modelHeader]: { description: "Name of the model.", schema: { type: "string" } },
  [fingerprintHeader]: {
    description:
      "Fingerprint of each modality in the response, if known: identifies the weights, preprocessing and precision.",
    schema: { type: "string" },
    example: `image=${"0123456789abcdef".repeat(4)}`,
  },
};

const embedResponses = {
  200: {
    description: "One vector per image or text, in the order of the request.",
    headers: {
      [embeddingShapeHeader]: {
        description: "Rows and columns of the binary response, for example `2,512`.",
        schema: { type: "string" },
      },
      ...timingHeader,
      ...identityHeaders,
    },
    content: {
      ...json("EmbedResponse"),
      "application/octet-stream": {
        schema: { ...binary, description: "float32, little endian, row-major" },
      },
    },
  },
  400: response("Malformed request, or the model embeds no images or no texts.", "Error"),
  404: response("The server does not serve the model.", "Error"),
  408: response("The body arrives too slowly.", "Error"),
  413: response(
    "Body (16 MiB of JSON), pixels of an image, length of a text, or number of images or texts exceeds the limit.",
    "Error",
  ),
  415: response("Not a JPEG, PNG or WebP file.", "Error"),
  422: response("The image cannot be decoded.", "Error"),
  429: {
    ...response("The queue is full, or the client exceeds the rate of its key.", "Error"),
    headers: {
      "retry-after": { description: "Seconds.", schema: { type: "integer" } },
    },
  },
  503: response("Starting, draining, or no healthy Triton server behind the gateway.", "Error"),
  504: response(
    "No response within `timeout`, or none from a Triton server behind the gateway.",
    "Error",
  ),
};

/** Errors of `POST /v1/embeddings`: those of the other routes, in OpenAI's format. */
const openAiErrorResponses = Object.fromEntries(
  Object.entries(embedResponses).flatMap(([status, { description, ...rest }]) =>
    status === "200" ? [] : [[status, { ...rest, ...response(description, "OpenAiError") }]],
  ),
);

/** JSON body of a request. */
const jsonRequest = (name: SchemaName, example: object) => ({
  required: true,
  content: { "application/json": { schema: ref(name), example } },
});

/** @param models - Names of the served models. */
const openAiOperations = (models: readonly string[]): readonly Operation[] => [
  {
    route: "openAiEmbeddings",
    operationId: "createEmbedding",
    summary: "Embed texts and images, compatible with OpenAI's API",
    parameters: timeoutParameters,
    requestBody: jsonRequest("EmbeddingsRequest", { input: [{ image: onePixel }] }),
    responses: {
      200: {
        ...response("One embedding per input, in the order of the request.", "EmbeddingsResponse"),
        headers: {
          ...timingHeader,
          ...identityHeaders,
          [warningHeader]: {
            description: "Names of the request's fields that the server ignores.",
            schema: { type: "string" },
            example: '299 - "ignored fields: task"',
          },
        },
      },
      ...openAiErrorResponses,
    },
  },
  {
    route: "openAiModels",
    operationId: "listModels",
    summary: "Served models, compatible with OpenAI's API",
    responses: { 200: response("The models in the order of MODELS.", "Models") },
  },
  {
    route: "openAiModel",
    operationId: "retrieveModel",
    summary: "A served model, compatible with OpenAI's API",
    parameters: [modelParameterObject("path", "Name of the model.", models)],
    responses: {
      200: response("The model.", "Model"),
      404: response("The server does not serve the model.", "OpenAiError"),
    },
  },
];

function modelParameterObject(
  at: "path" | "query",
  description: string | undefined,
  models: readonly string[],
) {
  return {
    name: modelParameter,
    in: at,
    ...(at === "path" && { required: true }),
    description,
    schema: { type: "string", enum: models },
  };
}

/** @param models - Names of the served models. */
const embedOperations = (models: readonly string[]): readonly Operation[] => [
  {
    route: "embed",
    operationId: "embed",
    summary: "Embed image files",
    parameters: [
      modelParameterObject("query", modelName.description, models),
      ...timeoutParameters,
    ],
    requestBody: {
      required: true,
      content: {
        "multipart/form-data": {
          schema: {
            type: "object",
            properties: {
              images: { type: "array", items: binary, minItems: 1, maxItems: maxImagesPerRequest },
              [modelParameter]: { type: "string", enum: models },
            },
            required: ["images"],
          },
        },
        ...Object.fromEntries(imageContentTypes.map((type) => [type, { schema: binary }])),
      },
    },
    responses: embedResponses,
  },
  {
    route: "embedBase64",
    operationId: "embedBase64",
    summary: "Embed base64-encoded image files",
    parameters: timeoutParameters,
    requestBody: jsonRequest("EmbedBase64Request", { images: [onePixel] }),
    responses: embedResponses,
  },
  {
    route: "embedText",
    operationId: "embedText",
    summary: "Embed texts",
    parameters: timeoutParameters,
    requestBody: jsonRequest("EmbedTextRequest", {
      texts: ["a photo of a dog", "sunset at the beach"],
    }),
    responses: embedResponses,
  },
];

const operationsOf = (models: readonly string[]): readonly Operation[] => [
  ...embedOperations(models),
  ...openAiOperations(models),
  ...(["healthz", "health"] as const).map((route) => ({
    route,
    operationId: { healthz: "live", health: "health" }[route],
    summary: { healthz: "Liveness", health: "Liveness, as /healthz" }[route],
    responses: { 200: response("Alive.", "Health") },
  })),
  {
    route: "readyz",
    operationId: "ready",
    summary: "Readiness",
    responses: {
      200: response("All models are warm.", "Ready"),
      503: response("Starting or draining.", "Ready"),
    },
  },
  {
    route: "metrics",
    operationId: "metrics",
    summary: "Prometheus metrics",
    responses: {
      200: {
        description: "Prometheus text format.",
        content: { [embedRoutes.metrics.mediaType]: { schema: { type: "string" } } },
      },
    },
  },
];

/** Restricts the field `model` of a request to the served models. */
function withModels(
  schema: Readonly<Record<string, unknown>>,
  models: readonly string[],
): Readonly<Record<string, unknown>> {
  const { properties } = schema as { readonly properties?: Readonly<Record<string, object>> };
  if (properties?.[modelParameter] === undefined) return schema;
  const model = { ...properties[modelParameter], enum: models };
  return { ...schema, properties: { ...properties, [modelParameter]: model } };
}

/** Removes `$schema`: it is the default dialect of OpenAPI 3.1. */
function withoutDialect({ $schema, ...schema }: Readonly<Record<string, unknown>>) {
  return schema;
}
