import { Worker } from "node:worker_threads";
import { type InferRequest, WireError } from "../../client/triton/wire.ts";
import { decodeInferRequest, jsonLength } from "../../client/triton/wire-http.ts";
import type { EmbedTextRequest } from "../../contract/embed-api.ts";
import { threadLimits } from "../../inference/thread-limits.ts";
import { parseBase64Request } from "../embed/base64-images.ts";
import { contentOfForm, type ImageRequest } from "../embed/form-files.ts";
import { parseTextRequest } from "../embed/parse-body.ts";
import { type EmbeddingsBody, parseEmbeddingsBody } from "../openai/embeddings-body.ts";
import { EmbedError } from "./embed-error.ts";

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
  | { readonly kind: "infer"; readonly headerLength: string | undefined; readonly model: string }
);

export type JsonResult = { readonly value: unknown } | { readonly failure: JsonFailure };

/** Fields of an {@link EmbedError}, a {@link WireError} or another error. */
export interface JsonFailure {
  readonly name: string;
  readonly message: string;
  readonly code?: string;
  readonly image?: number;
  readonly text?: number;
  readonly param?: string | undefined;
}

interface PendingTask {
  resolve(value: unknown): void;
  reject(error: Error): void;
}

/**
 * Parses request bodies, JSON and forms: small ones on the event loop, large ones sequentially in a thread, so that they do not block
 * other requests. The first large body starts the thread.
 */
export class JsonThread {
  #worker: Worker | undefined;
  /** In the order of their results. */
  #pending: PendingTask[] = [];

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

  /** @throws {WireError} as {@link decodeInferRequest} */
  async inferRequest(
    body: Buffer,
    headerLength: string | undefined,
    model: string,
  ): Promise<InferRequest> {
    if (jsonLength(body, headerLength) <= inlineBytes) {
      return decodeInferRequest(body, headerLength, model);
    }
    const task = { kind: "infer", body: transferable(body), headerLength, model } as const;
    return (await this.#run(task)) as InferRequest;
  }

  async close(): Promise<void> {
    await this.#worker?.terminate();
  }

  #run(task: JsonTask): Promise<unknown> {
    return new Promise((resolve, reject) => {
      this.#worker ??= this.#start();
      this.#pending.push({ resolve, reject });
      this.#worker.postMessage(task, [task.body.buffer as ArrayBuffer]);
    });
  }

  #start(): Worker {
    const worker = openWorker();
    worker.unref();
    worker.on("message", (result: JsonResult) => {
      const { resolve, reject } = this.#pending.shift()!;
      if ("value" in result) resolve(result.value);
      else reject(errorOf(result.failure));
    });
    let reason = "closed";
    worker.on("error", (error) => {
      reason = error.message;
    });
    worker.on("exit", () => {
      this.#worker = undefined;
      const error = new Error(`the JSON thread exited: ${reason}`);
      for (const { reject } of this.#pending.splice(0)) reject(error);
    });
    return worker;
  }
}

function openWorker(): Worker {
  const options = { execArgv: [], resourceLimits: threadLimits };
  const compiled = !import.meta.url.endsWith(".ts");
  if (compiled) return new Worker(new URL("./json-worker.js", import.meta.url), options);
  // Node 20 does not load TypeScript in a thread
  const [tsx, program] = [
    import.meta.resolve("tsx/esm/api"),
    new URL("./json-worker.ts", import.meta.url).href,
  ].map((url) => JSON.stringify(url));
  const start = `import(${tsx}).then(({ register }) => { register(); return import(${program}); });`;
  return new Worker(start, { ...options, eval: true });
}

/** Returns the bytes in their own buffer, which can be transferred to the thread. */
function transferable(body: Buffer): Uint8Array {
  return body.byteLength === body.buffer.byteLength ? body : new Uint8Array(body);
}

function errorOf({ name, message, code, image, text, param }: JsonFailure): Error {
  if (name === "EmbedError") {
    return new EmbedError(code as EmbedError["code"], message, image, { text, param });
  }
  if (name === "WireError") return new WireError(message, code as WireError["code"]);
  return new Error(message);
}
