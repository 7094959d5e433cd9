import { Worker } from "node:worker_threads";
import { WireError } from "../client/triton/wire.ts";
import { threadLimits } from "../inference/threads/thread-limits.ts";
import { isTransferable } from "../inference/threads/transferable.ts";
import { EmbedError } from "./embed-error.ts";

export type TaskResult = { readonly value: unknown } | { readonly failure: TaskFailure };

/** Fields of an {@link EmbedError}, a {@link WireError} or another error. */
export interface TaskFailure {
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

/** Maximum size of JSON that is parsed on the event loop: 64 KiB of numbers take less than a millisecond. */
export const inlineJsonBytes = 64 * 1024;

/** Thread that performs tasks in order. The first task starts it, and the next one after it has exited. */
export class TaskThread<Task> {
  readonly #name: string;
  readonly #program: URL;
  #worker: Worker | undefined;
  /** In the order of their results. */
  #pending: PendingTask[] = [];

  /**
   * @param name - For messages.
   * @param program - Module that calls `performTasks`, without its extension.
   */
  constructor(name: string, program: URL) {
    this.#name = name;
    this.#program = program;
  }

  /** @param transferred - Buffers of the task that move to the thread. */
  run(task: Task, transferred: readonly ArrayBuffer[] = []): Promise<unknown> {
    return new Promise((resolve, reject) => {
      this.#worker ??= this.#start();
      this.#pending.push({ resolve, reject });
      this.#worker.postMessage(task, transferred);
    });
  }

  /** Runs a task whose body moves to the thread; a body that shares its memory with others is copied. */
  runWithBody(task: Task & { readonly body: Buffer }): Promise<unknown> {
    const body = isTransferable(task.body) ? task.body : new Uint8Array(task.body);
    return this.run({ ...task, body }, [body.buffer as ArrayBuffer]);
  }

  async close(): Promise<void> {
    await this.#worker?.terminate();
  }

  #start(): Worker {
    const worker = openWorker(this.#program);
    worker.unref();
    worker.on("message", (result: TaskResult) => {
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
      const error = new Error(`the ${this.#name} thread exited: ${reason}`);
      for (const { reject } of this.#pending.splice(0)) reject(error);
    });
    return worker;
  }
}

function openWorker({ href }: URL): Worker {
  const options = { execArgv: [], resourceLimits: threadLimits };
  const compiled = !import.meta.url.endsWith(".ts");
  if (compiled) return new Worker(new URL(`${href}.js`), options);
  // Node 20 does not load TypeScript in a thread
  const [tsx, program] = [import.meta.resolve("tsx/esm/api"), `${href}.ts`].map((url) =>
    JSON.stringify(url),
  );
  const start = `import(${tsx}).then(({ register }) => { register(); return import(${program}); });`;
  return new Worker(start, { ...options, eval: true });
}

function errorOf({ name, message, code, image, text, param }: TaskFailure): Error {
  if (name === "EmbedError") {
    return new EmbedError(code as EmbedError["code"], message, { image, text, param });
  }
  if (name === "WireError") return new WireError(message, code as WireError["code"]);
  return new Error(message);
}
