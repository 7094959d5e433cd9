import { maxTextLength } from "../../contract/embed-api.ts";
import {
  base64DataUri,
  type EmbeddingInput,
  type EmbeddingsRequest,
  embeddingsFields,
  embeddingsRequest,
} from "../../contract/openai-api.ts";
import { EmbedError } from "../../http/embed-error.ts";
import { inlineJsonBytes } from "../../http/task-thread.ts";
import { decodeBase64 } from "../embed/base64-images.ts";
import type { BodyParser } from "../embed/body-thread.ts";
import { parseJson } from "../embed/parse-body.ts";

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
  /** Whether long texts are cut. */
  readonly truncate: boolean;
  /** Names of fields that the server does not know. */
  readonly ignored: readonly string[];
}

/** Maximum length of a message that quotes the body, in characters. */
const maxMessageLength = 200;

/** Parser of `POST /v1/embeddings`. */
export const embeddingsParser: BodyParser<EmbeddingsBody> = {
  kind: "embeddings",
  inlineBytes: inlineJsonBytes,
  parse: parseEmbeddingsBody,
  transferred: ({ items }) => items.flatMap((item) => (item.kind === "image" ? [item.file] : [])),
};

/**
 * Parses a body of `POST /v1/embeddings`.
 *
 * @param body - JSON in UTF-8.
 * @throws {EmbedError} with the field in `param`
 */
export function parseEmbeddingsBody(body: Buffer): EmbeddingsBody {
  if (body.byteLength === 0) throw new EmbedError("bad_request", "the body is empty: send JSON");
  const value = withoutNullFields(parseJson(body));
  const result = embeddingsRequest.safeParse(value);
  if (!result.success) {
    const [{ path, message }] = result.error.issues as [(typeof result.error.issues)[0]];
    const text = `${path.join(".") || "the body"} ${message}`;
    const param = path[0] === undefined ? undefined : String(path[0]);
    throw new EmbedError("bad_request", text.slice(0, maxMessageLength), { param });
  }
  const { model, encoding_format, embedding_type, dimensions, truncate = true } = result.data;
  return {
    items: itemsOf(result.data),
    model,
    format: encoding_format ?? embedding_type ?? "float",
    dimensions,
    truncate: truncate === true || truncate === "END",
    ignored: Object.keys(result.data).filter((field) => !embeddingsFields.has(field)),
  };
}

/** Removes optional fields that are null, which clients send for fields that are not set. */
function withoutNullFields(value: unknown): unknown {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
  const isSet = ([name, field]: readonly [string, unknown]) => field !== null || name === "input";
  return Object.fromEntries(Object.entries(value).filter(isSet));
}

/** @throws {EmbedError} for an item that is neither a text nor an image, or not clearly one of them */
function itemsOf({ input, messages, modality }: EmbeddingsRequest): readonly InputItem[] {
  const given = messages === undefined ? input : [partOf(messages)];
  const inputs = (Array.isArray(given) ? given : [given]) as readonly EmbeddingInput[];
  return inputs.map((item, index) =>
    itemOf(item, Array.isArray(modality) ? modality[index] : modality, index),
  );
}

/**
 * Returns the only text or image of a chat. Empty texts beside an image, which `vllm bench` sends, do not count.
 *
 * @throws {EmbedError}
 */
function partOf(messages: NonNullable<EmbeddingsRequest["messages"]>): EmbeddingInput {
  const parts: readonly EmbeddingInput[] = messages
    .flatMap(({ content }): readonly Exclude<EmbeddingInput, string>[] =>
      typeof content === "string" ? [{ text: content }] : content,
    )
    .filter((part) => !("text" in part) || part.text !== "");
  if (parts.length === 1) return parts[0]!;
  const message = `messages must contain one text or one image, got ${parts.length}: the model has one embedding for each`;
  throw new EmbedError("bad_request", message, { param: "messages" });
}

/** @throws {EmbedError} for invalid base64, or a string that is not clearly a text or an image */
function itemOf(
  input: EmbeddingInput,
  modality: "text" | "image" | undefined,
  index: number,
): InputItem {
  if (typeof input !== "string") {
    if ("image" in input) return imageOf(String(input.image), index);
    if ("image_url" in input) {
      const { image_url: image } = input as { image_url: string | { readonly url: string } };
      return imageOf(typeof image === "string" ? image : image.url, index);
    }
    return { kind: "text", text: checkedText(String(input.text), index) };
  }
  if (modality === "image" || base64DataUri.test(input)) return imageOf(input, index);
  const form = modality === "text" ? undefined : imageForm(input);
  if (form === undefined) return { kind: "text", text: checkedText(input, index) };
  const message = `input ${index} is ${form}: send {"image": "…"} for the image, or {"text": "…"} for the text`;
  throw new EmbedError("bad_request", message, { image: index, param: "input" });
}

/** Kind of a string that may be an image although it is not marked as one; undefined for a text. */
function imageForm(input: string): string | undefined {
  const start = input.slice(0, maxPrefixLength).trimStart();
  if (/^(https?|s3|gs|file):\/\/\S/i.test(start) && !/\s/.test(input.trim())) return "a URL";
  if (/^data:image\//i.test(start)) return "a data: URI without base64";
  return isBase64Image(start.replace(/^[^,\s]*;base64,/i, "")) ? "an image in base64" : undefined;
}

/** Length of the beginning of a string by which it is recognised as an image. */
const maxPrefixLength = 160;

/** First bytes of image files, also of formats that the server does not decode; WebP's and HEIF's follow a length. */
const signatures =
  /^(\xff\xd8\xff|\x89PNG|GIF8|BM.{4}\0{4}|II\*\0|MM\0\*|RIFF.{4}WEBP|.{4}ftyp(avif|heic|heix|mif1))/s;

function isBase64Image(start: string): boolean {
  const [digits = ""] = /^[A-Za-z0-9+/_-]{24}/.exec(start) ?? [];
  return signatures.test(Buffer.from(digits, "base64").toString("latin1"));
}

/** @throws {EmbedError} for invalid base64 */
function imageOf(source: string, index: number): InputItem {
  // the media type of a data URI is not used: the decoder recognises the file
  const [prefix = ""] = base64DataUri.exec(source) ?? [];
  if (prefix === "" && /^data:/i.test(source)) {
    const message = `input ${index} must be base64, got a data: URI without ';base64,'`;
    throw new EmbedError("bad_request", message, { image: index, param: "input" });
  }
  return /^https?:\/\//i.test(source)
    ? { kind: "url", url: source }
    : { kind: "image", file: decodeBase64(source.slice(prefix.length), index, "input") };
}

function checkedText(text: string, index: number): string {
  if (text.length <= maxTextLength) return text;
  const message = `input ${index} must have at most ${maxTextLength} characters, got ${text.length}`;
  throw new EmbedError("too_large", message, { param: "input" });
}
