import type { InferRequest } from "../client/triton/wire.ts";
import { decodeInferRequest, jsonLength } from "../client/triton/wire-http.ts";
import { inlineJsonBytes, TaskThread } from "../http/task-thread.ts";

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
    if (jsonLength(body, headerLength) <= inlineJsonBytes) {
      return decodeInferRequest(body, headerLength, model);
    }
    return (await this.#thread.runWithBody({ body, headerLength, model })) as InferRequest;
  }

  async close(): Promise<void> {
    await this.#thread.close();
  }
}
