import type { FastifyRequest } from "fastify";
import { EmbedError } from "../http/embed-error.ts";
import { filesOfForm } from "./form-body.ts";

/** The image files of a request to `POST /embed`: one raw body, or the files of a form. They are views of the body. */
export async function imagesOfBody({
  body,
  headers,
}: FastifyRequest): Promise<readonly Uint8Array[]> {
  if (!Buffer.isBuffer(body) || body.length === 0) {
    throw new EmbedError("bad_request", "the body is empty: send an image file");
  }
  const contentType = headers["content-type"] ?? "";
  if (!/^multipart\/form-data\s*(;|$)/i.test(contentType)) return [body];
  const files = await filesOfForm(body, contentType);
  if (files.length > 0) return files;
  throw new EmbedError("bad_request", "the form has no file: send each image as a file");
}
