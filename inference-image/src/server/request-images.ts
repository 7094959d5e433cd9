import type { FastifyRequest } from "fastify";
import type { z } from "zod";
import { embedBase64Request, maxImagesPerRequest } from "../contract/embed-api.ts";
import { EmbedError } from "./errors.ts";

/** The image files of a request to `POST /embed`: one raw body, or the files of a form. */
export async function imagesOfBody(
  request: FastifyRequest,
  maxBodyBytes: number,
): Promise<readonly Uint8Array[]> {
  if (request.isMultipart()) return imagesOfForm(request, maxBodyBytes);
  if (Buffer.isBuffer(request.body) && request.body.length > 0) return [request.body];
  throw new EmbedError("bad_request", "the body is empty: send an image file");
}

async function imagesOfForm(
  request: FastifyRequest,
  maxBodyBytes: number,
): Promise<readonly Uint8Array[]> {
  const images: Uint8Array[] = [];
  let bytes = 0;
  try {
    for await (const part of request.parts({
      limits: { fileSize: maxBodyBytes, files: maxImagesPerRequest, fields: 16, fieldSize: 1024 },
      isPartAFile: (_field, contentType, fileName) =>
        fileName !== undefined ||
        contentType === "application/octet-stream" ||
        contentType?.startsWith("image/") === true,
    })) {
      if (part.type === "field") continue;
      const image = await part.toBuffer();
      bytes += image.length;
      if (bytes > maxBodyBytes) {
        throw new EmbedError("too_large", `the images are larger than ${maxBodyBytes} bytes`);
      }
      images.push(image);
    }
  } catch (error) {
    throw formError(error, maxBodyBytes);
  }
  if (images.length === 0) {
    throw new EmbedError("bad_request", "the form has no file: send each image as a file");
  }
  return images;
}

function formError(error: unknown, maxBodyBytes: number): Error {
  const { code, message } = error as { code?: string; message: string };
  switch (code) {
    case "FST_FILES_LIMIT":
      return tooManyImages(`more than ${maxImagesPerRequest}`);
    case "FST_REQ_FILE_TOO_LARGE":
      return new EmbedError("too_large", `an image is larger than ${maxBodyBytes} bytes`);
    case undefined:
      // the parser's own errors have no code: whatever they are, the form was at fault
      return error instanceof EmbedError
        ? error
        : new EmbedError("bad_request", `the form cannot be read: ${message}`);
    default:
      return error as Error;
  }
}

/** The image files of a request to `POST /embed/base64`. */
export function imagesOfBase64(body: unknown): readonly Uint8Array[] {
  const result = embedBase64Request.safeParse(body);
  if (!result.success) throw invalidBody(result.error, body);
  return result.data.images.map(decodeBase64);
}

function invalidBody(error: z.ZodError, body: unknown): EmbedError {
  const issue = error.issues[0]!;
  const [field, index] = issue.path;
  if (field === "images" && issue.code === "too_big") {
    return tooManyImages(String((body as { images: unknown[] }).images.length));
  }
  const image = typeof index === "number" ? index : undefined;
  const where = issue.path.length === 0 ? "the body" : issue.path.join(".");
  return new EmbedError("bad_request", `${where}: ${lowerFirst(issue.message)}`, image);
}

function tooManyImages(got: string): EmbedError {
  return new EmbedError("too_large", `images must be 1 to ${maxImagesPerRequest}, got ${got}`);
}

/** RFC 4648 §4, padding included, nothing else: `Buffer.from` skips what it does not know. */
function decodeBase64(text: string, image: number): Uint8Array {
  const refuse = (why: string) =>
    new EmbedError("bad_request", `image ${image} is not base64: ${why}`, image);
  if (text.startsWith("data:")) throw refuse("it is a data URL; send what follows its comma");
  if (text.length % 4 !== 0) {
    throw refuse(`its length must be a multiple of 4 with padding, got ${text.length}`);
  }
  const bad = /[^A-Za-z0-9+/]/.exec(text.replace(/={1,2}$/, ""));
  if (bad !== null) {
    throw refuse(`unexpected ${JSON.stringify(bad[0])} at position ${bad.index}`);
  }
  const last = text.slice(-4);
  if (Buffer.from(last, "base64").toString("base64") !== last) {
    throw refuse("its last characters have bits that belong to no byte");
  }
  return Buffer.from(text, "base64");
}

function lowerFirst(text: string): string {
  return text.charAt(0).toLowerCase() + text.slice(1);
}
