import { Worker } from "node:worker_threads";
import { imageSide, pixelBytes } from "../../contract/model-signature.ts";
import type { ServerEnv } from "../../contract/server-env.ts";
import type { Budget } from "../budget.ts";
import { InferenceError } from "../session/types.ts";
import { threadLimits } from "../thread-limits.ts";
import { WaitQueue } from "../wait-queue.ts";
import type { ImageHeader } from "./image-header.ts";
import { compileKernel } from "./image-kernel.mjs";

/** One image, for a thread. */
export interface PoolTask {
  /** The file; it must not change before there is an answer. */
  readonly bytes: Uint8Array;
  /** Its memory moves to the thread, and nothing else is in it. Otherwise it is copied. */
  readonly taken?: boolean;
  readonly header: ImageHeader;
  readonly mode: ServerEnv["PREPROCESSING"];
}

export interface PoolOptions {
  readonly threads: number;
  /** Memory for decoded images, charged from when a thread needs it until it has its result. */
  readonly budget: Budget;
  /** Longest time that a thread may decode one image, in milliseconds; time in queues does not count. */
  readonly timeoutMs: number;
}

/** Sent by a thread. `ready`: it has loaded. `needsPixels`: it waits until it may hold the decoded image in memory. */
type Message =
  | { readonly ready: true }
  | { readonly pixels: Uint8Array }
  | { readonly failure: string }
  | { readonly needsPixels: number };

interface Job {
  readonly task: PoolTask;
  resolve(pixels: Uint8Array): void;
  reject(error: unknown): void;
  /** Ends the thread at the deadline. */
  timer?: NodeJS.Timeout;
  /** Gives the memory for the decoded image back. */
  release?(): void;
}

/** Memory that is kept for images to come: 10 MB. */
const maxSpares = 64;

/** Compiled once, and handed to every thread. */
let kernel: WebAssembly.Module | undefined;

/**
 * Threads that make of image files what the model sees: first come, first served. A thread starts when an image finds all
 * others busy, and keeps the process alive only while it works. One that dies, or is ended at the deadline, takes its image
 * with it, no other.
 */
export class PreprocessPool {
  readonly #options: PoolOptions;
  readonly #idle: Worker[] = [];
  readonly #busy = new Map<Worker, Job>();
  readonly #waiting = new WaitQueue<Job>();
  /** Threads that were ended at the deadline. */
  readonly #ending = new Set<Promise<unknown>>();
  /** What {@link recycle} was given. */
  readonly #spares: Uint8Array[] = [];
  #closing: Promise<void> | undefined;
  #emptied = () => {};

  constructor(options: PoolOptions) {
    this.#options = options;
  }

  /**
   * @param signal - gives up while the image waits; its reason is thrown
   * @returns `[224, 224, 3]` 8-bit RGB, in memory of its own
   * @throws {Error} what the decoder said, or that it took longer than the deadline
   * @throws {InferenceError} `failed` when the thread died or the file cannot be taken, `draining` after {@link close}
   */
  run(task: PoolTask, signal?: AbortSignal): Promise<Uint8Array> {
    return new Promise((resolve, reject) => {
      if (this.#closing !== undefined) {
        reject(new InferenceError("draining", "no more images are taken"));
        return;
      }
      this.#waiting.push({ task, resolve, reject }, { signal }, () => reject(signal?.reason));
      this.#next();
    });
  }

  /**
   * Take back what {@link run} gave, which nobody reads any more: the memory is that of a later image. Otherwise it is for the
   * garbage collector, which looks through everything else again for every 400 images.
   */
  recycle(pixels: Uint8Array): void {
    const { byteLength } = pixels.buffer;
    if (byteLength === pixelBytes && this.#spares.length < maxSpares) this.#spares.push(pixels);
  }

  /** Threads that have been started. */
  get size(): number {
    return this.#idle.length + this.#busy.size;
  }

  /** Takes no more images, finishes those it has, and ends its threads. */
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
      if (idle !== undefined) this.#watch(worker, job); // a new thread loads first
      worker.ref();
    }
    if (this.#busy.size === 0) this.#emptied();
  }

  /** @returns whether the thread has it; otherwise the thread is idle, and the job is rejected */
  #send(worker: Worker, { task, reject }: Job): boolean {
    const { bytes: file, taken, header, mode } = task;
    // the caller's memory may hold other files too
    const bytes = taken === true ? file : new Uint8Array(file);
    const into = this.#spares.pop();
    const moved = [bytes, into].flatMap((array) => (array ? [array.buffer as ArrayBuffer] : []));
    try {
      // not every Node says so: the thread would never answer
      if (bytes.length === 0) throw new Error("it has been moved before");
      const { timeoutMs } = this.#options;
      worker.postMessage({ bytes, header, mode, into, timeoutMs }, moved);
      return true;
    } catch (cause) {
      this.#idle.push(worker);
      worker.unref();
      reject(new InferenceError("failed", "the memory of the file cannot be moved", { cause }));
      return false;
    }
  }

  #start(): Worker {
    const worker = new Worker(new URL("./preprocess-worker.mjs", import.meta.url), {
      workerData: { kernel: compiledKernel(), side: imageSide },
      // not the TypeScript loader of the process, nor what else it was started with
      execArgv: [],
      resourceLimits: threadLimits,
    });
    worker.on("message", (message: Message) => {
      const job = this.#busy.get(worker);
      if (job === undefined) return; // it is being ended
      if ("ready" in message) {
        this.#watch(worker, job);
        return;
      }
      if ("needsPixels" in message) {
        this.#grant(worker, job, message.needsPixels);
        return;
      }
      this.#leave(worker);
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
      const place = this.#idle.indexOf(worker);
      if (place >= 0) this.#idle.splice(place, 1);
      const job = this.#leave(worker);
      const why = (reason ?? `exit code ${code}`).replace(/\s+/g, " ").trim();
      job?.reject(new InferenceError("failed", `the thread that decoded the image ended: ${why}`));
      this.#next();
    });
    return worker;
  }

  /** Lets the thread go on once its decoded image fits into memory, and starts its deadline again. */
  #grant(worker: Worker, job: Job, pixels: number): void {
    clearTimeout(job.timer);
    job.release = this.#options.budget.acquire(pixels, () => {
      this.#watch(worker, job);
      worker.postMessage({ granted: true });
    });
  }

  /** Ends the thread if it has not answered by the deadline. Another one starts when an image needs it. */
  #watch(worker: Worker, job: Job): void {
    const { timeoutMs } = this.#options;
    clearTimeout(job.timer);
    job.timer = setTimeout(() => {
      const { release } = job;
      job.release = undefined;
      this.#leave(worker);
      const ended = worker.terminate().finally(() => {
        release?.();
        this.#ending.delete(ended);
      });
      this.#ending.add(ended);
      job.reject(new Error(`decoding took longer than ${timeoutMs} ms`));
      this.#next();
    }, timeoutMs);
  }

  /** The thread works on its image no more. */
  #leave(worker: Worker): Job | undefined {
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
