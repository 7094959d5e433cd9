import type { BenchImage } from "./bench-images.ts";
import type {
  BenchPath,
  BenchRecord,
  Cell,
  Conditions,
  LoadShape,
  StudyId,
} from "./bench-record.ts";
import type { BenchTarget, OpenTargets } from "./bench-targets.ts";

/** What happens, as it happens. */
export type BenchEvent =
  | { readonly kind: "phase"; readonly environment?: string; readonly text: string }
  | { readonly kind: "parity"; readonly result: BenchRecord["parity"][number] }
  /** A window of the cell that is being measured. */
  | {
      readonly kind: "window";
      readonly cell: string;
      readonly window: Cell["windows"][number];
      readonly index: number;
    }
  | { readonly kind: "cell"; readonly cell: Cell };

/** What every cell of a run is measured with. */
export interface BenchContext {
  readonly settings: BenchRecord["settings"];
  /** What the requests carry. */
  readonly images: readonly BenchImage[];
  /** Processes that send; absent: as many as the rate needs. */
  readonly workers?: number;
  readonly signal: AbortSignal;
  readonly onEvent: (event: BenchEvent) => void;
}

/** One load. */
export interface CellOptions {
  readonly batch: number;
  readonly load: LoadShape;
  readonly study?: StudyId;
  readonly conditions?: Conditions;
  /** Address in place of the target's, for example of a proxy before it. */
  readonly url?: string;
  /** Settings in place of the context's. */
  readonly settings?: Partial<BenchRecord["settings"]>;
  /** Reads the GPUs while the load goes on: {@link OpenTargets.readGpus}, where Triton's metrics have none. */
  readonly readGpus?: OpenTargets["readGpus"];
}

/** Measure one load on one path of a target. Its id is unique as long as nothing is measured twice. */
export type MeasureCell = (
  context: BenchContext,
  target: BenchTarget,
  path: BenchPath,
  options: CellOptions,
) => Promise<Cell>;

/** What a record says before anything was measured; `parity`, `cells` and `studies` are added to it. */
export type NewBenchRecord = (options: {
  readonly project: string;
  readonly startedAt: Date;
  readonly runtime: OpenTargets["runtime"];
  readonly model: BenchRecord["subject"]["model"];
  readonly settings: BenchRecord["settings"];
}) => Promise<BenchRecord>;
