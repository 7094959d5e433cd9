import { stopMarginSeconds } from "../../contract/pods.ts";
import type { Finding } from "./findings.ts";

/** Seconds that a container gets to stop: its own grace, what comes before it, and a margin. */
export function stopSeconds(graceSeconds: number, preStopSeconds = 0): number {
  return preStopSeconds + graceSeconds + stopMarginSeconds;
}

/** A stop that would be cut off by a kill while requests are still answered. `prop` is where it was set. */
export function stopTimeFindings(
  prop: string,
  seconds: number | undefined,
  graceSeconds: number,
  preStopSeconds = 0,
): readonly Finding[] {
  const least = stopSeconds(graceSeconds, preStopSeconds);
  if (seconds !== undefined && seconds >= least) return [];
  const before = preStopSeconds > 0 ? `${preStopSeconds} before the stop + ` : "";
  return [
    {
      path: prop,
      must: `be at least ${least} (${before}${graceSeconds} of grace + ${stopMarginSeconds})`,
      got: `${seconds ?? "nothing"}`,
    },
  ];
}
