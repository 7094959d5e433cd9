import { maxImagesPerRequest } from "../../contract/embed-api.ts";
import { EmbedError, tooManyImages } from "../http/embed-error.ts";
import { timeSlice } from "../http/time-slice.ts";

/** Bytes in which a boundary is searched in one go. */
const windowBytes = 1024 * 1024;
/** Of one part, in bytes. */
const maxHeadBytes = 16 * 1024;
/** Parts that are no files: they are skipped. */
const maxFields = 16;
const maxBoundaryLength = 200;

/**
 * The files of a form (`multipart/form-data`, RFC 7578), in their order. A part is a file when it has a file name, or
 * the content type of one.
 *
 * @param body - It is not copied: the files are views of it.
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

function unreadable(why: string): EmbedError {
  return new EmbedError("bad_request", `the form cannot be read: ${why}`);
}

function boundaryOf(contentType: string): string {
  const [, quoted, plain] = /;\s*boundary=(?:"([^"]*)"|([^\s;]*))/i.exec(contentType) ?? [];
  const boundary = quoted ?? plain ?? "";
  if (boundary === "") throw unreadable("its content type has no boundary");
  if (boundary.length > maxBoundaryLength) {
    throw unreadable(`its boundary is longer than ${maxBoundaryLength} characters`);
  }
  return boundary;
}

class FormReader {
  readonly #body: Buffer;
  /** Of all parts but the first: its line begins the part before. */
  readonly #delimiter: Buffer;
  /** Just after a delimiter. */
  #at = 0;

  constructor(body: Buffer, boundary: string) {
    this.#body = body;
    this.#delimiter = Buffer.from(`\r\n--${boundary}`, "latin1");
  }

  /** Find the first delimiter: at the beginning, or after lines that mean nothing. */
  async begin(): Promise<void> {
    const first = this.#delimiter.subarray(2);
    if (this.#body.subarray(0, first.length).equals(first)) {
      this.#at = first.length;
      if (this.#lineEnd(first.length) !== undefined || this.#isLast(first.length)) return;
    }
    await this.#delimited(0);
  }

  /** The next part; `undefined` after the last. */
  async next(): Promise<Part | undefined> {
    if (this.#isLast(this.#at)) return undefined;
    const headFrom = this.#lineEnd(this.#at);
    if (headFrom === undefined) throw unreadable("it ends within a boundary");
    // a part may have no head at all
    const headTo = this.#body.subarray(headFrom - 2, headFrom + maxHeadBytes).indexOf("\r\n\r\n");
    if (headTo < 0) throw unreadable("a part has no end of its head");
    const head = this.#body.toString("latin1", headFrom, Math.max(headFrom, headFrom - 2 + headTo));
    const from = headFrom + 2 + headTo;
    // the line break before a delimiter may be the one after the head
    const to = await this.#delimited(from - 2);
    return { head, content: this.#body.subarray(from, Math.max(from, to)) };
  }

  /** Go behind the next delimiter at or after `from`. Its own position is returned. */
  async #delimited(from: number): Promise<number> {
    for (let at = from; ; ) {
      const index = await this.#search(at);
      if (index < 0) throw unreadable("it ends before its last boundary");
      const end = index + this.#delimiter.length;
      // else it is a longer line that only begins as one
      if (this.#isLast(end) || this.#lineEnd(end) !== undefined) {
        this.#at = end;
        return index;
      }
      at = index + 1;
    }
  }

  async #search(from: number): Promise<number> {
    for (let at = from; at < this.#body.length; at += windowBytes) {
      const window = this.#body.subarray(at, at + windowBytes + this.#delimiter.length - 1);
      const index = window.indexOf(this.#delimiter);
      if (index >= 0) return at + index;
      if (timeSlice.exhausted) await timeSlice.next();
    }
    return -1;
  }

  #isLast(at: number): boolean {
    return this.#body[at] === 0x2d && this.#body[at + 1] === 0x2d;
  }

  /** Where the next line begins, when only spaces are left of this one. */
  #lineEnd(from: number): number | undefined {
    let at = from;
    while (at - from < maxHeadBytes && (this.#body[at] === 0x20 || this.#body[at] === 0x09))
      at += 1;
    return this.#body[at] === 0x0d && this.#body[at + 1] === 0x0a ? at + 2 : undefined;
  }
}

function isFile(head: string): boolean {
  for (const line of head.split("\r\n")) {
    const [, name = "", value = ""] = /^([\w-]+)\s*:\s*(.*)$/.exec(line) ?? [];
    const words = value.replace(/"(?:[^"\\]|\\.)*"/g, '""');
    if (/^content-disposition$/i.test(name) && /;\s*filename\*?=/i.test(words)) return true;
    if (/^content-type$/i.test(name) && /^(image\/|application\/octet-stream\b)/i.test(value)) {
      return true;
    }
  }
  return false;
}
