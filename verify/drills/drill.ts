import { setTimeout as sleep } from "node:timers/promises";
import { isDeepStrictEqual } from "node:util";
import { rolloutProblem } from "../../artefact/cluster-objects.ts";
import type { EncodedImage } from "../../target/requests/embed-requests.ts";
import { reason } from "../../target/requests/http-client.ts";
import {
  ApiRejection,
  type ClusterApi,
  namespacedPath,
  type PatchType,
} from "../cluster/cluster-api.ts";
import { DrillLoad, failureText, type Pace } from "./drill-load.ts";
import type { DrillCheck, DrillName, ReplicaPoint } from "./drill-record.ts";
import {
  type DrillTarget,
  readSnapshot,
  replicaPoint,
  type Snapshot,
  snapshotText,
} from "./snapshot.ts";

export interface DrillOptions {
  readonly target: DrillTarget;
  readonly images: readonly EncodedImage[];
  /** Requests per second of the fixed-rate load. */
  readonly ratePerSecond: number;
  /** Clients of the closed loop that triggers the autoscaler. */
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
export interface DrillPhase {
  readonly name: string;
  /** Load from this phase on. @default - the load of the previous phase */
  readonly load?: (options: DrillOptions) => Pace;
  /** Seconds of load before `act`. @default 0 */
  readonly leadSeconds?: number;
  act(run: DrillRun): Promise<void>;
}

/** Rehearsal on a running cluster, and how to undo it. To add one: a file, its name in `drill-record.ts` and a line in `registry.ts`. */
export interface Drill {
  /** Name of the command, and in records. */
  readonly name: DrillName;
  /** Question that the drill answers, for the report and the help. */
  readonly question: string;
  /** Actions of the drill, for the help. */
  readonly help: string;
  /** Command-line option that sets the load. @default - none */
  readonly loadOption?: "rate" | "concurrency";
  /**
   * Treatment of pods that the autoscaler added under an earlier load. `awaited`: waits until they are removed, because a rolling
   * update needs their capacity; `required`: fails if they are not removed.
   *
   * @default - starts with any number of pods
   */
  readonly scaleDown?: "awaited" | "required";
  /** Checks the prerequisites before any change; throws {@link UserError} if one is missing. */
  prepare?(run: DrillRun): Promise<void>;
  readonly phases: readonly DrillPhase[];
  /** Reverts changes; also called after a failure or an interruption. */
  restore?(run: DrillRun): Promise<void>;
  /** Removes objects that the drill created; called after the pods have settled or failed to settle. */
  cleanUp?(run: DrillRun): Promise<void>;
}

export const pollMs = 500;
/** Retry limits while the API server is unavailable: during the phases, and while the cluster is restored. */
const phaseRetryMs = 15_000;
const restoreRetryMs = 90_000;
/** Seconds that are added to the autoscaler's window, for its sync period, the age of metrics and the end of pods. */
export const scaleMarginSeconds = 120;

/** An expected state was not reached in time. The changes are reverted, and the failure is recorded. */
class ClaimFailed extends Error {
  override readonly name = "ClaimFailed";
}

/** State of a drill in progress on one Deployment. */
export class DrillRun {
  readonly steps: { atSeconds: number; text: string }[] = [];
  readonly replicas: ReplicaPoint[] = [];
  readonly rejections: { request: string; status: number; reason: string; message: string }[] = [];
  readonly checks: DrillCheck[] = [];
  readonly load: DrillLoad;
  readonly #startedMs = performance.now();
  #retryMs = phaseRetryMs;
  /** Whether a request was sent that may have changed the cluster. */
  changed = false;

  constructor(
    readonly api: ClusterApi,
    readonly options: DrillOptions,
    /** State before the drill. */
    readonly before: Snapshot,
    /** Aborts the phases; replaced while the cluster is restored. */
    public signal: AbortSignal,
  ) {
    this.load = new DrillLoad(api, options.target, before, options.images, options.apiKey);
  }

  /** Ignores interruptions from now on, and retries for longer. */
  beginRestoring(): void {
    this.signal = new AbortController().signal;
    this.#retryMs = restoreRetryMs;
  }

  get target(): DrillTarget {
    return this.options.target;
  }

  /** API path of objects in the namespace. */
  path(group: string, plural: string, name?: string): string {
    return namespacedPath(this.target.namespace, group, plural, name);
  }

  step(text: string): void {
    this.steps.push({ atSeconds: this.#seconds(), text });
    this.#print(text);
  }

  check(claim: string, passed: boolean, message: string): void {
    this.checks.push({ claim, passed, message });
    this.step(`${passed ? "✔" : "✘"} ${claim}: ${message}`);
  }

  recordRejection(request: string, { status, reason, message }: ApiRejection): void {
    this.rejections.push({ request, status, reason, message });
  }

  async patch(type: PatchType, body: unknown): Promise<void> {
    this.changed = true;
    await this.api.patch(this.path("apps/v1", "deployments", this.target.deployment), type, body);
  }

  /** @throws {ApiRejection} with the API server's status and message. */
  async post(path: string, body: unknown): Promise<void> {
    this.changed = true;
    await this.api.post(path, body);
  }

  /** Retries while the API server is unavailable. `work` must be idempotent. */
  async withRetries<T>(work: () => Promise<T>): Promise<T> {
    const endsMs = performance.now() + this.#retryMs;
    for (let tries = 1; ; tries++) {
      try {
        return await work();
      } catch (error) {
        this.signal.throwIfAborted();
        if (isFinal(error) || performance.now() > endsMs) throw error;
        if (tries === 1) {
          this.step(`retrying for up to ${this.#retryMs / 1_000} s: ${reason(error)}`);
        }
        await this.#pause();
      }
    }
  }

  /** Reads the Deployment, its pods and its autoscaler, and records changed pod numbers. */
  async observe(): Promise<Snapshot> {
    const snapshot = await this.withRetries(() => readSnapshot(this.api, this.target));
    const point = replicaPoint(snapshot);
    const { atSeconds: _, ...last } = this.replicas.at(-1) ?? { atSeconds: 0 };
    if (!isDeepStrictEqual(last, point)) {
      this.replicas.push({ atSeconds: this.#seconds(), ...point });
      this.#print(`  ${snapshotText(snapshot)}`);
    }
    return snapshot;
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
    holds: (snapshot: Snapshot) => boolean | Promise<boolean>,
  ): Promise<Snapshot> {
    const endsMs = performance.now() + seconds * 1_000;
    for (;;) {
      const snapshot = await this.observe();
      if (await holds(snapshot)) return snapshot;
      if (performance.now() > endsMs) {
        throw new ClaimFailed(`${claim}: not reached in ${seconds} s; ${snapshotText(snapshot)}`);
      }
      await this.#pause();
    }
  }

  /** Waits until every pod has the Deployment's template and is ready, and no other pod remains. */
  async untilSettled(claim: string, seconds: number): Promise<Snapshot> {
    return this.until(
      claim,
      seconds,
      ({ deployment, pods }) => rolloutProblem(deployment, pods) === undefined,
    );
  }

  /** Records pod numbers for `seconds`. */
  async watch(seconds: number): Promise<void> {
    const endsMs = performance.now() + seconds * 1_000;
    while (performance.now() < endsMs) {
      await this.observe();
      await this.#pause();
    }
  }

  /** Runs the phases of a drill, each under its load. */
  async act({ phases }: Drill): Promise<void> {
    for (const { name, load, leadSeconds = 0, act } of phases) {
      const pace = load?.(this.options);
      // the first load starts before its phase, a later one with it
      if (pace !== undefined && this.load.idle) await this.#send(pace);
      this.load.phase(name);
      if (pace !== undefined && !isDeepStrictEqual(pace, this.load.pace)) await this.#send(pace);
      await this.watch(leadSeconds);
      await act(this);
    }
    if (this.load.idle) return;
    await this.load.end(this.signal);
    for (const { name } of phases) this.#checkAnswered(name);
  }

  async #send(pace: Pace): Promise<void> {
    await this.load.start(pace, this.signal);
    // the load may trigger an autoscaler
    this.changed = true;
    this.step(
      pace.kind === "fixed rate"
        ? `load: ${pace.ratePerSecond} requests per second`
        : `load: ${pace.concurrency} clients in a closed loop`,
    );
  }

  #checkAnswered(phase: string): void {
    const load = this.load.of(phase);
    const { requests, failed, latencyMs } = load;
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

  #print(text: string): void {
    this.options.onStep?.(`${this.#seconds().toFixed(1).padStart(6)} s  ${text}`);
  }

  #seconds(): number {
    return Math.round((performance.now() - this.#startedMs) / 100) / 10;
  }
}

/** Returns whether an error is not retried: a missing permission or an exceeded wait. */
function isFinal(error: unknown): boolean {
  if (error instanceof ApiRejection) return error.status === 403;
  return error instanceof ClaimFailed;
}
