import { Worker } from "node:worker_threads";
import type { PixelInput } from "../../contract/model-spec.ts";
import type { ServerEnv } from "../../contract/server/server-env.ts";
import type { Budget } from "../threads/budget.ts";
import { InferenceError } from "../threads/inference-error.ts";
import { threadLimits } from "../threads/thread-limits.ts";
import { WaitQueue } from "../threads/wait-queue.ts";
import type { ImageHeader } from "./image-header.ts";
import { compileKernel } from "./image-kernel.mjs";

/** Image for a decoding thread. */
export interface PoolTask {
  /** File content; must not change until the task has ended. */
  readonly bytes: Uint8Array;
  /** Whether the file's buffer, which contains nothing else, moves to the thread; otherwise it is copied. */
  readonly transferred?: boolean;
  readonly header: ImageHeader;
  readonly input: PixelInput;
  readonly mode: ServerEnv["PREPROCESSING"];
}

export interface PoolOptions {
  readonly threads: number;
  /** Pixels of decoded images in memory; a thread holds its share until it has the result. */
  readonly budget: Budget;
  /** Maximum time in milliseconds to decode one image, excluding time in queues. */
  readonly timeoutMs: number;
}

/** Message of a thread. `ready`: it has loaded its modules. `needsPixels`: it is blocked until the decoded image fits in memory. */
type Message =
  | { readonly ready: true }
  | { readonly pixels: Uint8Array }
  | { readonly failure: string }
  | { readonly needsPixels: number };

interface Job {
  readonly task: PoolTask;
  resolve(pixels: Uint8Array): void;
  reject(error: unknown): void;
  /** Terminates the thread at the deadline. */
  timer?: NodeJS.Timeout;
  /** Releases the memory reserved for the decoded image. */
  release?(): void;
}

/** Maximum number of result buffers of a size kept for reuse: 10 MB for 224 × 224 pixels. */
const maxSpares = 64;

/** WebAssembly module of the image kernel, compiled once and shared by all threads. */
let kernel: WebAssembly.Module | undefined;

/**
 * Threads that convert image files to the pixels of any model, in first-in-first-out order. A thread is started if all others are busy, and keeps
 * the process alive only while it is decoding. If a thread dies or exceeds the deadline, only its own image fails.
 */
export class PreprocessPool {
  readonly #options: PoolOptions;
  readonly #idle: Worker[] = [];
  readonly #busy = new Map<Worker, Job>();
  readonly #waiting = new WaitQueue<Job>();
  /** Terminations of threads that exceeded the deadline. */
  readonly #ending = new Set<Promise<unknown>>();
  /** Buffers from {@link recycle}, by length. */
  readonly #spares = new Map<number, Uint8Array[]>();
  #closing: Promise<void> | undefined;
  #emptied = () => {};

  constructor(options: PoolOptions) {
    this.#options = options;
  }

  /**
   * @param signal - Removes the image from the queue; its reason is thrown.
   * @returns `[height, width, 3]` 8-bit RGB, the only content of its buffer.
   * @throws {Error} if the image cannot be decoded, or not within the deadline
   * @throws {InferenceError} `failed` if the thread died or the file cannot be transferred; `draining` after {@link close}
   */
  run(task: PoolTask, signal?: AbortSignal): Promise<Uint8Array> {
    return new Promise((resolve, reject) => {
      if (this.#closing !== undefined) {
        reject(new InferenceError("draining", "no more images are accepted"));
        return;
      }
      this.#waiting.push({ task, resolve, reject }, { signal }, () => reject(signal?.reason));
      this.#next();
    });
  }

  /**
   * Returns a buffer obtained from {@link run} for reuse by a later image. Without reuse, the buffers cause a major garbage
   * collection every 400 images.
   */
  recycle(pixels: Uint8Array): void {
    const { length, buffer } = pixels;
    if (length === 0 || buffer.byteLength !== length) return;
    const spares = this.#spares.get(length) ?? [];
    if (spares.length < maxSpares) spares.push(pixels);
    this.#spares.set(length, spares);
  }

  get size(): number {
    return this.#idle.length + this.#busy.size;
  }

  /** Rejects new images, completes the accepted ones and ends the threads. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    if (this.#busy.size > 0) {
      await new Promise<void>((resolve) => {
        this.#emptied = resolve;
      });
    }
    await Promise.all([
      ...this.#idle.splice(0).map((worker) => worker.terminate()),
      ...this.#ending,
    ]);
  }

  #next(): void {
    while (this.#waiting.length > 0) {
      const idle = this.#idle.pop();
      const worker = idle ?? (this.size < this.#options.threads ? this.#start() : undefined);
      if (worker === undefined) return;
      const job = this.#waiting.shift()!;
      if (!this.#send(worker, job)) continue;
      this.#busy.set(worker, job);
      if (idle !== undefined) this.#startDeadline(worker, job); // a new thread loads first
      worker.ref();
    }
    if (this.#busy.size === 0) this.#emptied();
  }

  /** Returns whether the job was sent. Otherwise the job is rejected and the thread is idle. */
  #send(worker: Worker, { task, reject }: Job): boolean {
    const { bytes: file, transferred, header, input, mode } = task;
    // the caller's buffer may contain other files
    const bytes = transferred === true ? file : new Uint8Array(file);
    const into = this.#spares.get(3 * input.size.width * input.size.height)?.pop();
    const moved = [bytes, into].flatMap((array) => (array ? [array.buffer as ArrayBuffer] : []));
    try {
      // some Node versions post a detached buffer without an error, and the thread would never respond
      if (bytes.length === 0) throw new Error("it was transferred before");
      const { timeoutMs } = this.#options;
      worker.postMessage({ bytes, header, input, mode, into, timeoutMs }, moved);
      return true;
    } catch (cause) {
      this.#idle.push(worker);
      worker.unref();
      reject(
        new InferenceError("failed", "the file cannot be transferred to the thread", { cause }),
      );
      return false;
    }
  }

  #start(): Worker {
    const worker = new Worker(new URL("./preprocess-worker.mjs", import.meta.url), {
      workerData: { kernel: compiledKernel() },
      // without the options of the process, such as a TypeScript loader
      execArgv: [],
      resourceLimits: threadLimits,
    });
    worker.on("message", (message: Message) => {
      const job = this.#busy.get(worker);
      if (job === undefined) return; // the thread is being terminated
      if ("ready" in message) {
        this.#startDeadline(worker, job);
        return;
      }
      if ("needsPixels" in message) {
        this.#grant(worker, job, message.needsPixels);
        return;
      }
      this.#takeJob(worker);
      this.#idle.push(worker);
      worker.unref();
      if ("pixels" in message) job.resolve(message.pixels);
      else job.reject(new Error(message.failure));
      this.#next();
    });
    let reason: string | undefined;
    worker.on("error", (error) => {
      reason = error.message;
    });
    worker.on("exit", (code) => {
      const index = this.#idle.indexOf(worker);
      if (index >= 0) this.#idle.splice(index, 1);
      const job = this.#takeJob(worker);
      const cause = (reason ?? `exit code ${code}`).replace(/\s+/g, " ").trim();
      job?.reject(new InferenceError("failed", `the decoding thread ended: ${cause}`));
      this.#next();
    });
    return worker;
  }

  /** Resumes the thread once its decoded image fits in memory, and restarts its deadline. */
  #grant(worker: Worker, job: Job, pixels: number): void {
    clearTimeout(job.timer);
    job.release = this.#options.budget.acquire(pixels, () => {
      this.#startDeadline(worker, job);
      worker.postMessage({ granted: true });
    });
  }

  /** Terminates the thread at the deadline. Another one is started on demand. */
  #startDeadline(worker: Worker, job: Job): void {
    const { timeoutMs } = this.#options;
    clearTimeout(job.timer);
    job.timer = setTimeout(() => {
      const { release } = job;
      job.release = undefined;
      this.#takeJob(worker);
      const ended = worker.terminate().finally(() => {
        release?.();
        this.#ending.delete(ended);
      });
      this.#ending.add(ended);
      job.reject(new Error(`decoding took longer than ${timeoutMs} ms`));
      this.#next();
    }, timeoutMs);
  }

  #takeJob(worker: Worker): Job | undefined {
    const job = this.#busy.get(worker);
    this.#busy.delete(worker);
    clearTimeout(job?.timer);
    job?.release?.();
    return job;
  }
}

function compiledKernel(): WebAssembly.Module {
  kernel ??= compileKernel();
  return kernel;
}
