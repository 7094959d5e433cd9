import type { BenchRecord, LoadPoint } from "../record/bench-record.ts";
import { type ComparedMetric, comparedMetrics, metricOf } from "../record/metrics.ts";
import { figureOf, type Interval, meanRatio, ratioInterval } from "../stats/intervals.ts";
import {
  conditionsText,
  distinct,
  endpointOf,
  failedShare,
  isUnmodified,
  loadPointKey,
  reliabilityIssues,
  seriesOf,
  settingText,
  trustOf,
} from "./load-points.ts";
import { counted } from "./number-format.ts";

/**
 * Two records, load point by load point: what became of throughput and latency, and whether it is more than noise. Pure; the intervals are
 * seeded, so that the same records give the same answer.
 */

/** What a ratio means. */
export type Judgement =
  /** The whole interval is beyond the limit, for the worse. */
  | "worse"
  /** The whole interval is beyond the limit, for the better. */
  | "better"
  /** More than noise, and within the limit. */
  | "slightly worse"
  | "slightly better"
  /** 1 is in the interval. */
  | "same"
  /** There is no interval: fewer than two windows. */
  | "unsure";

export interface MetricChange {
  readonly metric: ComparedMetric;
  readonly from: number;
  readonly to: number;
  /** `to` divided by `from`, of which 95 % sure. */
  readonly interval?: Interval;
  readonly judgement: Judgement;
}

export interface LoadPointChange {
  /** `onnx-http, 8 images per request, 4 clients`. */
  readonly name: string;
  readonly from: LoadPoint;
  readonly to: LoadPoint;
  readonly changes: readonly MetricChange[];
  /** Part of the requests that failed. */
  readonly failed: readonly [from: number, to: number];
  /** Why it is shown and not judged; none: it is judged. */
  readonly exclusionReasons: readonly string[];
}

/** All loads of one path together: the geometric mean of their ratios. */
export interface EndpointChange {
  readonly name: string;
  readonly loads: number;
  readonly changes: readonly Omit<MetricChange, "from" | "to">[];
}

export interface Comparison {
  readonly limit: number;
  readonly endpoints: readonly EndpointChange[];
  readonly loadPoints: readonly LoadPointChange[];
  /** Loads that only one of the records has. */
  readonly onlyFrom: readonly string[];
  readonly onlyTo: readonly string[];
  /** Loads that were judged: both figures can be trusted, and there are windows enough. */
  readonly judged: number;
  /** What is worse beyond the limit, in whole sentences. */
  readonly regressions: readonly string[];
  /** One load of several that is worse, by no more than two runs may drift apart: to look at, no failure. */
  readonly suspects: readonly string[];
  /** What no longer works or is no longer measured, in whole sentences. */
  readonly broken: readonly string[];
  /** What else differs between the records, in whole sentences. */
  readonly warnings: readonly string[];
}

export interface CompareOptions {
  /** Worse by more than this part is a regression, 0..1. */
  readonly failOver: number;
  /** What only the first record has is no failure. */
  readonly allowMissing?: boolean;
}

/** Part of the requests that may fail more before that is a regression. */
const moreFailures = 0.01;

export function compareRecords(
  from: BenchRecord,
  to: BenchRecord,
  { failOver, allowMissing = false }: CompareOptions,
): Comparison {
  const [before, after] = [distinct(from.loadPoints), distinct(to.loadPoints)];
  const known = new Map(after.map((point) => [loadPointKey(point), point]));
  const pairs = before.flatMap((point) => {
    const other = known.get(loadPointKey(point));
    return other === undefined ? [] : [[point, other] as const];
  });
  const many = new Set([...before, ...after].map(({ environment }) => environment)).size > 1;
  const loadPoints = pairs.map(([a, b]) => loadPointChange(a, b, failOver, many));
  const endpoints = endpointChanges(loadPoints, failOver);
  const names = new Set(before.map(loadPointKey));
  return {
    limit: failOver,
    endpoints,
    loadPoints,
    onlyFrom: before
      .filter((point) => !known.has(loadPointKey(point)))
      .map((point) => nameOf(point, many)),
    onlyTo: after
      .filter((point) => !names.has(loadPointKey(point)))
      .map((point) => nameOf(point, many)),
    judged: loadPoints.filter(isJudged).length,
    ...worseOf(loadPoints, endpoints, failOver),
    broken: [...newFailures(from, to), ...(allowMissing ? [] : lostLoads(before, known, many))],
    warnings: [],
  };
}

function isJudged({ exclusionReasons, changes }: LoadPointChange): boolean {
  return exclusionReasons.length === 0 && changes.some(({ judgement }) => judgement !== "unsure");
}

const namedFailures = 3;

/** A run that failed is no better for being fast. */
function newFailures(from: BenchRecord, to: BenchRecord): readonly string[] {
  if (to.passed || !from.passed) return [];
  const { failures } = to;
  const rest = failures.length - namedFailures;
  return [
    `The second run failed, the first had passed${failures.length === 0 ? "" : `: ${failures.slice(0, namedFailures).join("; ")}`}${rest > 0 ? ` and ${counted(rest, "other")}` : ""}`,
  ];
}

/** What the first record measured well and the second has not: of an endpoint that is gone the endpoint alone. */
function lostLoads(
  before: readonly LoadPoint[],
  known: ReadonlyMap<string, LoadPoint>,
  many: boolean,
): readonly string[] {
  return seriesOf(before).flatMap(({ environment, endpoint, loadPoints }) => {
    const lost = loadPoints.filter(
      (point) => trustOf(point) === "good" && !known.has(loadPointKey(point)),
    );
    const gone = [...known.values()].every(
      (point) => point.environment !== environment || endpointOf(point) !== endpoint,
    );
    if (gone && lost.length > 0) {
      return [
        `${many ? `${environment} ` : ""}${endpoint}: not in the second record, the first has ${counted(lost.length, "load")} of it`,
      ];
    }
    return lost.map((point) => `${nameOf(point, many)}: not in the second record`);
  });
}

function nameOf(point: LoadPoint, withEnvironment: boolean): string {
  const conditions = conditionsText(point.conditions);
  return `${withEnvironment ? `${point.environment} ` : ""}${endpointOf(point)}, ${settingText(point)}${conditions === "" ? "" : `, ${conditions}`}`;
}

function loadPointChange(
  from: LoadPoint,
  to: LoadPoint,
  limit: number,
  withEnvironment: boolean,
): LoadPointChange {
  const changes = comparedMetrics.flatMap((metric): readonly MetricChange[] => {
    const [a, b] = [figureOf(from, metric), figureOf(to, metric)];
    if (a === undefined || b === undefined) return [];
    const interval = ratioInterval(from, to, metric);
    return [{ metric, from: a, to: b, interval, judgement: judge(metric, interval, limit) }];
  });
  const doubts = ([point, which]: readonly [LoadPoint, string]) =>
    trustOf(point) === "good" ? [] : reliabilityIssues(point).map((doubt) => `${which}: ${doubt}`);
  return {
    name: nameOf(from, withEnvironment),
    from,
    to,
    changes,
    failed: [failedShare(from), failedShare(to)],
    exclusionReasons: [...doubts([from, "first record"]), ...doubts([to, "second record"])],
  };
}

/** Compares an interval with the limit, in the direction in which the metric is better. */
function judge(metric: ComparedMetric, interval: Interval | undefined, limit: number): Judgement {
  if (interval === undefined) return "unsure";
  const [low, high] =
    metricOf(metric).better === "higher"
      ? [interval.low, interval.high]
      : [1 / interval.high, 1 / interval.low];
  if (high < 1 / (1 + limit)) return "worse";
  if (low > 1 + limit) return "better";
  if (high < 1) return "slightly worse";
  return low > 1 ? "slightly better" : "same";
}

/** Whether it counts for its endpoint as a whole. */
function countsForEndpoint({ exclusionReasons, from }: LoadPointChange): boolean {
  return exclusionReasons.length === 0 && isUnmodified(from);
}

function endpointChanges(
  cells: readonly LoadPointChange[],
  limit: number,
): readonly EndpointChange[] {
  const judged = cells.filter(countsForEndpoint);
  return seriesOf(judged.map(({ from }) => from)).map(({ name, loadPoints: own }) => {
    const pairs = judged
      .filter(({ from }) => own.includes(from))
      .map(({ from, to }) => [from, to] as const);
    return {
      name,
      loads: pairs.length,
      changes: comparedMetrics.flatMap((metric) => {
        const interval = meanRatio(pairs, metric);
        return interval === undefined
          ? []
          : [{ metric, interval, judgement: judge(metric, interval, limit) }];
      }),
    };
  });
}

/**
 * What a load alone must be worse by beyond the limit, where its endpoint has several. No interval holds what drifts between two
 * runs, and of many loads one always drifts far; the mean of an endpoint's loads does not.
 */
const loneMargin = 0.1;

function worseOf(
  cells: readonly LoadPointChange[],
  paths: readonly EndpointChange[],
  limit: number,
): Pick<Comparison, "regressions" | "suspects"> {
  const loneLimit = limit + Math.max(limit, loneMargin);
  const ofPaths = paths.flatMap(({ name, loads, changes }) =>
    changes
      .filter(({ judgement }) => judgement === "worse")
      .map(
        ({ metric, interval }) =>
          `${name}: ${metric} over its ${counted(loads, "load")} ${ratioText(interval)}`,
      ),
  );
  const loadsOf = new Map(paths.map(({ name, loads }) => [name, loads]));
  const ofSeveral = new Set(
    seriesOf(cells.filter(countsForEndpoint).map(({ from }) => from)).flatMap(
      ({ name, loadPoints: own }) => ((loadsOf.get(name) ?? 0) > 1 ? own : []),
    ),
  );
  const ofCells = cells.flatMap(({ name, from, changes, exclusionReasons }) =>
    (exclusionReasons.length > 0 ? [] : changes)
      .filter(({ judgement }) => judgement === "worse")
      .map(({ metric, interval }) => ({
        text: `${name}: ${metric} ${ratioText(interval)}`,
        fails: !ofSeveral.has(from) || judge(metric, interval, loneLimit) === "worse",
      })),
  );
  // a failure is no matter of noise
  const failing = cells.flatMap(({ name, failed }) =>
    failed[1] > failed[0] + moreFailures
      ? [
          `${name}: ${(failed[1] * 100).toFixed(1)} % of the requests failed, ${(failed[0] * 100).toFixed(1)} % before`,
        ]
      : [],
  );
  const textsOf = (fails: boolean) =>
    ofCells.filter((it) => it.fails === fails).map(({ text }) => text);
  return { regressions: [...ofPaths, ...textsOf(true), ...failing], suspects: textsOf(false) };
}

/** `0.81 × (0.78 to 0.84)`. */
export function ratioText(interval: Interval | undefined): string {
  if (interval === undefined) return "–";
  const digits = (value: number) => value.toFixed(value < 10 ? 2 : 1);
  return `${digits(interval.ratio)} × (${digits(interval.low)} to ${digits(interval.high)})`;
}

/**
 * Why two records must not be compared, in whole sentences: they differ in more than what is to be found out. None: they
 * may be.
 */
export function mismatches(from: BenchRecord, to: BenchRecord): readonly string[] {
  const [a, b] = [from.subject, to.subject];
  const facts: readonly (readonly [string, string, string])[] = [
    ["machine", machineText(from), machineText(to)],
    ["target", a.target, b.target],
    ["model", modelKey(from), modelKey(to)],
    ["GPU", gpuText(from), gpuText(to)],
    ["set of images", imagesText(from), imagesText(to)],
  ];
  return facts.flatMap(([name, one, other]) =>
    one === other ? [] : [`the ${name} differs: ${one}, then ${other}`],
  );
}

/** What differs besides and may matter, in whole sentences. */
export function differences(from: BenchRecord, to: BenchRecord): readonly string[] {
  const [a, b] = [from.settings, to.settings];
  const facts: readonly (readonly [string, string, string])[] = [
    ["Node", from.subject.machine.node, to.subject.machine.node],
    ["operating system", from.subject.machine.os, to.subject.machine.os],
    ["length of a window", `${a.windowSeconds} s`, `${b.windowSeconds} s`],
    ["tolerance", String(a.tolerance), String(b.tolerance)],
  ];
  return [
    ...facts.flatMap(([name, one, other]) =>
      one === other ? [] : [`The ${name} differs: ${one}, then ${other}.`],
    ),
    ...[from, to].flatMap(({ interrupted }, i) =>
      interrupted ? [`The ${i === 0 ? "first" : "second"} run was interrupted.`] : [],
    ),
  ];
}

function machineText({ subject: { machine } }: BenchRecord): string {
  return `${machine.cpu}, ${machine.cores} cores`;
}

function modelKey({ subject: { model } }: BenchRecord): string {
  return model.sha256 === undefined ? model.name : `${model.name} ${model.sha256.slice(0, 12)}`;
}

function gpuText({ subject: { gpu } }: BenchRecord): string {
  return gpu === undefined ? "none" : `${gpu.count} × ${gpu.name}`;
}

function imagesText({ settings: { images } }: BenchRecord): string {
  return `${images.count} of ${Math.round(images.meanBytes)} bytes in the mean`;
}
