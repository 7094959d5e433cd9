import { z } from "zod";
import {
  embedBase64Request,
  embeddingShapeHeader,
  embedErrorResponse,
  embedPaths,
  embedResponse,
  healthResponse,
  imageContentTypes,
  maxImagesPerRequest,
  readyResponse,
  serverTimingHeader,
  timeoutMicroseconds,
  timeoutParameter,
} from "../../contract/embed-api.ts";

/** The smallest PNG file, in base64. */
const onePixel =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/**
 * OpenAPI 3.1 of the embed API, made from the schemas that validate it.
 *
 * @param needsKey - Whether this server asks for a bearer token.
 */
export function openApiDocument(needsKey = false): Readonly<Record<string, unknown>> {
  const schemas = {
    EmbedBase64Request: embedBase64Request,
    EmbedResponse: embedResponse,
    Error: embedErrorResponse,
    Health: healthResponse,
    Ready: readyResponse,
  };
  const ref = (name: keyof typeof schemas) => ({ $ref: `#/components/schemas/${name}` });
  const json = (name: keyof typeof schemas) => ({ "application/json": { schema: ref(name) } });
  const binary = { type: "string", format: "binary" };
  const answer = (description: string, name: keyof typeof schemas) => ({
    description,
    content: json(name),
  });
  const text = (description: string, contentType: string) => ({
    description,
    content: { [contentType]: { schema: { type: "string" } } },
  });

  const unauthorized = needsKey
    ? { 401: answer("The bearer token is missing or wrong.", "Error") }
    : {};
  const embedAnswers = {
    200: {
      description: "One vector an image, in the order of the request.",
      headers: {
        [embeddingShapeHeader]: {
          description: "Rows and columns of the raw answer, for example `2,512`.",
          schema: { type: "string" },
        },
        [serverTimingHeader]: {
          description:
            "Milliseconds: the body arrives, images are decoded, wait for their batch, are computed; all of the request.",
          schema: { type: "string" },
          example:
            "receive;dur=0.104, decode;dur=1.873, queue;dur=0.031, infer;dur=35.201, total;dur=37.518",
        },
      },
      content: {
        ...json("EmbedResponse"),
        "application/octet-stream": {
          schema: { ...binary, description: "float32, little endian, row after row" },
        },
      },
    },
    400: answer("Malformed request.", "Error"),
    ...unauthorized,
    408: answer("The body arrives too slowly while others wait.", "Error"),
    413: answer(
      "Body (16 MiB of JSON), pixels of an image, or number of images over the limit.",
      "Error",
    ),
    415: answer("Not a JPEG, PNG or WebP file.", "Error"),
    422: answer("The bytes are not an image that can be decoded.", "Error"),
    429: {
      ...answer("The queue is full.", "Error"),
      headers: {
        "retry-after": { description: "Seconds.", schema: { type: "integer" } },
      },
    },
    503: answer("Starting, draining, or no model behind the gateway.", "Error"),
    504: answer("No answer within `timeout`, or none from the model behind the gateway.", "Error"),
  };
  const embedParameters = [
    {
      name: timeoutParameter,
      in: "query",
      description: "How long the caller waits for the answer, in microseconds; then it is 504.",
      schema: plain(z.toJSONSchema(timeoutMicroseconds)),
    },
  ];
  const security = needsKey ? { security: [{ key: [] }] } : {};

  return {
    openapi: "3.1.0",
    info: {
      title: "clipstack embed API",
      version: "1",
      description:
        "OpenCLIP image embeddings: image files in, unit-norm vectors of 512 floats out.",
    },
    paths: {
      [embedPaths.embed]: {
        post: {
          operationId: "embed",
          summary: "Embed image files",
          ...security,
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
          responses: embedAnswers,
        },
      },
      [embedPaths.embedBase64]: {
        post: {
          operationId: "embedBase64",
          summary: "Embed image files given in base64",
          ...security,
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
          responses: embedAnswers,
        },
      },
      [embedPaths.healthz]: {
        get: {
          operationId: "live",
          summary: "Whether the process is alive",
          responses: { 200: answer("Alive.", "Health") },
        },
      },
      [embedPaths.health]: {
        get: {
          operationId: "health",
          summary: "The same as /healthz",
          responses: { 200: answer("Alive.", "Health") },
        },
      },
      [embedPaths.readyz]: {
        get: {
          operationId: "ready",
          summary: "Whether images can be embedded now",
          responses: {
            200: answer("The model is warm.", "Ready"),
            503: answer("Starting or draining.", "Ready"),
          },
        },
      },
      [embedPaths.metrics]: {
        get: {
          operationId: "metrics",
          summary: "Metrics for Prometheus",
          ...security,
          responses: { 200: text("Prometheus' text format.", "text/plain"), ...unauthorized },
        },
      },
    },
    components: {
      ...(needsKey ? { securitySchemes: { key: { type: "http", scheme: "bearer" } } } : {}),
      schemas: Object.fromEntries(
        Object.entries(schemas).map(([name, schema]) => [name, plain(z.toJSONSchema(schema))]),
      ),
    },
  };
}

/** Without `$schema`: OpenAPI 3.1 has the dialect as its default. */
function plain({ $schema, ...schema }: Readonly<Record<string, unknown>>) {
  return schema;
}
