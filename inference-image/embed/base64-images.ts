import { embedBase64Request } from "../../contract/embed-api.ts";
import { EmbedError } from "../../http/embed-error.ts";
import { inlineJsonBytes } from "../../http/task-thread.ts";
import type { BodyParser } from "./body-thread.ts";
import type { ImageRequest } from "./form-files.ts";
import { parseBody } from "./parse-body.ts";

/** Parser of `POST /embed/base64`. */
export const base64Parser: BodyParser<ImageRequest> = {
  kind: "base64",
  inlineBytes: inlineJsonBytes,
  parse(body) {
    const { images, model } = parseBody(body, embedBase64Request, "image");
    return {
      images: images.map((image, index) => decodeBase64(image, index)),
      model: model ?? undefined,
    };
  },
  transferred: ({ images }) => images,
};

/**
 * Decodes base64 of RFC 4648 §4; padding is required.
 *
 * @throws {EmbedError} `bad_request`
 */
export function decodeBase64(text: string, image: number, name = "image"): Uint8Array {
  const bytes = Buffer.allocUnsafeSlow(Buffer.byteLength(text, "base64"));
  const length = bytes.write(text, "base64");
  // Node skips invalid characters, so bytes are missing; but it accepts the URL alphabet and any bits after the last byte
  const complete = length === bytes.byteLength && text.length % 4 === 0;
  const end = bytes.subarray(length - (length % 3 || 3)).toString("base64");
  if (complete && !text.includes("-") && !text.includes("_") && text.endsWith(end)) return bytes;
  throw new EmbedError("bad_request", `${name} ${image} is not base64: ${base64Problem(text)}`, {
    image,
  });
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
