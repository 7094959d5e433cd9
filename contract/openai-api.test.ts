import { expect, test } from "vitest";
import { z } from "zod";
import { embeddingsRequest, maxInputsPerRequest } from "./openai-api.ts";

/** First error of a request, as `path: message`. */
function errorOf(body: unknown): string | undefined {
  const issue = embeddingsRequest.safeParse(body).error?.issues[0];
  return issue === undefined ? undefined : `${issue.path.join(".")}: ${issue.message}`;
}

test.each([
  ["a text", "a red bicycle"],
  ["texts", ["a red bicycle", "a lake"]],
  ["an image", { image: "/9j/4AAQ" }],
  ["texts and images", ["a lake", { image: "data:image/png;base64,iVBOR" }]],
])("accepts %s as input", (_name, input) => {
  expect(embeddingsRequest.parse({ input, model: "m", user: "u" }).input).toEqual(input);
});

test.each<[problem: string, input: unknown, message: string]>([
  ["no input", undefined, "is required"],
  ["an empty text", "", "must not be an empty string"],
  ["an empty list", [], "must not be an empty list"],
  [
    "token ids",
    [49_406, 320, 49_407],
    "must be texts or images, got token ids: the server has its own tokenizer",
  ],
  [
    "lists of token ids",
    [
      [320, 736],
      [320, 530],
    ],
    "must be texts or images, got token ids: the server has its own tokenizer",
  ],
  [
    "another object",
    ["a", { text: "b", image: "c" }],
    'must contain only texts, {"image": "…"} and {"text": "…"}, got another value at index 1',
  ],
  ["null", null, 'must be a text, {"image": "…"} or a list of both'],
  [
    "too many texts",
    Array.from({ length: maxInputsPerRequest + 1 }, () => "a"),
    "must have at most 2048 items",
  ],
])("fails on %s", (_problem, input, message) => {
  expect(errorOf({ input })).toBe(`input: ${message}`);
});

test("fails on an empty text in a list, with its index", () => {
  expect(errorOf({ input: ["a", ""] })).toBe("input.1: must not be an empty string");
});

test.each(
  Object.entries<object>({
    "messages: must be omitted if the body has input": { input: "a", messages: [{ content: "b" }] },
    "modality: must have one value per input (2), got 1": { input: ["a", "b"], modality: ["text"] },
    "modality: must be text or image, or one per input": { input: "a", modality: "audio" },
    "truncate: must be END or NONE: the server cuts off the end of long texts": {
      input: "a",
      truncate: "START",
    },
    "normalized: must be true: all embeddings have unit L2 norm": { input: "a", normalized: false },
    "embedding_type: must be float or base64": { input: "a", embedding_type: "ubinary" },
  }),
)("fails: %s, which it cannot compute", (message, body) => {
  expect(errorOf(body)).toBe(message);
});

test("has a JSON Schema for the OpenAPI document", () => {
  const { properties } = z.toJSONSchema(embeddingsRequest, { io: "input" });
  expect(Object.keys(properties ?? {})).toEqual([
    "input",
    "messages",
    "model",
    "encoding_format",
    "embedding_type",
    "dimensions",
    "modality",
    "truncate",
    "normalized",
    "input_type",
    "user",
  ]);
});
