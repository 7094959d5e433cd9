import { Busboy } from "@fastify/busboy";
import { maxImagesPerRequest } from "../../contract/embed-api.ts";
import { EmbedError, tooManyImages } from "../http/embed-error.ts";

/** Maximum size of the headers of one part, in bytes. */
const maxHeadBytes = 16 * 1024;
/** Maximum number of parts that are not files; they are skipped. */
const maxFields = 16;

/**
 * Returns the files of a form (`multipart/form-data`, RFC 7578), in order, as views of the body. A part is a file if it has a file
 * name or the content type of an image.
 *
 * @throws {EmbedError}
 */
export function filesOfForm(body: Buffer, contentType: string): Promise<readonly Uint8Array[]> {
  return new Promise((resolve, reject) => {
    const form = openForm(contentType);
    const files: Uint8Array[] = [];
    form.on("file", (_name, file) => {
      const index = files.push(body.subarray(0, 0)) - 1;
      // the body is written at once, so each file is one chunk
      file.on("data", (content: Buffer) => {
        files[index] = content;
      });
      file.on("error", () => {}); // also an error of the form
    });
    // thrown by end(), because the parser would go through the rest of the body
    const stopWith = (error: EmbedError) => () => {
      throw error;
    };
    form.on("filesLimit", stopWith(tooManyImages(`more than ${maxImagesPerRequest}`)));
    const tooManyFields = new EmbedError("too_large", `the form has more than ${maxFields} fields`);
    form.on("fieldsLimit", stopWith(tooManyFields));
    form.on("partsLimit", stopWith(tooManyFields));
    form.on("error", () => reject(invalidForm("it ends before its last boundary")));
    form.on("finish", () => resolve(files));
    form.end(body);
  });
}

function openForm(contentType: string) {
  try {
    return new Busboy({
      headers: { "content-type": contentType },
      limits: {
        files: maxImagesPerRequest,
        fields: maxFields,
        parts: maxImagesPerRequest + maxFields,
        fieldSize: 0,
        headerSize: maxHeadBytes,
      },
      isPartAFile: (_name, type, fileName) =>
        fileName !== undefined || /^(image\/|application\/octet-stream$)/.test(type ?? ""),
    });
  } catch (cause) {
    throw invalidForm("its content type must have a boundary of at most 200 characters", cause);
  }
}

function invalidForm(reason: string, cause?: unknown): EmbedError {
  return new EmbedError("bad_request", `the form is invalid: ${reason}`, undefined, { cause });
}
