import { parseRequestJson } from "../../client/triton/parse-json.ts";
import { WireError } from "../../client/triton/wire.ts";
import { embedBase64Request } from "../../contract/embed-api.ts";
import { EmbedError, tooManyImages } from "../http/embed-error.ts";

/** Maximum length of a message that quotes the body, in characters. */
const maxMessageLength = 200;

/**
 * Returns the image files in a body of `POST /embed/base64`, each in its own buffer.
 *
 * @param body - JSON in UTF-8.
 * @throws {EmbedError}
 */
export function imagesOfBase64(body: Buffer): readonly Uint8Array[] {
  if (body.byteLength === 0) throw new EmbedError("bad_request", "the body is empty");
  const value = parseJson(body);
  const result = embedBase64Request.safeParse(value);
  if (result.success) return result.data.images.map(decode);
  const [{ code, path, message }] = result.error.issues as [(typeof result.error.issues)[0]];
  if (code === "too_big") {
    throw tooManyImages(String((value as { readonly images: unknown[] }).images.length));
  }
  const text = `${path.join(".") || "the body"}: ${message.charAt(0).toLowerCase()}${message.slice(1)}`;
  const image = typeof path[1] === "number" ? path[1] : undefined;
  throw new EmbedError("bad_request", text.slice(0, maxMessageLength), image);
}

function parseJson(body: Buffer): unknown {
  try {
    return parseRequestJson(body);
  } catch (error) {
    if (!(error instanceof WireError)) throw error;
    const code = error.code === "too_large" ? "too_large" : "bad_request";
    throw new EmbedError(code, error.message, undefined, { cause: error });
  }
}

/** Decodes base64 of RFC 4648 §4; padding is required. */
function decode(text: string, image: number): Uint8Array {
  const bytes = Buffer.allocUnsafeSlow(Buffer.byteLength(text, "base64"));
  const length = bytes.write(text, "base64");
  // Node skips invalid characters, so bytes are missing; but it accepts the URL alphabet and any bits after the last byte
  const complete = length === bytes.byteLength && text.length % 4 === 0;
  const end = bytes.subarray(length - (length % 3 || 3)).toString("base64");
  if (complete && !text.includes("-") && !text.includes("_") && text.endsWith(end)) return bytes;
  throw new EmbedError(
    "bad_request",
    `image ${image} is not base64: ${base64Problem(text)}`,
    image,
  );
}

function base64Problem(text: string): string {
  if (text.startsWith("data:")) return "it is a data URL; send only the part after its comma";
  if (text.length % 4 !== 0) {
    return `its length must be a multiple of 4 with padding, got ${text.length}`;
  }
  const bad = /[^A-Za-z0-9+/=]|=(?!=?$)/.exec(text);
  return bad === null
    ? "its last characters have surplus bits"
    : `unexpected ${JSON.stringify(bad[0])} at position ${bad.index}`;
}
