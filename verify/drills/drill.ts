import { setTimeout as sleep } from "node:timers/promises";
import { isDeepStrictEqual } from "node:util";
import { unrest } from "../../artefact/cluster-objects.ts";
import type { EncodedImage } from "../../bench/run/embed-requests.ts";
import { reason } from "../../bench/run/http-client.ts";
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
  /** Requests per second while pods come and go. */
  readonly ratePerSecond: number;
  /** Clients of a load that is to make the autoscaler act. */
  readonly concurrency: number;
  /** For an embed server that requires one. */
  readonly apiKey?: string;
  /** Folder whose git commit goes into the record. */
  readonly repository: string;
  readonly signal: AbortSignal;
  /** Receives each step as one line. */
  readonly onStep?: (line: string) => void;
}

/** One part of a drill. Every request that is due in it must be answered. */
export interface DrillPhase {
  readonly name: string;
  /** Load from here on. */
  readonly load?: (options: DrillOptions) => Pace;
  /** Seconds of load before anything is done. */
  readonly calmSeconds?: number;
  act(run: DrillRun): Promise<void>;
}

/** A rehearsal on a running cluster, and how it is undone. */
export interface Drill {
  readonly name: DrillName;
  /**
   * Pods that the autoscaler holds from an earlier load: `awaited`, since a rolling update needs their room on the nodes, and
   * `required` where the drill begins with the fewest pods.
   */
  readonly scaleDown?: "awaited" | "required";
  /** Throws a {@link UserError} if there is nothing to drill; nothing has been changed then. */
  prepare?(run: DrillRun): Promise<void>;
  readonly phases: readonly DrillPhase[];
  /** Always called, also after a failure or an interruption. */
  restore?(run: DrillRun): Promise<void>;
  /** Called once the pods are at rest again, or will not be: removes what is left of the drill. */
  cleanUp?(run: DrillRun): Promise<void>;
}

export const pollMs = 500;
/** How long an API server may be away: while the drill goes on, and while the cluster is restored. */
const actPatienceMs = 15_000;
const restorePatienceMs = 90_000;
/** Beyond the window of an autoscaler: its period, the metrics' age and the pods' own end. */
export const scaleMarginSeconds = 120;

/** Something must be so, and is not. What was done is undone, and the record says it. */
class ClaimFailed extends Error {
  override readonly name = "ClaimFailed";
}

/** One drill on one Deployment, while it goes on. */
export class DrillRun {
  readonly steps: { atSeconds: number; text: string }[] = [];
  readonly replicas: ReplicaPoint[] = [];
  readonly rejections: { asked: string; status: number; reason: string; message: string }[] = [];
  readonly checks: DrillCheck[] = [];
  readonly load: DrillLoad;
  readonly #startedMs = performance.now();
  #patienceMs = actPatienceMs;
  /** A request was sent that may have changed the cluster. */
  changed = false;

  constructor(
    readonly api: ClusterApi,
    readonly options: DrillOptions,
    /** How everything was before. */
    readonly before: Snapshot,
    /** Of what may be interrupted; while the cluster is restored, another one. */
    public signal: AbortSignal,
  ) {
    this.load = new DrillLoad(api, options.target, before, options.images, options.apiKey);
  }

  /** From here on an interruption no longer counts, and an API server may be away for longer. */
  beginRestoring(): void {
    this.signal = new AbortController().signal;
    this.#patienceMs = restorePatienceMs;
  }

  get target(): DrillTarget {
    return this.options.target;
  }

  /** Path of the API for objects of the namespace. */
  path(group: string, plural: string, name?: string): string {
    return namespacedPath(this.target.namespace, group, plural, name);
  }

  step(text: string): void {
    this.steps.push({ atSeconds: this.#seconds(), text });
    this.#tell(text);
  }

  check(claim: string, passed: boolean, message: string): void {
    this.checks.push({ claim, passed, message });
    this.step(`${passed ? "✔" : "✘"} ${claim}: ${message}`);
  }

  reject(asked: string, { status, reason, message }: ApiRejection): void {
    this.rejections.push({ asked, status, reason, message });
  }

  /** Changes the Deployment. */
  async patch(type: PatchType, body: unknown): Promise<void> {
    this.changed = true;
    await this.api.patch(this.path("apps/v1", "deployments", this.target.deployment), type, body);
  }

  /** @throws {ApiRejection} with the API server's status and message. */
  async post(path: string, body: unknown): Promise<void> {
    this.changed = true;
    await this.api.post(path, body);
  }

  /** Tries again while the API server is away for a moment. Only for what may be done twice. */
  async withRetries<T>(work: () => Promise<T>): Promise<T> {
    const endsMs = performance.now() + this.#patienceMs;
    for (let tries = 1; ; tries++) {
      try {
        return await work();
      } catch (error) {
        this.signal.throwIfAborted();
        if (isFinal(error) || performance.now() > endsMs) throw error;
        if (tries === 1) {
          this.step(`trying again for up to ${this.#patienceMs / 1_000} s: ${reason(error)}`);
        }
        await this.#pause();
      }
    }
  }

  /** The Deployment, its pods and its autoscaler now; what has changed is kept for the record. */
  async observe(): Promise<Snapshot> {
    const seen = await this.withRetries(() => readSnapshot(this.api, this.target));
    const point = replicaPoint(seen);
    const { atSeconds: _, ...last } = this.replicas.at(-1) ?? { atSeconds: 0 };
    if (!isDeepStrictEqual(last, point)) {
      this.replicas.push({ atSeconds: this.#seconds(), ...point });
      this.#tell(`  ${snapshotText(seen)}`);
    }
    return seen;
  }

  /**
   * Looks until something is so.
   *
   * @param what - Subject of the message when it does not come.
   * @throws {ClaimFailed} after `seconds`.
   */
  async until(
    what: string,
    seconds: number,
    isSo: (seen: Snapshot) => boolean | Promise<boolean>,
  ): Promise<Snapshot> {
    const endsMs = performance.now() + seconds * 1_000;
    for (;;) {
      const seen = await this.observe();
      if (await isSo(seen)) return seen;
      if (performance.now() > endsMs) {
        throw new ClaimFailed(`${what}: not after ${seconds} s; ${snapshotText(seen)}`);
      }
      await this.#pause();
    }
  }

  /** Until every pod is of the Deployment's template and ready, and no other is left. */
  async untilSettled(what: string, seconds: number): Promise<Snapshot> {
    return this.until(
      what,
      seconds,
      ({ deployment, pods }) => unrest(deployment, pods) === undefined,
    );
  }

  /** Looks for some time. */
  async watch(seconds: number): Promise<void> {
    const endsMs = performance.now() + seconds * 1_000;
    while (performance.now() < endsMs) {
      await this.observe();
      await this.#pause();
    }
  }

  /** Runs the phases of a drill, each under its load. */
  async act({ phases }: Drill): Promise<void> {
    for (const { name, load, calmSeconds = 0, act } of phases) {
      const pace = load?.(this.options);
      // the first load begins before its phase, a later one with it
      if (pace !== undefined && this.load.idle) await this.#send(pace);
      this.load.phase(name);
      if (pace !== undefined && !isDeepStrictEqual(pace, this.load.pace)) await this.#send(pace);
      await this.watch(calmSeconds);
      await act(this);
    }
    if (this.load.idle) return;
    await this.load.end(this.signal);
    for (const { name } of phases) this.#checkAnswered(name);
  }

  async #send(pace: Pace): Promise<void> {
    await this.load.start(pace, this.signal);
    // an autoscaler may act on it
    this.changed = true;
    this.step(
      pace.kind === "fixed rate"
        ? `load: ${pace.ratePerSecond} requests a second`
        : `load: ${pace.concurrency} clients, each after its last answer`,
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

  #tell(text: string): void {
    this.options.onStep?.(`${this.#seconds().toFixed(1).padStart(6)} s  ${text}`);
  }

  #seconds(): number {
    return Math.round((performance.now() - this.#startedMs) / 100) / 10;
  }
}

/** Errors that are not retried: an exceeded wait and missing permissions. */
function isFinal(error: unknown): boolean {
  if (error instanceof ApiRejection) return error.status === 403;
  return error instanceof ClaimFailed;
}
