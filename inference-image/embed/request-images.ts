import type { FastifyRequest } from "fastify";
import { maxImagesPerRequest } from "../../contract/embed-api.ts";
import { EmbedError, tooManyImages } from "../http/embed-error.ts";
import { timeSlice } from "../http/time-slice.ts";

/** Bytes searched for a boundary in one step. */
const windowBytes = 1024 * 1024;
/** Maximum size of the headers of one part, in bytes. */
const maxHeadBytes = 16 * 1024;
/** Maximum number of parts that are not files; they are skipped. */
const maxFields = 16;
const maxBoundaryLength = 200;

/**
 * Returns the image files of a request to `POST /embed` as views of the body: one raw body, or the files of a form.
 *
 * @throws {EmbedError}
 */
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

/**
 * Returns the files of a form (`multipart/form-data`, RFC 7578), in order, as views of the body. A part is a file if it has a file
 * name or the content type of an image.
 *
 * @throws {EmbedError}
 */
export async function filesOfForm(
  body: Buffer,
  contentType: string,
): Promise<readonly Uint8Array[]> {
  const form = new FormReader(body, boundaryOf(contentType));
  const files: Uint8Array[] = [];
  let fields = 0;
  await form.begin();
  for (let part = await form.next(); part !== undefined; part = await form.next()) {
    if (!isFile(part.head)) {
      fields += 1;
      if (fields > maxFields) {
        throw new EmbedError("too_large", `the form has more than ${maxFields} fields`);
      }
      continue;
    }
    if (files.length === maxImagesPerRequest)
      throw tooManyImages(`more than ${maxImagesPerRequest}`);
    files.push(part.content);
  }
  return files;
}

interface Part {
  readonly head: string;
  readonly content: Buffer;
}

function invalidForm(reason: string): EmbedError {
  return new EmbedError("bad_request", `the form is invalid: ${reason}`);
}

function boundaryOf(contentType: string): string {
  const [, quoted, unquoted] = /;\s*boundary=(?:"([^"]*)"|([^\s;]*))/i.exec(contentType) ?? [];
  const boundary = quoted ?? unquoted ?? "";
  if (boundary === "") throw invalidForm("its content type has no boundary");
  if (boundary.length > maxBoundaryLength) {
    throw invalidForm(`its boundary is longer than ${maxBoundaryLength} characters`);
  }
  return boundary;
}

class FormReader {
  readonly #body: Buffer;
  /** Delimiter of all parts but the first, including the line break that precedes it. */
  readonly #delimiter: Buffer;
  /** Position just after a delimiter. */
  #position = 0;

  constructor(body: Buffer, boundary: string) {
    this.#body = body;
    this.#delimiter = Buffer.from(`\r\n--${boundary}`, "latin1");
  }

  /** Finds the first delimiter, at the beginning or after a preamble. */
  async begin(): Promise<void> {
    const first = this.#delimiter.subarray(2);
    if (this.#body.subarray(0, first.length).equals(first)) {
      this.#position = first.length;
      if (this.#lineEnd(first.length) !== undefined || this.#isLast(first.length)) return;
    }
    await this.#skipDelimiter(0);
  }

  /** Reads the next part; `undefined` after the last. */
  async next(): Promise<Part | undefined> {
    if (this.#isLast(this.#position)) return undefined;
    const headFrom = this.#lineEnd(this.#position);
    if (headFrom === undefined) throw invalidForm("it ends within a boundary");
    // a part may have no headers
    const headTo = this.#body.subarray(headFrom - 2, headFrom + maxHeadBytes).indexOf("\r\n\r\n");
    if (headTo < 0) throw invalidForm("the headers of a part have no end");
    const head = this.#body.toString("latin1", headFrom, Math.max(headFrom, headFrom - 2 + headTo));
    const from = headFrom + 2 + headTo;
    // the line break before a delimiter may be the one after the headers
    const to = await this.#skipDelimiter(from - 2);
    return { head, content: this.#body.subarray(from, Math.max(from, to)) };
  }

  /** Moves past the next delimiter at or after `from`, and returns the position of the delimiter. */
  async #skipDelimiter(from: number): Promise<number> {
    for (let start = from; ; ) {
      const index = await this.#search(start);
      if (index < 0) throw invalidForm("it ends before its last boundary");
      const end = index + this.#delimiter.length;
      // a longer line that only starts like a delimiter is content
      if (this.#isLast(end) || this.#lineEnd(end) !== undefined) {
        this.#position = end;
        return index;
      }
      start = index + 1;
    }
  }

  async #search(from: number): Promise<number> {
    for (let start = from; start < this.#body.length; start += windowBytes) {
      const window = this.#body.subarray(start, start + windowBytes + this.#delimiter.length - 1);
      const index = window.indexOf(this.#delimiter);
      if (index >= 0) return start + index;
      if (timeSlice.exhausted) await timeSlice.next();
    }
    return -1;
  }

  #isLast(position: number): boolean {
    return this.#body[position] === 0x2d && this.#body[position + 1] === 0x2d;
  }

  /** Returns the start of the next line, if the rest of this line is blank. */
  #lineEnd(from: number): number | undefined {
    let position = from;
    while (
      position - from < maxHeadBytes &&
      (this.#body[position] === 0x20 || this.#body[position] === 0x09)
    )
      position += 1;
    const lineBreak = this.#body[position] === 0x0d && this.#body[position + 1] === 0x0a;
    return lineBreak ? position + 2 : undefined;
  }
}

function isFile(head: string): boolean {
  for (const line of head.split("\r\n")) {
    const [, name = "", value = ""] = /^([\w-]+)\s*:\s*(.*)$/.exec(line) ?? [];
    const unquoted = value.replace(/"(?:[^"\\]|\\.)*"/g, '""');
    if (/^content-disposition$/i.test(name) && /;\s*filename\*?=/i.test(unquoted)) return true;
    if (/^content-type$/i.test(name) && /^(image\/|application\/octet-stream\b)/i.test(value)) {
      return true;
    }
  }
  return false;
}
