import type { Finding } from "./findings.ts";

/** Seconds between the end of the server's own grace and the kill. */
export const stopMarginSeconds = 5;

/** Seconds that a container gets to stop: its own grace, what comes before it, and a margin. */
export function stopSeconds(graceSeconds: number, preStopSeconds = 0): number {
  return preStopSeconds + graceSeconds + stopMarginSeconds;
}

/** A stop that would be cut off by a kill while requests are still answered. */
export function stopTimeFindings(
  prop: string,
  seconds: number,
  graceSeconds: number,
  preStopSeconds = 0,
): readonly Finding[] {
  const least = stopSeconds(graceSeconds, preStopSeconds);
  return seconds >= least
    ? []
    : [
        `${prop} must be at least ${least} (${preStopSeconds} before the stop + ${graceSeconds} of grace + ${stopMarginSeconds}), got ${seconds}`,
      ];
}
