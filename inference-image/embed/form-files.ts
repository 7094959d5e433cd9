import { Busboy } from "@fastify/busboy";
import { maxImagesPerRequest, modelParameter } from "../../contract/embed-api.ts";
import { EmbedError, tooManyImages } from "../../http/embed-error.ts";
import type { BodyParser } from "./body-thread.ts";

/** Maximum size of the headers of one part, in bytes. */
const maxHeadBytes = 16 * 1024;
/** Maximum number of parts that are not files; all but the model are skipped. */
const maxFields = 16;
/** Maximum length of a model's name that is read, in bytes; longer ones are cut and therefore unknown. */
const maxModelBytes = 200;

/** Images of a request, and the name of the model if it has one. */
export interface ImageRequest {
  readonly images: readonly Uint8Array[];
  readonly model?: string | undefined;
}

export const formParser: BodyParser<ImageRequest> = {
  kind: "form",
  // a search for the boundary takes 6 ms at most
  inlineBytes: 1024 * 1024,
  parse: contentOfForm,
  transferred: ({ images }) => images,
};

/**
 * Returns the files of a form (`multipart/form-data`, RFC 7578), in order, and its field `model`. A part is a file if it has a file
 * name or the content type of an image. Empty files without a name are skipped: browsers send them for file inputs without a file.
 *
 * @throws {EmbedError}
 */
export function contentOfForm(body: Buffer, contentType: string): Promise<ImageRequest> {
  return new Promise((resolve, reject) => {
    const form = openForm(contentType, body.length);
    const files: Uint8Array[] = [];
    const unnamed = new Set<number>();
    let model: string | undefined;
    form.on("file", (_name, file, fileName) => {
      const index = files.push(body.subarray(0, 0)) - 1;
      if ((fileName ?? "") === "") unnamed.add(index);
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
    form.on("field", (name, value) => {
      if (name !== modelParameter || value === "") return;
      // not thrown: the parser reports fields after end() has returned
      if (model !== undefined) reject(repeatedModel());
      model = value;
    });
    form.on("finish", () => {
      const images = files.filter(({ length }, index) => length > 0 || !unnamed.has(index));
      resolve({ images, model });
    });
    form.end(body);
  });
}

function openForm(contentType: string, bodyBytes: number) {
  try {
    return new Busboy({
      headers: { "content-type": contentType },
      // the parser waits for ever after a skipped part that is larger than its buffer; the whole body is in memory anyway
      fileHwm: bodyBytes + 1,
      limits: {
        files: maxImagesPerRequest,
        fields: maxFields,
        parts: maxImagesPerRequest + maxFields,
        fieldSize: maxModelBytes,
        headerSize: maxHeadBytes,
      },
      isPartAFile: (_name, type, fileName) =>
        fileName !== undefined || /^(image\/|application\/octet-stream$)/.test(type ?? ""),
    });
  } catch (cause) {
    throw invalidForm("its content type must have a boundary of at most 200 characters", cause);
  }
}

/** Error for a request that names several models. */
export function repeatedModel(): EmbedError {
  return new EmbedError("bad_request", `${modelParameter} must not be repeated`);
}

function invalidForm(reason: string, cause?: unknown): EmbedError {
  return new EmbedError("bad_request", `the form is invalid: ${reason}`, { cause });
}
