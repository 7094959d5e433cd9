import {
  newSection,
  numberField,
  type Section,
  tableOf,
  textField,
} from "../../report/document/document.ts";
import {
  formatCount,
  formatMs,
  formatRate,
  formatRatio,
} from "../../report/document/number-format.ts";
import { mean } from "../../target/stats/statistics.ts";
import type { BenchRecord } from "../record/bench-record.ts";
import type { Slo } from "../record/slo-search.ts";
import type { TuneCandidate, TuneResult } from "../record/tune-result.ts";
import { meanInterval } from "../stats/intervals.ts";
import { sloText } from "./slo-section.ts";

/** Settings of a candidate that differ from the present ones: `embed.server.maxBatchSize 8`. */
export function settingsText({ settings }: TuneCandidate, { candidates }: TuneResult): string {
  const present = candidates[0]?.settings ?? {};
  const changed = Object.entries(settings).filter(([name, value]) => present[name] !== value);
  return changed.map(([name, value]) => `${name} ${value}`).join(", ") || "present settings";
}

/** Why a candidate was not measured in all rounds. */
export function endedText({ ended }: TuneCandidate, slo: Slo): string {
  if (ended === undefined) return "";
  const reason = ended.reason === "slower" ? "slower" : `misses ${sloText(slo)}`;
  return `ended in round ${ended.round}: ${reason}`;
}

/** Reason of the verdict `not measured`. */
export const notMeasured =
  "no valid measurement of the present settings, because the load generator was too slow";

/** `p99 ≤ 200 ms: 118 → 156 images/s (ratio 1.32, 95 % interval 1.24-1.41)`. */
export function tuneVerdict(record: BenchRecord, tune: TuneResult): string {
  const slo = sloOf(record);
  const goal = slo === undefined ? "" : `${sloText(slo)}: `;
  if (tune.verdict === "not measured") return `${goal}${notMeasured}`;
  const [present] = tune.candidates;
  const best = tune.candidates.find(({ name }) => name === tune.best);
  if (present === undefined || best === undefined || tune.verdict === undefined) {
    return `${goal}interrupted before a result`;
  }
  if (tune.verdict === "slo missed") return `${goal}no candidate meets it`;
  if (tune.verdict === "already best") {
    return `${goal}the present settings are the best: ${formatRate(mean(ratesOf(present)))} images/s`;
  }
  const [before, after] = [present, best].map((it) => mean(ratesOf(it, tune.finalRound)));
  const { ratio } = tune;
  const interval =
    ratio === undefined
      ? ""
      : ` (ratio ${formatRatio(ratio.ratio)}, 95 % interval ${formatRatio(ratio.low)}-${formatRatio(ratio.high)})`;
  return `${goal}${before === 0 ? "not met" : formatRate(before ?? 0)} → ${formatRate(after ?? 0)} images/s${interval} with ${settingsText(best, tune)}`;
}

/** Candidates with their rates within the SLO. */
export function tuneSection(record: BenchRecord, tune: TuneResult): Section {
  const slo = sloOf(record);
  const interval = (candidate: TuneCandidate) => meanInterval(ratesOf(candidate));
  const table = tableOf("Candidates: images/s within the SLO", tune.candidates, [
    textField("candidate", ({ name }) => name),
    textField("settings", (candidate) => settingsText(candidate, tune)),
    numberField("images/s", meanRate, formatRate, "Mean of the rounds"),
    textField("95 % interval", (candidate) => {
      const { low, high } = interval(candidate) ?? {};
      return low === undefined || high === undefined
        ? "–"
        : `${formatRate(Math.max(0, low))}-${formatRate(high)}`;
    }),
    numberField(`${slo?.percentile ?? "percentile"} ms`, percentileMs, formatMs, "At these rates"),
    numberField("rounds", ({ rounds }) => rounds.length, formatCount),
    textField("result", (candidate) =>
      candidate.name === tune.best
        ? { text: "best", tone: "good" }
        : slo === undefined
          ? ""
          : endedText(candidate, slo),
    ),
  ]);
  return newSection("tune", "Settings by their rate within the SLO", {
    tables: [table],
    answer: [
      ...(tune.bottleneck === undefined
        ? []
        : [`Bottleneck of the present settings: ${tune.bottleneck}.`]),
      ...(tune.varied.length === 0
        ? []
        : [`Varied in this order: ${tune.varied.map((name) => `\`${name}\``).join(", ")}.`]),
    ],
    notes: [
      "One setting after another, each from the best so far. A round searches the rate of each candidate in shuffled order; candidates are compared round by round, so that the speed of the machine at the time cancels out. The intervals of the table include it.",
      "The result is from rounds of their own, after the choice.",
    ],
  });
}

const sloOf = ({ slo }: BenchRecord): Slo | undefined => slo?.[0]?.slo;

function ratesOf({ rounds }: TuneCandidate, first = 1): readonly number[] {
  return rounds.flatMap(({ round, imagesPerSecond }) => (round >= first ? [imagesPerSecond] : []));
}

function meanRate(candidate: TuneCandidate): number | undefined {
  const rates = ratesOf(candidate);
  return rates.length === 0 ? undefined : mean(rates);
}

function percentileMs({ rounds }: TuneCandidate): number | undefined {
  const values = rounds.flatMap((round) => round.percentileMs ?? []);
  return values.length === 0 ? undefined : mean(values);
}
