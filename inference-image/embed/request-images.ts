import type { FastifyRequest } from "fastify";
import { EmbedError } from "../http/embed-error.ts";
import type { JsonThread } from "../http/json-thread.ts";

/**
 * Returns the image files of a request to `POST /embed` as views of the body: one raw body, or the files of a form.
 *
 * @throws {EmbedError}
 */
export async function imagesOfBody(
  { body, headers }: FastifyRequest,
  thread: JsonThread,
): Promise<readonly Uint8Array[]> {
  if (!Buffer.isBuffer(body) || body.length === 0) {
    throw new EmbedError("bad_request", "the body is empty: send an image file");
  }
  const contentType = headers["content-type"] ?? "";
  if (!/^multipart\/form-data\s*(;|$)/i.test(contentType)) return [body];
  const files = await thread.form(body, contentType);
  if (files.length > 0) return files;
  throw new EmbedError("bad_request", "the form has no file: send each image as a file");
}
