import { z } from "zod";
import {
  embedBase64Request,
  embeddingShapeHeader,
  embedErrorResponse,
  embedResponse,
  healthResponse,
  imageContentTypes,
  maxImagesPerRequest,
  readyResponse,
  serverTimingHeader,
  timeoutMicroseconds,
  timeoutParameter,
} from "../../contract/embed-api.ts";
import { type EmbedRouteName, embedRoutes } from "../../contract/embed-routes.ts";

/**
 * OpenAPI 3.1 document of the embed API, derived from its routes and from the schemas that validate requests.
 *
 * @param requiresKey - Whether this server requires a bearer token.
 */
export function openApiDocument(requiresKey = false): Readonly<Record<string, unknown>> {
  return {
    openapi: "3.1.0",
    info: {
      title: "clipstack embed API",
      version: "1",
      description:
        "OpenCLIP image embeddings: image files in, unit-norm vectors of 512 floats out.",
    },
    paths: Object.fromEntries(
      operations.map((operation) => {
        const { method, path } = embedRoutes[operation.route];
        return [path, { [method.toLowerCase()]: operationObject(operation, requiresKey) }];
      }),
    ),
    components: {
      ...(requiresKey ? { securitySchemes: { key: { type: "http", scheme: "bearer" } } } : {}),
      schemas: Object.fromEntries(
        Object.entries(schemas).map(([name, schema]) => [
          name,
          withoutDialect(z.toJSONSchema(schema)),
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
      ...(requiresKey ? { 401: response("The bearer token is missing or wrong.", "Error") } : {}),
    },
  };
}

const schemas = {
  EmbedBase64Request: embedBase64Request,
  EmbedResponse: embedResponse,
  Error: embedErrorResponse,
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

const embedParameters = [
  {
    name: timeoutParameter,
    in: "query",
    description: "Maximum time for the response, in microseconds; beyond it 504.",
    schema: withoutDialect(z.toJSONSchema(timeoutMicroseconds)),
  },
];

const embedResponses = {
  200: {
    description: "One vector per image, in the order of the request.",
    headers: {
      [embeddingShapeHeader]: {
        description: "Rows and columns of the binary response, for example `2,512`.",
        schema: { type: "string" },
      },
      [serverTimingHeader]: {
        description:
          "Milliseconds spent receiving the body, decoding, in the queue and in inference, and in total.",
        schema: { type: "string" },
        example:
          "receive;dur=0.104, decode;dur=1.873, queue;dur=0.031, infer;dur=35.201, total;dur=37.518",
      },
    },
    content: {
      ...json("EmbedResponse"),
      "application/octet-stream": {
        schema: { ...binary, description: "float32, little endian, row-major" },
      },
    },
  },
  400: response("Malformed request.", "Error"),
  408: response("The body arrives too slowly.", "Error"),
  413: response(
    "Body (16 MiB of JSON), pixels of an image, or number of images exceeds the limit.",
    "Error",
  ),
  415: response("Not a JPEG, PNG or WebP file.", "Error"),
  422: response("The image cannot be decoded.", "Error"),
  429: {
    ...response("The queue is full.", "Error"),
    headers: {
      "retry-after": { description: "Seconds.", schema: { type: "integer" } },
    },
  },
  503: response("Starting, draining, or no healthy Triton behind the gateway.", "Error"),
  504: response("No response within `timeout`, or none from a Triton behind the gateway.", "Error"),
};

const operations: readonly Operation[] = [
  {
    route: "embed",
    operationId: "embed",
    summary: "Embed image files",
    parameters: embedParameters,
    requestBody: {
      required: true,
      content: {
        "multipart/form-data": {
          schema: {
            type: "object",
            properties: {
              images: {
                type: "array",
                items: binary,
                minItems: 1,
                maxItems: maxImagesPerRequest,
              },
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
    parameters: embedParameters,
    requestBody: {
      required: true,
      content: {
        "application/json": {
          schema: ref("EmbedBase64Request"),
          example: { images: [onePixel] },
        },
      },
    },
    responses: embedResponses,
  },
  {
    route: "healthz",
    operationId: "live",
    summary: "Liveness",
    responses: { 200: response("Alive.", "Health") },
  },
  {
    route: "health",
    operationId: "health",
    summary: "Liveness, as /healthz",
    responses: { 200: response("Alive.", "Health") },
  },
  {
    route: "readyz",
    operationId: "ready",
    summary: "Readiness",
    responses: {
      200: response("The model is warm.", "Ready"),
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

/** Removes `$schema`: it is the default dialect of OpenAPI 3.1. */
function withoutDialect({ $schema, ...schema }: Readonly<Record<string, unknown>>) {
  return schema;
}
