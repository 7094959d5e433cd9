import type { FastifyRequest } from "fastify";
import { EmbedError } from "../../http/embed-error.ts";
import type { BodyThread } from "./body-thread.ts";
import { formParser, type ImageRequest } from "./form-files.ts";

/**
 * Returns the image files of a request to `POST /embed` as views of the body: one raw body, or the files of a form, and the model that
 * the form names.
 *
 * @throws {EmbedError}
 */
export async function imagesOfBody(
  { body, headers }: FastifyRequest,
  thread: BodyThread,
): Promise<ImageRequest> {
  if (!Buffer.isBuffer(body) || body.length === 0) {
    throw new EmbedError("bad_request", "the body is empty: send an image file");
  }
  const contentType = headers["content-type"] ?? "";
  if (!/^multipart\/form-data\s*(;|$)/i.test(contentType)) return { images: [body] };
  const form = await thread.parse(formParser, body, contentType);
  if (form.images.length > 0) return form;
  throw new EmbedError("bad_request", "the form has no file: send each image as a file");
}
