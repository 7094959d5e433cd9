import type { BenchRecord } from "../record/bench-record.ts";
import { metrics } from "../record/metrics.ts";
import { isStandIn } from "../record/record.ts";
import { censoredPercentile } from "../stats/censored.ts";
import { differs, ratioInterval } from "../stats/intervals.ts";
import { representsDeployment } from "./caveats.ts";
import {
  clientWorkReasons,
  gpuReasons,
  largestPartReasons,
  offeredRateReasons,
  runnerUpReason,
  slowestPartReasons,
} from "./choice-reasons.ts";
import { type Contender, smallestLoad } from "./contenders.ts";
import type { Card } from "./document.ts";
import {
  closedLoop,
  costBasis,
  fastest,
  isOffered,
  isUnmodified,
  openLoop,
  reliabilityIssues,
  type Series,
  seriesOf,
  settingText,
  unreliabilityRank,
  usdPerThousand,
} from "./load-points.ts";
import { counted, formatMs, formatRate, formatUsd, listed } from "./number-format.ts";

/** Recommended endpoint and load for one goal. */
export interface Choice extends Card {
  readonly goal: "latency" | "throughput" | "cost";
  /** Absent if nothing can be recommended. */
  readonly winner?: Contender;
}

export interface Verdict {
  /** One sentence with endpoint names in backticks. */
  readonly headline: string;
  readonly choices: readonly Choice[];
  /** Load point with the highest throughput within each p95 SLO; those of a search (`--slo`) are in `slo-section.ts`. */
  readonly sloChoices: readonly SloChoice[];
}

export interface SloChoice extends Contender {
  readonly sloMs: number;
  /** p95 with failed requests as later than every response. */
  readonly p95Ms: number;
}

export function verdictOf(record: BenchRecord): Verdict {
  const series = seriesOf(record.loadPoints.filter((point) => isUnmodified(point)));
  const choices = [latencyChoice(series), throughputChoice(series), costChoice(record, series)];
  return { headline: headlineOf(record, choices), choices, sloChoices: sloChoicesOf(series) };
}

function latencyChoice(series: readonly Series[]): Choice {
  const base = { goal: "latency", title: "Lowest latency", unit: "ms p50" } as const;
  const closed = smallestLoad(series);
  // without closed loops, compare at the smallest common rate
  const ranked = [...(closed.length > 0 ? closed : smallestLoad(series, openLoop))].sort(
    (a, b) => weak(a) - weak(b) || (a.point.latencyMs?.p50 ?? 0) - (b.point.latencyMs?.p50 ?? 0),
  );
  const [winner, second] = ranked;
  if (winner?.point.latencyMs === undefined) return nothing(base);
  const { p95, p99, p99Reliable } = winner.point.latencyMs;
  const best95 = ranked.reduce((best, it) =>
    weak(it) <= weak(winner) && (it.point.latencyMs?.p95 ?? 0) < (best.point.latencyMs?.p95 ?? 0)
      ? it
      : best,
  );
  const ties = tiesOf(ranked, "p50");
  const tail = p99Reliable ? `, p99 ${formatMs(p99)} ms` : "";
  return {
    ...base,
    winner,
    choice: winner.name,
    ties,
    value: formatMs(winner.point.latencyMs.p50),
    setting: `${settingText(winner.point)}; p95 ${formatMs(p95)} ms${tail}`,
    why: [
      ...(second === undefined ? [] : [runnerUpReason(winner, second, "p50")]),
      ...(second === undefined || ties.includes(second.name)
        ? []
        : slowestPartReasons(winner.point, second)),
      ...(second === undefined ? largestPartReasons(winner.point) : []),
      ...clientWorkReasons(ranked),
      ...(best95.name === winner.name
        ? []
        : [
            `\`${best95.name}\` has a lower p95: ${formatMs(best95.point.latencyMs?.p95 ?? 0)} ms.`,
          ]),
    ],
    doubts: reliabilityIssues(winner.point),
  };
}

function throughputChoice(series: readonly Series[]): Choice {
  const base = { goal: "throughput", title: "Highest throughput", unit: "images/s" } as const;
  const ranked = rankedByRate(series);
  const [winner, second] = ranked;
  if (winner === undefined) return nothing(base);
  const { point } = winner;
  return {
    ...base,
    ...(isOffered(point) ? { title: "Highest rate sustained" } : {}),
    winner,
    choice: winner.name,
    ties: tiesOf(ranked, "throughput"),
    value: formatRate(point.imagesPerSecond),
    setting: `${settingText(point)}; p50 ${formatMs(point.latencyMs?.p50 ?? 0)} ms, p95 ${formatMs(point.latencyMs?.p95 ?? 0)} ms`,
    why: [
      ...offeredRateReasons(point),
      ...(second === undefined ? [] : [runnerUpReason(winner, second, "throughput")]),
      ...largestPartReasons(point),
      ...gpuReasons(point, metrics.gpuUtilization.read(point)),
      ...clientWorkReasons(ranked),
    ],
    doubts: reliabilityIssues(point),
  };
}

function costChoice(record: BenchRecord, series: readonly Series[]): Choice {
  const base = { goal: "cost", title: "Lowest cost", unit: "/ 1,000 images" } as const;
  const basis = costBasis(record);
  const ranked = rankedByRate(series);
  const [winner, second] = ranked;
  if (typeof basis === "string") return { ...nothing(base), why: [basis] };
  if (winner === undefined) return nothing(base);
  const costOf = ({ point }: Contender) => formatUsd(usdPerThousand(basis, point.imagesPerSecond));
  const worst = ranked.at(-1);
  return {
    ...base,
    winner,
    choice: winner.name,
    ties: tiesOf(ranked, "throughput"),
    value: costOf(winner),
    setting: `${settingText(winner.point)}; ${formatRate(winner.point.imagesPerSecond)} images/s`,
    why: [
      `At $${basis.usdPerHour} per hour (${basis.source}, ${basis.date}) and full load; at a lower load, an image costs more.`,
      ...(isOffered(winner.point)
        ? ["This is the cost at the offered rate; a higher load costs less per image."]
        : []),
      ...(second === undefined || worst === undefined
        ? []
        : [
            second === worst
              ? `\`${second.name}\` costs ${costOf(second)}.`
              : `The others cost from ${costOf(second)} (\`${second.name}\`) to ${costOf(worst)} (\`${worst.name}\`).`,
          ]),
    ],
    doubts: reliabilityIssues(winner.point),
  };
}

function nothing(base: Pick<Choice, "goal" | "title" | "unit">): Choice {
  return {
    ...base,
    ties: [],
    value: "–",
    setting: "",
    why: ["No reliable load point was measured for this goal."],
    doubts: [],
  };
}

/**
 * Fastest load point of each endpoint, reliable ones first, then by throughput. Open loops count only if there is no closed loop,
 * because an offered rate is not a maximum.
 */
function rankedByRate(series: readonly Series[]): readonly Contender[] {
  const closed = series.some(({ loadPoints }) => fastest(closedLoop(loadPoints)) !== undefined);
  const best = series.flatMap(({ name, loadPoints }) => {
    const point = fastest(closed ? closedLoop(loadPoints) : openLoop(loadPoints));
    return point === undefined ? [] : [{ name, point }];
  });
  return best.sort(
    (a, b) => weak(a) - weak(b) || b.point.imagesPerSecond - a.point.imagesPerSecond,
  );
}

/** Ranks unstable load points after stable ones, and those with many failures last. */
const weak = ({ point }: Contender) => unreliabilityRank(point) ?? 3;

/** Names of contenders whose difference from the first is within the noise. */
function tiesOf(ranked: readonly Contender[], metric: "p50" | "throughput"): readonly string[] {
  const [first, ...others] = ranked;
  if (first === undefined) return [];
  return others.flatMap(({ name, point }) => {
    if (weak({ name, point }) > weak(first)) return [];
    const interval = ratioInterval(first.point, point, metric);
    return interval === undefined || differs(interval) ? [] : [name];
  });
}

const slosMs = [10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000];

function sloChoicesOf(series: readonly Series[]): readonly SloChoice[] {
  const all = series.flatMap(({ name, loadPoints }) =>
    loadPoints.flatMap((point) =>
      unreliabilityRank(point) === 0 ? [{ name, point, p95Ms: censoredPercentile(point, 95) }] : [],
    ),
  );
  const chosen: SloChoice[] = [];
  for (const sloMs of slosMs) {
    const within = all.filter(({ p95Ms }) => p95Ms <= sloMs);
    const [best] = within.sort((a, b) => b.point.imagesPerSecond - a.point.imagesPerSecond);
    // leave out a looser SLO that allows no more throughput
    if (best !== undefined && best.point !== chosen.at(-1)?.point) chosen.push({ sloMs, ...best });
  }
  return chosen;
}

/** Difference between the measured and the deployed system in a few words, if any. */
function subjectDoubt(record: BenchRecord): string | undefined {
  if (representsDeployment(record)) return undefined;
  const { target, environments, model } = record.subject;
  if (target === "simulation" && environments.some(({ accelerator }) => accelerator === "gpu")) {
    return "measured on a CPU, not on the GPU of the deployment";
  }
  if (model.name === "tiny") return "measured with a tiny test model";
  return isStandIn(model)
    ? "measured with a stand-in for the model"
    : "measured in a local simulation";
}

/** Winner and value of each goal in one sentence, with the reason for caution first. */
function headlineOf(record: BenchRecord, choices: readonly Choice[]): string {
  if (!record.passed && record.failures.length > 0) {
    return `The run failed: ${counted(record.failures.length, "failure")}; the recommendations cover the remaining load points`;
  }
  const chosen = choices.flatMap(({ goal, winner, ...choice }) =>
    goal === "cost" || winner === undefined ? [] : [{ ...choice, winner }],
  );
  if (chosen.length === 0) return "No reliable load point was measured";
  const figures = chosen.map(({ title, winner, ties, value, unit }, i) => {
    const names = listed(
      [winner.name, ...ties].map((name) => `\`${name}\``),
      "or",
    );
    return `${i === 0 ? title : title.toLowerCase()}: ${names}, ${value} ${unit}`;
  });
  const weakness = Math.min(...chosen.map(({ winner }) => weak(winner)));
  const caution =
    weakness === 0 ? "" : weakness === 1 ? "No stable load point. " : "Many requests failed. ";
  const doubt = subjectDoubt(record);
  return `${caution}${figures.join("; ")}${doubt === undefined ? "" : `, ${doubt}`}`;
}
