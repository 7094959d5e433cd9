import { defaultModel } from "../../contract/models/index.ts";
import { counted } from "../../report/document/number-format.ts";
import type { BenchRecord, LoadPoint } from "../record/bench-record.ts";
import { type ComparedMetric, comparedMetrics, metricOf } from "../record/metrics.ts";
import { figureOf, type Interval, unpairedRatio } from "../stats/intervals.ts";
import {
  conditionsText,
  distinct,
  endpointNamer,
  failedShare,
  isUnmodified,
  loadPointKey,
  reliabilityIssues,
  seriesOf,
  settingText,
  trustOf,
} from "./load-points.ts";

/**
 * Compares two records by load point: changes of throughput and latency and their significance. Pure and deterministic.
 */

/** Significance and direction of a ratio. */
export type Judgement =
  /** The entire interval is worse than the limit. */
  | "worse"
  /** The entire interval is better than the limit. */
  | "better"
  /** Significant, but within the limit. */
  | "slightly worse"
  | "slightly better"
  /** Not significant: the 95 % confidence interval of the ratio contains 1. */
  | "same"
  /** Cannot be judged: fewer than two rounds, so there is no interval. */
  | "unsure";

interface MetricChange {
  readonly metric: ComparedMetric;
  readonly from: number;
  readonly to: number;
  /** Ratio of `to` to `from` with its 95 % confidence interval. */
  readonly interval?: Interval;
  readonly judgement: Judgement;
}

export interface LoadPointChange {
  /** `onnx-http, 8 images per request, 4 clients`. */
  readonly name: string;
  readonly from: LoadPoint;
  readonly to: LoadPoint;
  readonly changes: readonly MetricChange[];
  /** Share of failed requests. */
  readonly failed: readonly [from: number, to: number];
  /** Reasons for excluding the load point from the verdict; empty if it is included. */
  readonly exclusionReasons: readonly string[];
}

/** Geometric mean of the ratios of all loads of an endpoint. */
export interface EndpointChange {
  readonly name: string;
  readonly loads: number;
  readonly changes: readonly Omit<MetricChange, "from" | "to">[];
}

export interface Comparison {
  readonly limit: number;
  readonly endpoints: readonly EndpointChange[];
  readonly loadPoints: readonly LoadPointChange[];
  /** Load points that only one of the records has. */
  readonly onlyFrom: readonly string[];
  readonly onlyTo: readonly string[];
  /** Number of load points with reliable figures and enough rounds in both records. */
  readonly judged: number;
  /** Changes for the worse beyond the limit, as sentences. */
  readonly regressions: readonly string[];
  /** Load points that are worse, but by no more than the drift between runs. They are listed and do not fail the comparison. */
  readonly suspects: readonly string[];
  /** New failures and missing loads, as sentences. */
  readonly broken: readonly string[];
  /** Other differences between the records, as sentences. */
  readonly warnings: readonly string[];
}

interface CompareOptions {
  /** Relative deterioration that counts as a regression, 0..1. */
  readonly failOver: number;
  /** Whether endpoints and loads may be missing from the second record. */
  readonly allowMissing?: boolean;
}

const maxFailureIncrease = 0.01;

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
  const nameOf = loadPointNamer([...before, ...after]);
  const loadPoints = pairs.map(([a, b]) => loadPointChange(nameOf(a), a, b, failOver));
  const endpoints = endpointChanges(loadPoints, failOver);
  const names = new Set(before.map(loadPointKey));
  return {
    limit: failOver,
    endpoints,
    loadPoints,
    onlyFrom: before.filter((point) => !known.has(loadPointKey(point))).map(nameOf),
    onlyTo: after.filter((point) => !names.has(loadPointKey(point))).map(nameOf),
    judged: loadPoints.filter(isJudged).length,
    ...worseOf(loadPoints, endpoints, failOver),
    broken: [...newFailures(from, to), ...(allowMissing ? [] : lostLoads(before, after))],
    warnings: [],
  };
}

function isJudged({ exclusionReasons, changes }: LoadPointChange): boolean {
  return exclusionReasons.length === 0 && changes.some(({ judgement }) => judgement !== "unsure");
}

const maxListedFailures = 3;

/** Reports a second run that failed although the first passed. */
function newFailures(from: BenchRecord, to: BenchRecord): readonly string[] {
  if (to.passed || !from.passed) return [];
  const { failures } = to;
  const rest = failures.length - maxListedFailures;
  return [
    `The second run failed and the first passed${failures.length === 0 ? "" : `: ${failures.slice(0, maxListedFailures).join("; ")}`}${rest > 0 ? ` and ${counted(rest, "other")}` : ""}`,
  ];
}

/** Reliable loads of the first record that the second lacks; a missing endpoint is listed once. */
function lostLoads(before: readonly LoadPoint[], after: readonly LoadPoint[]): readonly string[] {
  const all = [...before, ...after];
  const [endpointName, nameOf] = [endpointNamer(all), loadPointNamer(all)];
  const [keys, endpoints] = [new Set(after.map(loadPointKey)), new Set(after.map(endpointName))];
  return seriesOf(before).flatMap(({ loadPoints }) => {
    const lost = loadPoints.filter(
      (point) => trustOf(point) === "good" && !keys.has(loadPointKey(point)),
    );
    const [first] = lost;
    if (first !== undefined && !endpoints.has(endpointName(first))) {
      return [
        `${endpointName(first)}: not in the second record, the first has ${counted(lost.length, "load point")}`,
      ];
    }
    return lost.map((point) => `${nameOf(point)}: not in the second record`);
  });
}

/** `onnx-http, 8 images per request, 4 clients`, after the environment if there are several. */
function loadPointNamer(loadPoints: readonly LoadPoint[]): (point: LoadPoint) => string {
  const nameOf = endpointNamer(loadPoints);
  return (point) =>
    [nameOf(point), settingText(point), conditionsText(point.conditions)]
      .filter((text) => text !== "")
      .join(", ");
}

function loadPointChange(
  name: string,
  from: LoadPoint,
  to: LoadPoint,
  limit: number,
): LoadPointChange {
  const changes = comparedMetrics.flatMap((metric): readonly MetricChange[] => {
    const [a, b] = [figureOf(from, metric), figureOf(to, metric)];
    if (a === undefined || b === undefined) return [];
    const interval = unpairedRatio([[from, to]], metric);
    return [{ metric, from: a, to: b, interval, judgement: judge(metric, interval, limit) }];
  });
  const doubts = ([point, which]: readonly [LoadPoint, string]) =>
    trustOf(point) === "good" ? [] : reliabilityIssues(point).map((doubt) => `${which}: ${doubt}`);
  return {
    name,
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

function countsForEndpoint({ exclusionReasons, from }: LoadPointChange): boolean {
  return exclusionReasons.length === 0 && isUnmodified(from);
}

function endpointChanges(
  loadPoints: readonly LoadPointChange[],
  limit: number,
): readonly EndpointChange[] {
  const judged = loadPoints.filter(countsForEndpoint);
  return seriesOf(judged.map(({ from }) => from)).map(({ name, loadPoints: own }) => {
    const pairs = judged
      .filter(({ from }) => own.includes(from))
      .map(({ from, to }) => [from, to] as const);
    return {
      name,
      loads: pairs.length,
      changes: comparedMetrics.flatMap((metric) => {
        const interval = unpairedRatio(pairs, metric);
        return interval === undefined
          ? []
          : [{ metric, interval, judgement: judge(metric, interval, limit) }];
      }),
    };
  });
}

/**
 * Additional tolerance of a single load if its endpoint has several, because the intervals do not include the drift between
 * runs and one of many loads often drifts far.
 */
const singleMargin = 0.1;

/** Default of `clipstack compare --fail-over`. */
export const defaultFailOver = 0.1;

const singleLimitOf = (limit: number) => limit + Math.max(limit, singleMargin);

/**
 * Judges a single load between runs as `compare` does by default: beyond the drift of a machine.
 *
 * @param interval - Later figure divided by the earlier one.
 */
export function judgeSingle(metric: ComparedMetric, interval: Interval | undefined): Judgement {
  return judge(metric, interval, singleLimitOf(defaultFailOver));
}

function worseOf(
  loadPoints: readonly LoadPointChange[],
  endpoints: readonly EndpointChange[],
  limit: number,
): Pick<Comparison, "regressions" | "suspects"> {
  const singleLimit = singleLimitOf(limit);
  const worseEndpoints = endpoints.flatMap(({ name, loads, changes }) =>
    changes
      .filter(({ judgement }) => judgement === "worse")
      .map(
        ({ metric, interval }) =>
          `${name}: ${metric} over its ${counted(loads, "load point")} ${ratioText(interval)}`,
      ),
  );
  const loadsOf = new Map(endpoints.map(({ name, loads }) => [name, loads]));
  const ofSeveral = new Set(
    seriesOf(loadPoints.filter(countsForEndpoint).map(({ from }) => from)).flatMap(
      ({ name, loadPoints: own }) => ((loadsOf.get(name) ?? 0) > 1 ? own : []),
    ),
  );
  const worseLoadPoints = loadPoints.flatMap(({ name, from, changes, exclusionReasons }) =>
    (exclusionReasons.length > 0 ? [] : changes)
      .filter(({ judgement }) => judgement === "worse")
      .map(({ metric, interval }) => ({
        text: `${name}: ${metric} ${ratioText(interval)}`,
        fails: !ofSeveral.has(from) || judge(metric, interval, singleLimit) === "worse",
      })),
  );
  // failures are not subject to noise
  const failing = loadPoints.flatMap(({ name, failed }) =>
    failed[1] > failed[0] + maxFailureIncrease
      ? [
          `${name}: ${(failed[1] * 100).toFixed(1)} % of the requests failed, previously ${(failed[0] * 100).toFixed(1)} %`,
        ]
      : [],
  );
  const textsOf = (fails: boolean) =>
    worseLoadPoints.filter((point) => point.fails === fails).map(({ text }) => text);
  return {
    regressions: [...worseEndpoints, ...textsOf(true), ...failing],
    suspects: textsOf(false),
  };
}

/** `0.81 × (0.78 to 0.84)`. */
export function ratioText(interval: Interval | undefined): string {
  if (interval === undefined) return "–";
  const digits = (value: number) => value.toFixed(value < 10 ? 2 : 1);
  return `${digits(interval.ratio)} × (${digits(interval.low)} to ${digits(interval.high)})`;
}

/**
 * Differences in the subject that make two records incomparable, as sentences; empty if they are comparable.
 */
export function mismatches(from: BenchRecord, to: BenchRecord): readonly string[] {
  const [a, b] = [from.subject, to.subject];
  const facts: readonly (readonly [string, string, string])[] = [
    ["machine", machineText(from), machineText(to)],
    ["target", a.target, b.target],
    ["measured tower", towerText(from), towerText(to)],
    ["model", modelKey(from), modelKey(to)],
    ["GPU", gpuText(from), gpuText(to)],
    ["set of images", imagesText(from), imagesText(to)],
  ];
  return facts.flatMap(([name, first, second]) =>
    first === second ? [] : [`the ${name} differs: ${first}, then ${second}`],
  );
}

/** Other differences that may affect the figures, as sentences. */
export function differences(from: BenchRecord, to: BenchRecord): readonly string[] {
  const [a, b] = [from.settings, to.settings];
  const facts: readonly (readonly [string, string, string])[] = [
    ["Node", from.subject.machine.node, to.subject.machine.node],
    ["operating system", from.subject.machine.os, to.subject.machine.os],
    ["length of a window", `${a.windowSeconds} s`, `${b.windowSeconds} s`],
    ["number of windows per round", String(a.windows), String(b.windows)],
    ["number of rounds", String(a.rounds), String(b.rounds)],
  ];
  return [
    ...facts.flatMap(([name, first, second]) =>
      first === second ? [] : [`The ${name} differs: ${first}, then ${second}.`],
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

function towerText({ subject: { model } }: BenchRecord): string {
  const { spec = defaultModel.name, modality = "image" } = model;
  return `${spec} (${modality})`;
}

function gpuText({ subject: { gpu } }: BenchRecord): string {
  return gpu === undefined ? "none" : `${gpu.count} × ${gpu.name}`;
}

function imagesText({ settings: { images } }: BenchRecord): string {
  return `${images.count} (mean ${Math.round(images.meanBytes)} bytes)`;
}
