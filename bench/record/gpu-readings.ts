/** Reading of a GPU, sampled once per second while a load point is measured. */
export interface GpuReadingKind {
  /** Aggregation of the samples in the measured windows. */
  readonly combine: "mean" | "max";
  /** Column of `nvidia-smi --query-gpu` and the unit of the record in that column's unit. */
  readonly nvidiaSmi: readonly [column: string, unit: number];
  /**
   * Triton metric with the label `gpu_uuid` and the unit of the record in that metric's unit.
   *
   * @default - not a Triton metric: read with `nvidia-smi` only
   */
  readonly triton?: readonly [metric: string, unit: number];
  /** Whether values are rounded to whole units. */
  readonly whole: boolean;
}

const rows = {
  /** Fraction of the time in which a kernel ran, 0..1. */
  utilization: {
    combine: "mean",
    nvidiaSmi: ["utilization.gpu", 100],
    triton: ["nv_gpu_utilization", 1],
    whole: false,
  },
  memoryUsedMiB: {
    combine: "max",
    nvidiaSmi: ["memory.used", 1],
    triton: ["nv_gpu_memory_used_bytes", 2 ** 20],
    whole: true,
  },
  memoryTotalMiB: {
    combine: "max",
    nvidiaSmi: ["memory.total", 1],
    triton: ["nv_gpu_memory_total_bytes", 2 ** 20],
    whole: true,
  },
  powerWatts: {
    combine: "mean",
    nvidiaSmi: ["power.draw", 1],
    triton: ["nv_gpu_power_usage", 1],
    whole: false,
  },
} as const satisfies Readonly<Record<string, GpuReadingKind>>;

export type GpuReadingName = keyof typeof rows;

/** Readings of a GPU by their field in the record. A new row is collected and stored without further code. */
export const gpuReadings: Readonly<Record<GpuReadingName, GpuReadingKind>> = rows;

export const gpuReadingNames = Object.keys(rows) as readonly GpuReadingName[];
