import { stopMarginSeconds } from "../../contract/pods.ts";
import { findingIf } from "./findings.ts";

/** Time limit of a stop: pre-stop delay, grace period and margin, in seconds. */
export function stopSeconds(graceSeconds: number, preStopSeconds = 0): number {
  return preStopSeconds + graceSeconds + stopMarginSeconds;
}

/** Rejects a stop time after which the container is killed with requests in flight. `prop` is the path of the property. */
export function stopTimeFindings(
  prop: string,
  seconds: number | undefined,
  graceSeconds: number,
  preStopSeconds = 0,
): readonly string[] {
  const least = stopSeconds(graceSeconds, preStopSeconds);
  const preStop = preStopSeconds > 0 ? `preStop ${preStopSeconds} + ` : "";
  return findingIf(
    (seconds ?? 0) < least,
    prop,
    `be at least ${least} (${preStop}grace period ${graceSeconds} + ${stopMarginSeconds})`,
    seconds ?? "nothing",
  );
}
