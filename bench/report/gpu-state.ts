import { counted } from "../../report/document/number-format.ts";
import { throttleReasonNames } from "../../target/readings/gpu-readings.ts";
import type { LoadPoint } from "../record/bench-record.ts";

/** Clocks, power, temperature and throttle reasons over all load points and GPUs; empty without readings. */
export function gpuStateText(loadPoints: readonly LoadPoint[]): string {
  const gpus = loadPoints.flatMap(({ gpu }) => gpu?.gpus ?? []);
  const ranges = states.flatMap(([name, field, unit]) => {
    const values = gpus.flatMap((gpu) => gpu[field] ?? []).map(Math.round);
    if (values.length === 0) return [];
    const [low, high] = [Math.min(...values), Math.max(...values)];
    return [`${name} ${low === high ? low : `${low} to ${high}`} ${unit}`];
  });
  return [...ranges, ...throttleTexts(loadPoints)].join(", ");
}

const states = [
  ["SM clock", "smClockMHz", "MHz"],
  ["memory clock", "memoryClockMHz", "MHz"],
  ["power", "powerWatts", "W"],
  ["power limit", "powerLimitWatts", "W"],
  ["temperature", "temperatureC", "°C"],
] as const;

/** Lists the throttle reasons with the number of load points in which each was active; says so if there was none. */
function throttleTexts(loadPoints: readonly LoadPoint[]): readonly string[] {
  const masks = loadPoints.flatMap(({ gpu }) => {
    const known = (gpu?.gpus ?? []).flatMap(({ throttleReasons }) => throttleReasons ?? []);
    return known.length === 0 ? [] : [known.reduce((all, mask) => all | mask, 0)];
  });
  if (masks.length === 0) return [];
  // idle is no reason to distrust a figure
  const reasons = masks.flatMap(throttleReasonNames).filter((name) => name !== "idle");
  if (reasons.length === 0) return ["not throttled"];
  return [...new Set(reasons)].map((name) => {
    const count = reasons.filter((reason) => reason === name).length;
    return `throttled by ${name} in ${count} of ${counted(masks.length, "load point")}`;
  });
}
