import { counted } from "../../report/document/number-format.ts";
import { throttleReasonNames } from "../../target/readings/gpu-readings.ts";
import type { LoadPoint } from "../record/bench-record.ts";

type Reading = NonNullable<LoadPoint["gpu"]>["gpus"][number];

/** Idle is no reason to distrust a figure. */
const idle = "idle";

/** Clocks, power, temperature and throttle reasons over all load points and GPUs; empty without readings. */
export function gpuStateText(loadPoints: readonly LoadPoint[]): string {
  const gpus = loadPoints.flatMap(({ gpu }) => gpu?.gpus ?? []);
  const range = (read: (gpu: Reading) => number | undefined, unit: string) => {
    const values = gpus.flatMap((gpu) => read(gpu) ?? []).map(Math.round);
    if (values.length === 0) return undefined;
    const [low, high] = [Math.min(...values), Math.max(...values)];
    return low === high ? `${low} ${unit}` : `${low} to ${high} ${unit}`;
  };
  const named = (name: string, text: string | undefined) =>
    text === undefined ? [] : [`${name} ${text}`];
  return [
    ...named(
      "SM clock",
      range((gpu) => gpu.smClockMHz, "MHz"),
    ),
    ...named(
      "memory clock",
      range((gpu) => gpu.memoryClockMHz, "MHz"),
    ),
    ...named(
      "power",
      range((gpu) => gpu.powerWatts, "W"),
    ),
    ...named(
      "power limit",
      range((gpu) => gpu.powerLimitWatts, "W"),
    ),
    ...named(
      "temperature",
      range((gpu) => gpu.temperatureC, "°C"),
    ),
    ...throttleTexts(loadPoints),
  ].join(", ");
}

/** Throttle reasons, each with the number of load points in which it was active; of no reason, that there was none. */
function throttleTexts(loadPoints: readonly LoadPoint[]): readonly string[] {
  const masks = loadPoints.flatMap(({ gpu }) => {
    const known = (gpu?.gpus ?? []).flatMap(({ throttleReasons }) => throttleReasons ?? []);
    return known.length === 0 ? [] : [known.reduce((all, mask) => all | mask, 0)];
  });
  if (masks.length === 0) return [];
  const reasons = masks.flatMap(throttleReasonNames).filter((name) => name !== idle);
  if (reasons.length === 0) return ["not throttled"];
  return [...new Set(reasons)].map((name) => {
    const count = reasons.filter((reason) => reason === name).length;
    return `throttled by ${name} in ${count} of ${counted(masks.length, "load point")}`;
  });
}
