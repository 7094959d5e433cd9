import type { InferRequest } from "../client/triton/wire.ts";
import { decodeInferRequest, jsonLength } from "../client/triton/wire-http.ts";
import { TaskThread } from "../http/task-thread.ts";
import { isTransferable } from "../inference/threads/transferable.ts";

/** Maximum size of JSON that is parsed on the event loop: 64 KiB of numbers take less than a millisecond. */
const inlineBytes = 64 * 1024;

/** Body of an inference request for the thread. Its memory moves there. */
export interface InferTask {
  readonly body: Uint8Array;
  readonly headerLength: string | undefined;
  readonly model: string;
}

/** Parses inference requests: small ones on the event loop, large ones one after the other in a thread. */
export class InferThread {
  readonly #thread = new TaskThread<InferTask>("JSON", new URL("./infer-worker", import.meta.url));

  /** @throws {WireError} as {@link decodeInferRequest} */
  async parse(
    body: Buffer,
    headerLength: string | undefined,
    model: string,
  ): Promise<InferRequest> {
    if (jsonLength(body, headerLength) <= inlineBytes) {
      return decodeInferRequest(body, headerLength, model);
    }
    const bytes = isTransferable(body) ? body : new Uint8Array(body);
    const task = { body: bytes, headerLength, model };
    return (await this.#thread.run(task, [bytes.buffer as ArrayBuffer])) as InferRequest;
  }

  async close(): Promise<void> {
    await this.#thread.close();
  }
}
