import { maxTextLength } from "../../contract/embed-api.ts";
import {
  base64DataUri,
  type EmbeddingInput,
  embeddingsRequest,
} from "../../contract/openai-api.ts";
import { decodeBase64 } from "../embed/base64-images.ts";
import { parseJson } from "../embed/parse-body.ts";
import { EmbedError } from "../http/embed-error.ts";

/** Input of an embedding. */
export type InputItem =
  | { readonly kind: "text"; readonly text: string }
  /** Image file, in its own buffer. */
  | { readonly kind: "image"; readonly file: Uint8Array }
  /** Image to download. */
  | { readonly kind: "url"; readonly url: string };

/** Parsed body of `POST /v1/embeddings`. */
export interface EmbeddingsBody {
  readonly items: readonly InputItem[];
  readonly model: string | undefined;
  readonly format: "float" | "base64";
  readonly dimensions: number | undefined;
}

/** Maximum length of a message that quotes the body, in characters. */
const maxMessageLength = 200;

/**
 * Parses a body of `POST /v1/embeddings`.
 *
 * @param body - JSON in UTF-8.
 * @throws {EmbedError} with the field in `param`
 */
export function parseEmbeddingsBody(body: Buffer): EmbeddingsBody {
  if (body.byteLength === 0) throw new EmbedError("bad_request", "the body is empty: send JSON");
  const result = embeddingsRequest.safeParse(parseJson(body));
  if (!result.success) {
    const [{ path, message }] = result.error.issues as [(typeof result.error.issues)[0]];
    const text = `${path.join(".") || "the body"} ${message}`;
    const param = path[0] === undefined ? undefined : String(path[0]);
    throw new EmbedError("bad_request", text.slice(0, maxMessageLength), undefined, { param });
  }
  const { input, model, encoding_format: format, dimensions } = result.data;
  const inputs = Array.isArray(input) ? input : [input];
  return { items: inputs.map(itemOf), model, format, dimensions };
}

/** @throws {EmbedError} for invalid base64 */
function itemOf(input: EmbeddingInput, index: number): InputItem {
  const text = typeof input === "string" ? input : input.image;
  // the media type of a data URI is not used: the decoder recognises the file
  const [prefix] = base64DataUri.exec(text) ?? [];
  if (prefix !== undefined) {
    return { kind: "image", file: decodeBase64(text.slice(prefix.length), index, "input") };
  }
  if (typeof input === "string") return { kind: "text", text: checkedText(text, index) };
  if (/^data:/i.test(text)) {
    const message = `input ${index} must be base64, got a data: URI without ';base64,'`;
    throw new EmbedError("bad_request", message, index, { param: "input" });
  }
  return /^https?:\/\//i.test(text)
    ? { kind: "url", url: text }
    : { kind: "image", file: decodeBase64(text, index, "input") };
}

function checkedText(text: string, index: number): string {
  if (text.length <= maxTextLength) return text;
  const message = `input ${index} must have at most ${maxTextLength} characters, got ${text.length}`;
  throw new EmbedError("too_large", message, undefined, { param: "input" });
}
