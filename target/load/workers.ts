import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import type { LoadShape } from "../../contract/load-shape.ts";
import { UserError } from "../../contract/user-error.ts";
import { nodeProgram } from "../../model-tools/files/folders.ts";
import type { PreparedRequests } from "../requests/prepared-requests.ts";
import { addRows, type TimedSample } from "./samples.ts";
import { clockMs, type FromWorker, type ToWorker, type WorkerPriority } from "./worker-messages.ts";

/** Samples since the previous collection, and readings of the workers. */
export interface Collected {
  readonly samples: readonly TimedSample[];
  readonly workers: readonly {
    /** CPU time of the worker from its start until `atMs`. */
    readonly cpuMs: number;
    readonly atMs: number;
    readonly eventLoopDelayP99Ms: number;
  }[];
}

/** Worker processes that share one load. */
export interface Workers {
  readonly pids: readonly number[];
  /** Starts to send, and returns the time of `performance.now()` at which the first request is due. */
  start(): number;
  /**
   * Returns the samples since the previous call.
   *
   * @param boundary - Whether a measurement window ends with this call.
   */
  collect(boundary: boolean): Promise<Collected>;
  /** Stops sending, waits for outstanding requests, and returns the remaining samples. */
  stop(patienceMs: number): Promise<Collected>;
  /** Kills the worker processes. */
  close(): Promise<void>;
}

const command = nodeProgram("target/load/worker");
const startDelayMs = 30;

/** Starts worker processes and sends them the requests of a load. */
export async function startWorkers(
  count: number,
  requests: PreparedRequests,
  load: LoadShape,
  priority: WorkerPriority,
): Promise<Workers> {
  const workers = Array.from({ length: count }, () => new Worker());
  const close = async () => {
    await Promise.all(workers.map((worker) => worker.close()));
  };
  try {
    await Promise.all(
      workers.map((worker, index) =>
        worker.request({ kind: "prepare", requests, load, index, workers: count, priority }),
      ),
    );
  } catch (error) {
    await close();
    throw error;
  }
  const requestAll = async (message: ToWorker): Promise<Collected> => {
    const responses = await Promise.all(workers.map((worker) => worker.request(message)));
    const collected = responses.flatMap((response) =>
      response.kind === "collected" ? [response] : [],
    );
    return {
      samples: workers.flatMap((worker) => worker.takeSamples()),
      workers: collected,
    };
  };
  return {
    pids: workers.flatMap(({ pid }) => (pid === undefined ? [] : [pid])),
    start() {
      const atMs = clockMs() + startDelayMs;
      for (const worker of workers) worker.send({ kind: "start", atMs });
      return atMs;
    },
    collect: (boundary) => requestAll({ kind: "collect", boundary }),
    stop: (patienceMs) => requestAll({ kind: "stop", patienceMs }),
    close,
  };
}

class Worker {
  readonly #child: ChildProcess;
  readonly #samples: TimedSample[] = [];
  #stderr = "";
  #closing = false;
  #pending: { resolve: (response: FromWorker) => void; reject: (error: Error) => void } | undefined;

  constructor() {
    this.#child = fork(command.at(-1)!, {
      execArgv: command.slice(0, -1),
      // supports typed arrays
      serialization: "advanced",
      stdio: ["ignore", "ignore", "pipe", "ipc"],
    });
    this.#child.stderr?.on("data", (chunk: Buffer) => {
      this.#stderr = `${this.#stderr}${chunk.toString("utf8")}`.slice(-2_000);
    });
    this.#child.on("message", (response: FromWorker) => {
      if (response.kind !== "prepared") addRows(this.#samples, response.samples, response.codes);
      if (response.kind === "samples") return;
      const pending = this.#pending;
      this.#pending = undefined;
      pending?.resolve(response);
    });
    this.#child.on("error", (error) => this.#fail(error.message));
    this.#child.on("exit", (code, signal) =>
      this.#fail(`a worker process ended with ${signal ?? code}`),
    );
  }

  get pid(): number | undefined {
    return this.#child.pid;
  }

  takeSamples(): readonly TimedSample[] {
    return this.#samples.splice(0);
  }

  /** Sends a message and resolves with its response; one at a time. */
  request(message: ToWorker): Promise<FromWorker> {
    return new Promise((resolve, reject) => {
      this.#pending = { resolve, reject };
      this.send(message);
    });
  }

  send(message: ToWorker): void {
    if (!this.#child.connected) {
      this.#fail("a worker process has ended");
      return;
    }
    this.#child.send(message, (error) => {
      if (error !== null) this.#fail(error.message);
    });
  }

  async close(): Promise<void> {
    this.#closing = true;
    const { exitCode, signalCode, pid } = this.#child;
    if (pid === undefined || exitCode !== null || signalCode !== null) return;
    const exited = once(this.#child, "exit");
    this.#child.kill("SIGKILL");
    await exited;
  }

  #fail(reason: string): void {
    if (this.#closing) return;
    const lines = this.#stderr.trim() === "" ? "" : `:\n${this.#stderr.trim()}`;
    this.#pending?.reject(new UserError(`load generator: ${reason}${lines}`));
    this.#pending = undefined;
  }
}
