import { TaskThread } from "../../http/task-thread.ts";

/** Parser of one kind of body. */
export interface BodyParser<Value> {
  /** Name of the parser in the messages to the thread. */
  readonly kind: string;
  /** Maximum size of a body that is parsed on the event loop, in bytes. */
  readonly inlineBytes: number;
  /** @throws {EmbedError} if the body is invalid */
  parse(body: Buffer, contentType: string): Value | Promise<Value>;
  /** Returns the arrays of a parsed value, which the thread hands over without a copy. */
  transferred(value: Value): readonly Uint8Array[];
}

/** Request body, which is handed over to the thread without a copy. */
export interface BodyTask {
  readonly kind: string;
  readonly body: Uint8Array;
  readonly contentType: string;
}

/**
 * Parses request bodies, JSON and forms: small ones on the event loop, large ones sequentially in a thread, so that they do not block
 * other requests. The first large body starts the thread.
 */
export class BodyThread {
  readonly #thread: TaskThread<BodyTask>;

  /** @param program - Module that performs the tasks with the parsers of the server, without its extension. */
  constructor(program: URL) {
    this.#thread = new TaskThread("JSON", program);
  }

  /** @throws {EmbedError} of the parser */
  async parse<Value>(
    parser: BodyParser<Value>,
    body: Buffer,
    contentType = "application/json",
  ): Promise<Value> {
    if (body.byteLength <= parser.inlineBytes) return parser.parse(body, contentType);
    return (await this.#thread.runWithBody({ kind: parser.kind, body, contentType })) as Value;
  }

  async close(): Promise<void> {
    await this.#thread.close();
  }
}
