/** Longest head of an answer, in bytes. */
const longestHead = 64 * 1024;
const carriageReturn = 13;

/**
 * Reads the answers to one request after the other: status, whether the connection can be used again, and how long the
 * body is. The body itself is counted and forgotten.
 */
export class HttpAnswerReader {
  status = 0;
  bodyBytes = 0;
  keepAlive = true;

  #phase: "head" | "length" | "chunks" | "to the end" | "done" = "head";
  /** Of a head, or of a chunk's size line, that is not whole yet. */
  #held: Buffer | undefined;
  /** Of the body, or of the current chunk. */
  #left = 0;
  /** The line end after a chunk is to come. */
  #afterChunk = false;
  #lastChunk = false;

  /** Something of an answer has come. */
  get begun(): boolean {
    return this.#phase !== "head" || this.#held !== undefined;
  }

  /** The answer has no length: it is whole when the connection ends. */
  get endsWithConnection(): boolean {
    return this.#phase === "to the end";
  }

  reset(): void {
    this.status = 0;
    this.bodyBytes = 0;
    this.keepAlive = true;
    this.#phase = "head";
    this.#held = undefined;
    this.#left = 0;
    this.#afterChunk = false;
    this.#lastChunk = false;
  }

  /** `done` when the answer is whole; `broken` when it is not HTTP, or more follows than was asked for. */
  read(chunk: Buffer): "more" | "done" | "broken" {
    let rest = chunk;
    while (this.#phase === "head") {
      const text = this.#held === undefined ? rest : Buffer.concat([this.#held, rest]);
      const end = text.indexOf("\r\n\r\n");
      if (end < 0) {
        const lineEnd = text.indexOf("\n");
        // a head whose lines end otherwise would never be whole
        const isOther = lineEnd >= 0 && text[lineEnd - 1] !== carriageReturn;
        if (isOther || text.length > longestHead) return "broken";
        this.#held = text;
        return "more";
      }
      this.#held = undefined;
      if (!this.#readHead(text.toString("latin1", 0, end + 2))) return "broken";
      rest = text.subarray(end + 4);
    }
    if (this.#phase === "chunks") return this.#readChunks(rest);
    this.bodyBytes += rest.length;
    if (this.#phase === "to the end") return "more";
    this.#left -= rest.length;
    if (this.#left > 0) return "more";
    this.#phase = "done";
    return this.#left === 0 ? "done" : "broken";
  }

  /** @param head - Status line and headers, each with its line end. */
  #readHead(head: string): boolean {
    const status = /^HTTP\/1\.([01]) (\d{3})/.exec(head);
    if (status === null) return false;
    this.status = Number(status[2]);
    // 100 Continue and the like: the answer is still to come
    if (this.status < 200) return true;
    const connection = /\r\nconnection:[ \t]*([^\r]*)/i.exec(head)?.[1];
    this.keepAlive = connection === undefined ? status[1] === "1" : /keep-alive/i.test(connection);
    const length = /\r\ncontent-length:[ \t]*(\d+)/i.exec(head)?.[1];
    if (/\r\ntransfer-encoding:[^\r]*chunked/i.test(head)) {
      this.#phase = "chunks";
    } else if (length !== undefined || this.status === 204 || this.status === 304) {
      this.#phase = "length";
      this.#left = Number(length ?? 0);
    } else {
      this.#phase = "to the end";
      this.keepAlive = false;
    }
    return true;
  }

  #readChunks(chunk: Buffer): "more" | "done" | "broken" {
    let rest = chunk;
    for (;;) {
      if (this.#left > 0) {
        const taken = Math.min(this.#left, rest.length);
        this.#left -= taken;
        rest = rest.subarray(taken);
        if (this.#left > 0) return "more";
      }
      const text: Buffer = this.#held === undefined ? rest : Buffer.concat([this.#held, rest]);
      const end = text.indexOf("\r\n");
      if (end < 0) {
        if (text.length > longestHead) return "broken";
        this.#held = text;
        return "more";
      }
      this.#held = undefined;
      rest = text.subarray(end + 2);
      if (this.#afterChunk) {
        if (end > 0) return "broken";
        this.#afterChunk = false;
        continue;
      }
      if (this.#lastChunk) {
        // trailers, and the empty line after them
        if (end > 0) continue;
        this.#phase = "done";
        return rest.length === 0 ? "done" : "broken";
      }
      const digits = /^([\da-f]+)[ \t]*(?:;|$)/i.exec(text.toString("latin1", 0, end))?.[1];
      if (digits === undefined) return "broken";
      const size = Number.parseInt(digits, 16);
      if (size === 0) this.#lastChunk = true;
      else {
        this.bodyBytes += size;
        this.#left = size;
        this.#afterChunk = true;
      }
    }
  }
}
