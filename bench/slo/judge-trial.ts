import type { LoadPoint } from "../record/bench-record.ts";
import { type Slo, type SloTrial, sloPercents } from "../record/slo-search.ts";
import { minAchievedShare } from "../report/load-points.ts";
import { censoredPercentile, failures, succeededWithin } from "../stats/censored.ts";

/** Figures of a load point that an SLO is judged by. */
export type JudgedLoad = Pick<
  LoadPoint,
  "seconds" | "samples" | "requestsPerSecond" | "histogram" | "errors" | "invalid"
>;

/** One open-loop measurement of a search, judged by its SLO. */
export function judgeTrial(
  slo: Slo,
  offered: Pick<SloTrial, "purpose" | "ratePerSecond" | "seed">,
  load: JudgedLoad,
): SloTrial {
  const { seconds, samples, requestsPerSecond } = load;
  const failed = failures(load.errors);
  const requests = samples + failed;
  const percentileMs = censoredPercentile(load, sloPercents[slo.percentile]);
  const achievedShare = requests === 0 ? 0 : samples / requests;
  const verdict = verdictOf();
  return {
    ...offered,
    seconds,
    requests,
    failed,
    requestsPerSecond,
    goodputPerSecond: seconds === 0 ? 0 : succeededWithin(load, slo.limitMs) / seconds,
    achievedShare,
    ...(Number.isFinite(percentileMs) ? { percentileMs } : {}),
    verdict,
    ...(verdict === "client" ? { invalid: load.invalid } : {}),
  };

  function verdictOf(): SloTrial["verdict"] {
    // a load without a success is invalid as well, but not because of the client
    if (samples > 0 && load.invalid.length > 0) return "client";
    if (achievedShare < minAchievedShare || fallsBehind()) return "achieved";
    return percentileMs <= slo.limitMs ? "met" : "latency";
  }

  /**
   * Returns whether the responses of the measured time are fewer than its requests by more than 1 % and by more than can be
   * outstanding within the SLO (Little's law), as when a queue grows.
   */
  function fallsBehind(): boolean {
    const outstanding = (offered.ratePerSecond * slo.limitMs) / 1_000;
    return requestsPerSecond * seconds < minAchievedShare * requests - outstanding;
  }
}
