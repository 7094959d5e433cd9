import type { EmbedTextRequest } from "../../contract/embed-api.ts";
import { TaskThread } from "../../http/task-thread.ts";
import { isTransferable } from "../../inference/transferable.ts";
import { parseBase64Request } from "../embed/base64-images.ts";
import { contentOfForm, type ImageRequest } from "../embed/form-files.ts";
import { parseTextRequest } from "../embed/parse-body.ts";
import { type EmbeddingsBody, parseEmbeddingsBody } from "../openai/embeddings-body.ts";

/** Maximum size of JSON that is parsed on the event loop: 64 KiB of numbers take less than a millisecond. */
const inlineBytes = 64 * 1024;

/** Maximum size of a form that is parsed on the event loop: a search for its boundary takes 6 ms at most. */
const inlineFormBytes = 1024 * 1024;

/** Request body for the thread. Its memory moves there. */
export type JsonTask = { readonly body: Uint8Array } & (
  | { readonly kind: "base64" }
  | { readonly kind: "text" }
  | { readonly kind: "embeddings" }
  | { readonly kind: "form"; readonly contentType: string }
);

/**
 * Parses request bodies, JSON and forms: small ones on the event loop, large ones sequentially in a thread, so that they do not block
 * other requests. The first large body starts the thread.
 */
export class JsonThread {
  readonly #thread = new TaskThread<JsonTask>("JSON", new URL("./json-worker", import.meta.url));

  /** @throws {EmbedError} as {@link parseBase64Request} */
  async images(body: Buffer): Promise<ImageRequest> {
    if (body.byteLength <= inlineBytes) return parseBase64Request(body);
    return (await this.#run({ kind: "base64", body: transferable(body) })) as ImageRequest;
  }

  /** @throws {EmbedError} as {@link parseTextRequest} */
  async texts(body: Buffer): Promise<EmbedTextRequest> {
    if (body.byteLength <= inlineBytes) return parseTextRequest(body);
    return (await this.#run({ kind: "text", body: transferable(body) })) as EmbedTextRequest;
  }

  /** @throws {EmbedError} as {@link parseEmbeddingsBody} */
  async embeddings(body: Buffer): Promise<EmbeddingsBody> {
    if (body.byteLength <= inlineBytes) return parseEmbeddingsBody(body);
    const task = { kind: "embeddings", body: transferable(body) } as const;
    return (await this.#run(task)) as EmbeddingsBody;
  }

  /** @throws {EmbedError} as {@link contentOfForm} */
  async form(body: Buffer, contentType: string): Promise<ImageRequest> {
    if (body.byteLength <= inlineFormBytes) return await contentOfForm(body, contentType);
    const task = { kind: "form", body: transferable(body), contentType } as const;
    return (await this.#run(task)) as ImageRequest;
  }

  async close(): Promise<void> {
    await this.#thread.close();
  }

  #run(task: JsonTask): Promise<unknown> {
    return this.#thread.run(task, [task.body.buffer as ArrayBuffer]);
  }
}

/** Returns the bytes in a buffer that can be transferred to the thread. */
function transferable(body: Buffer): Uint8Array {
  return isTransferable(body) ? body : new Uint8Array(body);
}
