import type { z } from "zod";
import { parseRequestJson } from "../../client/triton/parse-json.ts";
import { WireError } from "../../client/triton/wire.ts";
import {
  type EmbedTextRequest,
  embedTextRequest,
  maxTextLength,
  maxTextsPerRequest,
} from "../../contract/embed-api.ts";
import type { Modality } from "../../contract/model-spec.ts";
import { EmbedError, tooManyImages } from "../../http/embed-error.ts";
import { inlineJsonBytes } from "../../http/task-thread.ts";
import type { BodyParser } from "./body-thread.ts";

/** Maximum length of a message that quotes the body, in characters. */
const maxMessageLength = 200;

/** Parser of `POST /embed/text`. */
export const textParser: BodyParser<EmbedTextRequest> = {
  kind: "text",
  inlineBytes: inlineJsonBytes,
  parse: (body) => parseBody(body, embedTextRequest, "text"),
  transferred: () => [],
};

/**
 * Parses a body whose items are in the list `images` or `texts`.
 *
 * @param modality - Modality of the items, for the index in errors.
 * @throws {EmbedError}
 */
export function parseBody<T>(body: Buffer, schema: z.ZodType<T>, modality: Modality): T {
  if (body.byteLength === 0) throw new EmbedError("bad_request", "the body is empty");
  const value = parseJson(body);
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const [{ code, path, message }] = result.error.issues as [(typeof result.error.issues)[0]];
  const [list, item] = path;
  const index = list === `${modality}s` && typeof item === "number" ? item : undefined;
  if (code === "too_big" && list === `${modality}s`) {
    throw tooBig(value as Readonly<Record<string, readonly unknown[]>>, modality, index);
  }
  const subject = index === undefined ? path.join(".") || "the body" : `${modality} ${index}`;
  const text = `${subject} ${message}`.slice(0, maxMessageLength);
  throw new EmbedError("bad_request", text, { [modality]: index });
}

function tooBig(
  { images = [], texts = [] }: Readonly<Record<string, readonly unknown[]>>,
  modality: Modality,
  index: number | undefined,
): EmbedError {
  if (modality === "image") return tooManyImages(String(images.length));
  const message =
    index === undefined
      ? `texts must be 1 to ${maxTextsPerRequest}, got ${texts.length}`
      : `text ${index} must have at most ${maxTextLength} characters, got ${String(texts[index]).length}`;
  return new EmbedError("too_large", message, { text: index });
}

/** @throws {EmbedError} `bad_request`, or `too_large` above the limits of JSON in a request */
export function parseJson(body: Buffer): unknown {
  try {
    return parseRequestJson(body);
  } catch (error) {
    if (!(error instanceof WireError)) throw error;
    const code = error.code === "too_large" ? "too_large" : "bad_request";
    throw new EmbedError(code, error.message, { cause: error });
  }
}
