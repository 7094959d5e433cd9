import type { LoadShape } from "../../contract/load-shape.ts";
import type { BenchRecord, LoadPoint } from "../record/bench-record.ts";
import { type Slo, type SloSearch, type SloTrial, sloPercents } from "../record/slo-search.ts";
import { judgeTrial } from "./judge-trial.ts";
import { rounded, searchRate } from "./search-rate.ts";

type OpenLoop = Extract<LoadShape, { readonly kind: "open loop" }>;

/** SLO to search the highest rate for, and the arrivals of its trials. */
export interface SloGoal {
  readonly slo: Slo;
  readonly arrivals: OpenLoop["arrivals"];
  readonly seed: number;
  /** Images or texts per second to plan replicas for. */
  readonly demandPerSecond?: number;
}

/** Relative distance at which a search ends. */
export const sloTolerance = 0.02;
const maxTrials = 12;
const maxConfirmations = 8;
/** Share of the closed loop's throughput below which a search ends without a result. */
const lowestShare = 0.05;
/** Maximum measured time of a trial, for low rates. */
const maxTrialSeconds = 600;
/** Minimum number of requests beyond the percentile, so that it does not depend on one or two of them. */
const minBeyond = 5;
/** Share of the duration of a load point that its warm-up can take. */
const warmupShare = 0.3;

/** Settings of the windows of a load point. */
type WindowSettings = Pick<
  BenchRecord["settings"],
  "windowSeconds" | "windows" | "durationSeconds"
>;

/**
 * Windows of a trial: as long as all rounds of a load point, and longer if the rate is too low for the percentile. Their number is
 * fixed, so that no window is selected by its result.
 */
export function trialWindows(
  {
    windowSeconds,
    windows,
    rounds,
  }: Pick<BenchRecord["settings"], "windowSeconds" | "windows" | "rounds">,
  { percentile }: Slo,
  ratePerSecond: number,
): WindowSettings {
  const enough = minBeyond / (1 - sloPercents[percentile] / 100) / ratePerSecond;
  const seconds = Math.max(rounds * windows * windowSeconds, Math.min(enough, maxTrialSeconds));
  const count = Math.max(1, Math.ceil(seconds / windowSeconds));
  return {
    windowSeconds,
    windows: count,
    // the warm-up, and one window for late timers
    durationSeconds: ((count + 1) * windowSeconds) / (1 - warmupShare),
  };
}

/** Measures an open loop; the result of a {@link LoadPoint} is enough for a trial. */
type MeasureRate = (load: OpenLoop, purpose: SloTrial["purpose"]) => Promise<LoadPoint>;

/**
 * Searches the highest rate that meets an SLO, by bisection below the throughput of a closed loop, and confirms it with other
 * arrival times. A rate that is not confirmed is lowered by the tolerance, a bounded number of times.
 *
 * @param search - Receives the trials as they are measured, so that it is complete after an interrupt.
 * @param onTrial - Called after each trial.
 */
export async function searchSlo(
  search: SloSearch,
  { seed }: Pick<SloGoal, "seed">,
  measure: MeasureRate,
  onTrial: (trial: SloTrial) => void = () => {},
): Promise<void> {
  const { slo, arrivals, tolerance, closedLoopPerSecond } = search;
  const tryRate = async (
    ratePerSecond: number,
    purpose: SloTrial["purpose"],
    trialSeed: number,
  ): Promise<SloTrial["verdict"]> => {
    const load = { kind: "open loop", arrivals, ratePerSecond, seed: trialSeed } as const;
    const offered = { purpose, ratePerSecond, seed: trialSeed };
    const trial = judgeTrial(slo, offered, await measure(load, purpose));
    search.trials.push(trial);
    onTrial(trial);
    return trial.verdict;
  };
  // the trials share their arrival pattern, so that the rates differ in nothing else
  const found = await searchRate(
    {
      upperBound: closedLoopPerSecond,
      tolerance,
      lowest: closedLoopPerSecond * lowestShare,
      maxTrials,
    },
    async (rate) => {
      const verdict = await tryRate(rate, "search", seed);
      // another program may have disturbed the client
      return (verdict === "client" ? await tryRate(rate, "search", seed) : verdict) === "met";
    },
  );
  let rate = found;
  for (let attempt = 1; rate !== undefined && attempt <= maxConfirmations; attempt++) {
    const verdict = await tryRate(rate, "confirmation", seed + attempt);
    if (verdict === "met") return;
    // an invalid confirmation says nothing about the rate
    if (verdict !== "client") rate = rounded(rate * (1 - tolerance));
  }
}
