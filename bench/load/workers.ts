import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { UserError } from "../../contract/user-error.ts";
import type { LoadShape } from "../record/bench-record.ts";
import type { PreparedRequests } from "./prepared-requests.ts";
import { addRows, type TimedSample } from "./samples.ts";
import { clockMs, type FromWorker, type ToWorker, type WorkerPriority } from "./worker-messages.ts";

/** What the workers tell at one time: samples since the last time, the event loop since the last boundary. */
export interface Collected {
  readonly samples: readonly TimedSample[];
  readonly workers: readonly {
    /** Processor time since its start, and when it said so. */
    readonly cpuMs: number;
    readonly atMs: number;
    readonly eventLoopDelayP99Ms: number;
  }[];
}

/** Processes that send one load together. */
export interface Workers {
  readonly count: number;
  readonly pids: readonly number[];
  /** @returns When the first request is due. */
  start(): number;
  /** @param boundary - A window ends here. */
  collect(boundary: boolean): Promise<Collected>;
  /** Send no more, wait for answers, and hand over the rest. */
  stop(patienceMs: number): Promise<Collected>;
  /** End the processes. */
  close(): Promise<void>;
}

const program = fileURLToPath(new URL("./worker.ts", import.meta.url));
const startDelayMs = 30;

/** Start processes that send a load, and give them its requests. */
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
        worker.ask({ kind: "prepare", requests, load, index, workers: count, priority }),
      ),
    );
  } catch (error) {
    await close();
    throw error;
  }
  const ask = async (message: ToWorker): Promise<Collected> => {
    const answers = await Promise.all(workers.map((worker) => worker.ask(message)));
    const collected = answers.flatMap((answer) => (answer.kind === "collected" ? [answer] : []));
    return {
      samples: workers.flatMap((worker) => worker.takeSamples()),
      workers: collected.map(({ cpuMs, atMs, eventLoopDelayP99Ms }) => ({
        cpuMs,
        atMs,
        eventLoopDelayP99Ms,
      })),
    };
  };
  return {
    count,
    pids: workers.flatMap(({ pid }) => (pid === undefined ? [] : [pid])),
    start() {
      const atMs = clockMs() + startDelayMs;
      for (const worker of workers) worker.tell({ kind: "start", atMs });
      return atMs;
    },
    collect: (boundary) => ask({ kind: "collect", boundary }),
    stop: (patienceMs) => ask({ kind: "stop", patienceMs }),
    close,
  };
}

class Worker {
  readonly #child: ChildProcess;
  readonly #samples: TimedSample[] = [];
  #said = "";
  #closing = false;
  #waiting: { resolve: (answer: FromWorker) => void; reject: (error: Error) => void } | undefined;

  constructor() {
    this.#child = fork(program, {
      execArgv: ["--import", import.meta.resolve("tsx")],
      // typed arrays as they are
      serialization: "advanced",
      stdio: ["ignore", "ignore", "pipe", "ipc"],
    });
    this.#child.stderr?.on("data", (chunk: Buffer) => {
      this.#said = `${this.#said}${chunk.toString("utf8")}`.slice(-2_000);
    });
    this.#child.on("message", (answer: FromWorker) => {
      if (answer.kind !== "prepared") addRows(this.#samples, answer.samples, answer.codes);
      if (answer.kind === "samples") return;
      const waiting = this.#waiting;
      this.#waiting = undefined;
      waiting?.resolve(answer);
    });
    this.#child.on("error", (error) => this.#fail(error.message));
    this.#child.on("exit", (code, signal) => this.#fail(`it ended with ${signal ?? code}`));
  }

  get pid(): number | undefined {
    return this.#child.pid;
  }

  takeSamples(): readonly TimedSample[] {
    return this.#samples.splice(0);
  }

  /** One question at a time. */
  ask(message: ToWorker): Promise<FromWorker> {
    return new Promise((resolve, reject) => {
      this.#waiting = { resolve, reject };
      this.tell(message);
    });
  }

  tell(message: ToWorker): void {
    if (!this.#child.connected) {
      this.#fail("it is gone");
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
    const gone = once(this.#child, "exit");
    this.#child.kill("SIGKILL");
    await gone;
  }

  #fail(reason: string): void {
    if (this.#closing) return;
    const lines = this.#said.trim() === "" ? "" : `:\n${this.#said.trim()}`;
    this.#waiting?.reject(new UserError(`load generator: ${reason}${lines}`));
    this.#waiting = undefined;
  }
}
