import { setTimeout as sleep } from "node:timers/promises";
import { isDeepStrictEqual } from "node:util";
import type { EncodedImage } from "../../target/requests/embed-requests.ts";
import { reason } from "../../target/requests/http-client.ts";
import { type DrillLoad, failureText, type Pace } from "./drill-load.ts";
import type {
  ClusterSubject,
  DrillCheck,
  DrillName,
  DrillRecord,
  HostSubject,
  PhaseLoad,
} from "./drill-record.ts";

export interface DrillOptions {
  readonly images: readonly EncodedImage[];
  /** Requests per second of the fixed-rate load. */
  readonly ratePerSecond: number;
  /** Clients of a closed loop, which triggers an autoscaler or fills a queue. */
  readonly concurrency: number;
  /** @default - no authentication */
  readonly apiKey?: string;
  /** Git repository; its commit is recorded. */
  readonly repository: string;
  readonly signal: AbortSignal;
  /** Receives each step as one line of text. */
  readonly onStep?: (line: string) => void;
}

/** One phase of a drill. Every request that is due in it must be answered. */
export interface DrillPhase<Run> {
  readonly name: string;
  /** Load from this phase on. @default - the load of the previous phase */
  readonly load?: (options: DrillOptions) => Pace;
  /** Seconds of load before `act`. @default 0 */
  readonly leadSeconds?: number;
  act(run: Run): Promise<void>;
}

/** Rehearsal on a deployment, and how to undo it. To add one: a file, its name in `drill-record.ts` and a line in `registry.ts`. */
export interface Drill<Run> {
  /** Name of the command, and in records. */
  readonly name: DrillName;
  /** Question that the drill answers, for the report and the help. */
  readonly question: string;
  /** Actions of the drill, for the help. */
  readonly help: string;
  /** Command-line option that sets the load. @default - none */
  readonly loadOption?: "rate" | "concurrency";
  /** Checks the prerequisites before any change; throws {@link UserError} if one is missing. */
  prepare?(run: Run): Promise<void>;
  readonly phases: readonly DrillPhase<Run>[];
  /** Reverts changes; also called after a failure or an interruption. */
  restore?(run: Run): Promise<void>;
  /** Removes objects that the drill created; called after the deployment has settled or failed to settle. */
  cleanUp?(run: Run): Promise<void>;
}

export const pollMs = 500;
/** Retry limits while the control plane is unavailable: during the phases, and while the deployment is restored. */
const phaseRetryMs = 15_000;
const restoreRetryMs = 90_000;

/** An expected state was not reached in time. The changes are reverted, and the failure is recorded. */
class ClaimFailed extends Error {
  override readonly name = "ClaimFailed";
}

/** State of a drill in progress. `State` is what {@link observe} reads of the deployment. */
export abstract class DrillRun<State = unknown> {
  readonly steps: { atSeconds: number; text: string }[] = [];
  readonly checks: DrillCheck[] = [];
  readonly #startedMs = performance.now();
  #retryMs = phaseRetryMs;
  /** Whether a request was sent that may have changed the deployment. */
  changed = false;
  /** Aborts the phases; replaced while the deployment is restored. */
  signal: AbortSignal;

  constructor(
    readonly options: DrillOptions,
    /** What the drill changes and restores, for messages. */
    readonly place: "cluster" | "environment",
    readonly load: DrillLoad,
  ) {
    this.signal = options.signal;
  }

  /** Reads the deployment, and records changes. */
  abstract observe(): Promise<State>;
  /** State as text, for messages. */
  protected abstract stateText(state: State): string;
  /** Waits until the deployment is ready again after it was restored. */
  abstract settle(): Promise<void>;
  /** Changes that were not reverted, and a description of the deployment without any. */
  abstract differences(): Promise<{ readonly wrong: readonly string[]; readonly text: string }>;
  /** Part of the record that depends on where the drill ran. */
  abstract record(): Promise<
    Pick<DrillRecord, "replicas" | "rejections"> & {
      readonly subject: ClusterSubject | HostSubject;
    }
  >;
  /** Whether the load alone may change the deployment, as with an autoscaler. */
  protected abstract readonly loadChanges: boolean;
  /** Returns whether an error is not retried, such as a missing permission. */
  protected abstract isFinal(error: unknown): boolean;
  /** Adds the checks of a phase's requests. */
  protected abstract checkPhase(load: PhaseLoad): void;
  abstract close(): Promise<void>;

  /** Ignores interruptions from now on, and retries for longer. */
  beginRestoring(): void {
    this.signal = new AbortController().signal;
    this.#retryMs = restoreRetryMs;
  }

  step(text: string): void {
    this.steps.push({ atSeconds: this.seconds(), text });
    this.print(text);
  }

  check(claim: string, passed: boolean, message: string): void {
    this.checks.push({ claim, passed, message });
    this.step(`${passed ? "✔" : "✘"} ${claim}: ${message}`);
  }

  /** Retries while the control plane is unavailable. `work` must be idempotent. */
  async withRetries<T>(work: () => Promise<T>): Promise<T> {
    const endsMs = performance.now() + this.#retryMs;
    for (let tries = 1; ; tries++) {
      try {
        return await work();
      } catch (error) {
        this.signal.throwIfAborted();
        if (error instanceof ClaimFailed || this.isFinal(error) || performance.now() > endsMs)
          throw error;
        if (tries === 1) {
          this.step(`retrying for up to ${this.#retryMs / 1_000} s: ${reason(error)}`);
        }
        await this.#pause();
      }
    }
  }

  /**
   * Polls until a condition holds.
   *
   * @param claim - Condition as text, for the error message.
   * @throws {ClaimFailed} after `seconds`.
   */
  async until(
    claim: string,
    seconds: number,
    holds: (state: State) => boolean | Promise<boolean>,
  ): Promise<State> {
    const endsMs = performance.now() + seconds * 1_000;
    for (;;) {
      const state = await this.observe();
      if (await holds(state)) return state;
      if (performance.now() > endsMs) {
        throw new ClaimFailed(`${claim}: not reached in ${seconds} s; ${this.stateText(state)}`);
      }
      await this.#pause();
    }
  }

  /** Observes the deployment for `seconds`. */
  async watch(seconds: number): Promise<void> {
    const endsMs = performance.now() + seconds * 1_000;
    while (performance.now() < endsMs) {
      await this.observe();
      await this.#pause();
    }
  }

  async act({ phases }: Drill<this>): Promise<void> {
    for (const { name, load, leadSeconds = 0, act } of phases) {
      const pace = load?.(this.options);
      // the requests of the previous phase end first
      if (pace !== undefined && !isDeepStrictEqual(pace, this.load.pace)) await this.#send(pace);
      this.load.phase(name);
      await this.watch(leadSeconds);
      await act(this);
    }
    if (this.load.idle) return;
    await this.load.end(this.signal);
    for (const { name } of phases) this.checkPhase(this.load.of(name));
  }

  async #send(pace: Pace): Promise<void> {
    await this.load.start(pace, this.signal);
    this.changed ||= this.loadChanges;
    this.step(
      pace.kind === "fixed rate"
        ? `load: ${pace.ratePerSecond} requests per second`
        : `load: ${pace.concurrency} clients in a closed loop`,
    );
  }

  protected checkAnswered(load: PhaseLoad): void {
    const { phase, requests, failed, latencyMs } = load;
    const times =
      latencyMs === undefined
        ? ""
        : `, p50 ${latencyMs.p50.toFixed(0)} ms, max ${latencyMs.max.toFixed(0)} ms`;
    this.check(
      `every request is answered: ${phase}`,
      failed === 0 && requests > 0,
      failureText(load) || `${requests} requests, 0 failed${times}`,
    );
  }

  async #pause(): Promise<void> {
    await sleep(pollMs, undefined, { signal: this.signal });
  }

  protected print(text: string): void {
    this.options.onStep?.(`${this.seconds().toFixed(1).padStart(6)} s  ${text}`);
  }

  protected seconds(): number {
    return Math.round((performance.now() - this.#startedMs) / 100) / 10;
  }
}
