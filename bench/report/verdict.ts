import type { Card } from "../../report/document/document.ts";
import {
  counted,
  formatMs,
  formatRate,
  formatUsd,
  listed,
} from "../../report/document/number-format.ts";
import { isStandIn } from "../../target/subject/subject.ts";
import type { BenchRecord, LoadPoint } from "../record/bench-record.ts";
import { metrics } from "../record/metrics.ts";
import { censoredPercentile } from "../stats/censored.ts";
import { representsDeployment } from "./caveats.ts";
import {
  clientWorkReasons,
  gpuReasons,
  largestPartReasons,
  offeredRateReasons,
  runnerUpReasons,
  slowestPartReasons,
} from "./choice-reasons.ts";
import { type Contender, smallestLoad } from "./contenders.ts";
import {
  closedLoop,
  costBasis,
  fastest,
  isFailing,
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
import { simulationHeadline } from "./simulation-headline.ts";
import { type JudgedMetric, tiesOf } from "./ties.ts";

/** Recommended endpoint and load for one goal. */
export interface Choice extends Card {
  readonly goal: "latency" | "throughput" | "cost";
  /** Absent if nothing can be recommended. */
  readonly winner?: Contender;
}

export interface Verdict {
  /** One sentence with endpoint names in backticks. */
  readonly headline: string;
  /** Empty for a local simulation, which allows no conclusion about performance. */
  readonly choices: readonly Choice[];
  /** Load point with the highest throughput within each p95 SLO; those of a search (`--slo`) are in `slo-section.ts`. */
  readonly sloChoices: readonly SloChoice[];
}

export interface SloChoice extends Contender {
  readonly sloMs: number;
  /** p95 latency. A failed request counts as slower than every successful one. */
  readonly p95Ms: number;
}

export function verdictOf(record: BenchRecord): Verdict {
  const series = seriesOf(record.loadPoints.filter((point) => isUnmodified(point)));
  const sloChoices = sloChoicesOf(series);
  if (record.subject.target === "simulation") {
    return { headline: simulationHeadline(record), choices: [], sloChoices };
  }
  const choices = [latencyChoice(series), throughputChoice(series), costChoice(record, series)];
  return { headline: headlineOf(record, choices), choices, sloChoices };
}

function latencyChoice(series: readonly Series[]): Choice {
  const base = { goal: "latency", title: "Lowest latency", unit: "ms p50" } as const;
  const closed = smallestLoad(series);
  // without closed loops, compare at the smallest common rate
  const ranked = [...(closed.length > 0 ? closed : smallestLoad(series, openLoop))].sort(
    (a, b) =>
      failing(a) - failing(b) || (a.point.latencyMs?.p50 ?? 0) - (b.point.latencyMs?.p50 ?? 0),
  );
  const [winner, second] = ranked;
  if (winner?.point.latencyMs === undefined) return nothing(base);
  const { p95, p99, p99Reliable } = winner.point.latencyMs;
  const tail = p99Reliable ? `, p99 ${formatMs(p99)} ms` : "";
  return {
    ...base,
    ...winnerOf(ranked, winner, "p50"),
    value: formatMs(winner.point.latencyMs.p50),
    setting: `${settingText(winner.point)}; p95 ${formatMs(p95)} ms${tail}`,
    why: [
      ...runnerUpReasons(ranked, "p50"),
      ...(second === undefined
        ? largestPartReasons(winner.point)
        : tiesOf(ranked, "p50").includes(second.name)
          ? []
          : slowestPartReasons(winner.point, second)),
      ...clientWorkReasons(ranked),
    ],
  };
}

function throughputChoice(series: readonly Series[]): Choice {
  const base = { goal: "throughput", title: "Highest throughput", unit: "images/s" } as const;
  const ranked = rankedByRate(series);
  const [winner] = ranked;
  if (winner === undefined) return nothing(base);
  const { point } = winner;
  return {
    ...base,
    ...(isOffered(point) ? { title: "Highest rate sustained" } : {}),
    ...winnerOf(ranked, winner, "throughput"),
    value: formatRate(point.imagesPerSecond),
    setting: `${settingText(point)}; p50 ${formatMs(point.latencyMs?.p50 ?? 0)} ms, p95 ${formatMs(point.latencyMs?.p95 ?? 0)} ms`,
    why: [
      ...offeredRateReasons(point),
      ...runnerUpReasons(ranked, "throughput"),
      ...largestPartReasons(point),
      ...gpuReasons(point, metrics.gpuUtilization.read(point)),
      ...clientWorkReasons(ranked),
    ],
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
    ...winnerOf(ranked, winner, "throughput"),
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
  };
}

/** Winner of a ranking, the contenders that tie with it, and its doubts. */
function winnerOf(ranked: readonly Contender[], winner: Contender, metric: JudgedMetric) {
  return {
    winner,
    choice: winner.name,
    ties: tiesOf(ranked, metric),
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
 * Fastest load point of each endpoint, by throughput. Open loops count only if there is no closed loop,
 * because an offered rate is not a maximum.
 */
function rankedByRate(series: readonly Series[]): readonly Contender[] {
  const closed = series.some(({ loadPoints }) => fastest(closedLoop(loadPoints)) !== undefined);
  const best = series.flatMap(({ name, loadPoints }) => {
    const point = fastest(closed ? closedLoop(loadPoints) : openLoop(loadPoints));
    return point === undefined ? [] : [{ name, point }];
  });
  return best.sort(
    (a, b) => failing(a) - failing(b) || b.point.imagesPerSecond - a.point.imagesPerSecond,
  );
}

/** Ranks load points with many failures last. Drift is no reason to lose: it is a doubt, and rounds are compared in pairs. */
const failing = ({ point }: Contender) => Number(isFailing(point));

/** Rank of a contender's reliability. */
const weak = ({ point }: Contender) => unreliabilityRank(point) ?? 3;

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
  const { model } = record.subject;
  return model.name === "tiny"
    ? "measured with a tiny test model"
    : isStandIn(model)
      ? "measured with a stand-in for the model"
      : undefined;
}

/** Why no load point is reliable. */
function weakText(points: readonly LoadPoint[]): string {
  return points.every(({ rounds }) => rounds.length === 1)
    ? "One round, nothing is compared"
    : "No stable load point";
}

/** One sentence with the recommended endpoint and its figure for each goal. Reasons to distrust the figures come first. */
function headlineOf(record: BenchRecord, choices: readonly Choice[]): string {
  if (!record.passed && record.failures.length > 0) {
    return `The run failed: ${counted(record.failures.length, "failure")}; the recommendations cover the remaining load points`;
  }
  const chosen = choices.flatMap(({ goal, winner, ...choice }) =>
    goal === "cost" || winner === undefined ? [] : [{ ...choice, winner }],
  );
  if (chosen.length === 0) return "No reliable load point was measured";
  const figures = chosen.map(({ title, winner, ties, value, unit }, i) => {
    const all = [winner.name, ...ties].map((name) => `\`${name}\``);
    const names = ties.length === 0 ? all[0] : `tie of ${listed(all)}`;
    return `${i === 0 ? title : title.toLowerCase()}: ${names}, ${value} ${unit}`;
  });
  const weakness = Math.min(...chosen.map(({ winner }) => weak(winner)));
  const caution =
    weakness === 0
      ? ""
      : weakness === 1
        ? `${weakText(chosen.map(({ winner }) => winner.point))}. `
        : "Many requests failed. ";
  const doubt = subjectDoubt(record);
  return `${caution}${figures.join("; ")}${doubt === undefined ? "" : `, ${doubt}`}`;
}
