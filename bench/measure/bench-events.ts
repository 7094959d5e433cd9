import type { LoadShape } from "../../contract/load-shape.ts";
import type { ModelTower } from "../../contract/model-spec.ts";
import type { Round } from "../../target/load/round.ts";
import type { OpenTarget } from "../../target/open/open-target.ts";
import type { LoadItem } from "../../target/requests/load-items.ts";
import type { BenchRecord, Conditions, LoadPoint } from "../record/bench-record.ts";
import type { StudyId } from "../record/study-result.ts";

/** Progress of a run. */
export type BenchEvent =
  | { readonly kind: "phase"; readonly environment?: string; readonly text: string }
  | { readonly kind: "notice"; readonly text: string }
  | { readonly kind: "parity"; readonly result: BenchRecord["parity"][number] }
  /** A window of the current load point. */
  | {
      readonly kind: "window";
      readonly pointId: string;
      readonly window: Round["windows"][number];
      readonly index: number;
    }
  /** The load point has one more round, but not yet all. */
  | { readonly kind: "round"; readonly point: LoadPoint }
  /** All rounds of the load point are measured. */
  | { readonly kind: "point"; readonly point: LoadPoint };

/** Settings and callbacks shared by all load points of a run. */
export interface BenchContext {
  /** Measured tower. */
  readonly tower: ModelTower;
  readonly settings: BenchRecord["settings"];
  /** Images or texts to send. */
  readonly items: readonly LoadItem[];
  /** Number of load generator processes; if absent, as many as the rate requires. */
  readonly workers?: number;
  readonly signal: AbortSignal;
  /**
   * Marks the start of work that a second interrupt must not cut off; the returned function marks its end.
   *
   * @param work - Description for the warning: `restoring the queue delay of …`.
   * @default - a second interrupt exits at once
   */
  readonly hold?: (work: string) => () => void;
  readonly onEvent: (event: BenchEvent) => void;
}

/** One load point, except for its endpoint. */
export interface LoadPointOptions {
  readonly batch: number;
  readonly load: LoadShape;
  readonly study?: StudyId;
  readonly conditions?: Conditions;
  /**
   * Number of the round, from 1.
   *
   * @default 1
   */
  readonly round?: number;
  /** Position in the order of the round, from 1. */
  readonly position?: number;
  /**
   * Maximum duration, including the warm-up.
   *
   * @default - that of the settings
   */
  readonly durationSeconds?: number;
  /** {@link OpenTarget.readGpus}, for readings that Triton does not report. */
  readonly readGpus?: OpenTarget["readGpus"];
  /** Called with sentences for the record about its load points. */
  readonly onNote?: (note: string) => void;
}
