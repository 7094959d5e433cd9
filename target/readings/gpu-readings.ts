import { z } from "zod";
import { tritonMetrics } from "../../contract/metrics/triton-metrics.ts";

/** Reading of a GPU, sampled once per second while a load point is measured. */
export interface GpuReadingKind {
  /** How the samples of the measured windows become one value; `or` combines bit masks. */
  readonly combine: "mean" | "max" | "or";
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
    triton: [tritonMetrics.gpuUtilization, 1],
    whole: false,
  },
  memoryUsedMiB: {
    combine: "max",
    nvidiaSmi: ["memory.used", 1],
    triton: [tritonMetrics.gpuMemoryUsed, 2 ** 20],
    whole: true,
  },
  memoryTotalMiB: {
    combine: "max",
    nvidiaSmi: ["memory.total", 1],
    triton: [tritonMetrics.gpuMemoryTotal, 2 ** 20],
    whole: true,
  },
  powerWatts: {
    combine: "mean",
    nvidiaSmi: ["power.draw", 1],
    triton: [tritonMetrics.gpuPowerUsage, 1],
    whole: false,
  },
  powerLimitWatts: {
    combine: "max",
    nvidiaSmi: ["power.limit", 1],
    triton: [tritonMetrics.gpuPowerLimit, 1],
    whole: false,
  },
  smClockMHz: { combine: "mean", nvidiaSmi: ["clocks.sm", 1], whole: true },
  memoryClockMHz: { combine: "mean", nvidiaSmi: ["clocks.mem", 1], whole: true },
  temperatureC: { combine: "max", nvidiaSmi: ["temperature.gpu", 1], whole: true },
  /** Bits of {@link throttleReasons} that were set in any sample. */
  throttleReasons: { combine: "or", nvidiaSmi: ["clocks_event_reasons.active", 1], whole: true },
} as const satisfies Readonly<Record<string, GpuReadingKind>>;

export type GpuReadingName = keyof typeof rows;

/** Readings of a GPU by their field in the record. A new row is collected and stored without further code. */
export const gpuReadings: Readonly<Record<GpuReadingName, GpuReadingKind>> = rows;

export const gpuReadingNames = Object.keys(rows) as readonly GpuReadingName[];

/** Use of the GPUs while a load point was measured. */
export const gpuUse = z.strictObject({
  /** Main source; with `triton metrics`, readings that Triton does not report are from `nvidia-smi`. */
  source: z.enum(["triton metrics", "nvidia-smi"]),
  gpus: z.array(
    z.strictObject({
      /** UUID, or the index if the source reports only that. */
      id: z.string(),
      ...(Object.fromEntries(
        gpuReadingNames.map((name) => [name, z.number().optional()]),
      ) as Record<GpuReadingName, z.ZodOptional<z.ZodNumber>>),
    }),
  ),
});
export type GpuUse = z.infer<typeof gpuUse>;

/** Reasons why a GPU lowers its clocks, by bit, as in NVML's `nvmlClocksEventReason…`. */
export const throttleReasons = [
  [0x1, "idle"],
  [0x2, "application clocks"],
  [0x4, "power limit"],
  [0x8, "hardware slowdown"],
  [0x10, "sync boost"],
  [0x20, "temperature (software)"],
  [0x40, "temperature (hardware)"],
  [0x80, "power brake"],
  [0x100, "display clocks"],
] as const;

/** Names of the reasons in a bit mask; an unknown bit is its number. */
export function throttleReasonNames(mask: number): readonly string[] {
  const known = throttleReasons.flatMap(([bit, name]) => ((mask & bit) === 0 ? [] : [name]));
  const rest = throttleReasons.reduce((left, [bit]) => left & ~bit, mask);
  return rest === 0 ? known : [...known, `0x${rest.toString(16)}`];
}
