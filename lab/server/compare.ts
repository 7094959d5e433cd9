import { median } from "../../target/stats/statistics.ts";
import { findLoad, type Load, type SubjectName, serverTargets } from "./loads.ts";
import type { BenchRun, ServerRecord } from "./record.ts";

/** Figure measured in several rounds. */
export interface Figure {
  /** Median of the rounds. */
  readonly value: number;
  /** Values of the rounds, in their order. */
  readonly rounds: readonly number[];
}

interface Target {
  readonly bound: "at least" | "at most" | "less than";
  readonly value: number;
}

/** Figure with its target. */
export interface Judged extends Figure {
  readonly target?: Target;
  /** Absent without a target. */
  readonly passed?: boolean;
}

export interface LoadRow {
  readonly load: Load;
  readonly imagesPerSecond: Readonly<Partial<Record<SubjectName, Figure>>>;
  readonly p50Ms: Readonly<Partial<Record<SubjectName, Figure>>>;
  readonly p95Ms: Readonly<Partial<Record<SubjectName, Figure>>>;
  readonly cpuMsPerImage: Readonly<Partial<Record<SubjectName, Figure>>>;
  /** Ratios of runs of the same round. */
  readonly ofCeiling?: Judged;
  readonly againstBaseline?: Judged;
  readonly p95AgainstBaseline?: Judged;
  /** Difference of the p50 latency to one run of the ceiling in the same round, in milliseconds. */
  readonly addedMs?: Judged;
  /** Mean request time beyond decoding and inference of the same requests, in milliseconds; does not depend on the speed of other runs. */
  readonly outsideMs?: Figure;
  readonly failures: number;
  /** Maximum share of the machine that other processes used during a run. */
  readonly othersShare?: number;
}

/** Figure that does not belong to one load. */
export interface Fact extends Judged {
  readonly name: string;
  readonly unit: "MB" | "ms" | "ratio" | "cosine";
}

export interface Comparison {
  readonly rows: readonly LoadRow[];
  readonly facts: readonly Fact[];
  /** Missed targets, as sentences. */
  readonly missedTargets: readonly string[];
}

/** Results of a record: medians of rounds, ratios of runs of the same round, and their targets. */
export function compare({ runs }: Pick<ServerRecord, "runs">): Comparison {
  const ids = [...new Set(runs.map(({ load }) => load))];
  const rows = ids
    .map(findLoad)
    .filter((load) => load !== undefined)
    .map((load) =>
      rowOf(
        load,
        runs.filter((run) => run.load === load.id),
      ),
    );
  const facts = factsOf(runs);
  return {
    rows,
    facts,
    missedTargets: [...rows.flatMap(missedRatios), ...facts.flatMap(missedFact)],
  };
}

function rowOf(load: Load, runs: readonly BenchRun[]): LoadRow {
  const { measured, targets } = load;
  const bySubject = (value: (run: BenchRun) => number | undefined) =>
    Object.fromEntries(
      load.subjects.flatMap((subject) => {
        const found = figure(runs.filter((run) => run.subject === subject).map(value));
        return found === undefined ? [] : [[subject, found]];
      }),
    );
  const rate = (run: BenchRun) => run.imagesPerSecond;
  const p95 = (run: BenchRun) => run.latency?.p95Ms;
  const ratioTo = (
    subject: SubjectName,
    value: (run: BenchRun) => number | undefined,
    bound: Target["bound"],
    limit: number | undefined,
  ) => {
    const found = byRound(runs, measured, subject, value, (upper, lower) => upper / lower);
    return found && judge(found, limit === undefined ? undefined : { bound, value: limit });
  };
  const added =
    targets.addedMs === undefined
      ? undefined
      : byRound(runs, measured, "ceiling", oneItemMs, (server, ceiling) => server - ceiling);
  const shares = runs.flatMap(({ othersShare }) => othersShare ?? []);
  return {
    load,
    imagesPerSecond: bySubject(rate),
    p50Ms: bySubject((run) => run.latency?.p50Ms),
    p95Ms: bySubject(p95),
    cpuMsPerImage: bySubject((run) => run.cpuMsPerImage),
    ofCeiling: ratioTo("ceiling", rate, "at least", targets.ofCeiling),
    againstBaseline: ratioTo("baseline", rate, "at least", targets.againstBaseline),
    p95AgainstBaseline: ratioTo("baseline", p95, "at most", targets.p95AgainstBaseline),
    addedMs: added && judge(added, atMost(targets.addedMs!)),
    outsideMs: added && figure(runs.map((run) => run.added?.ms)),
    failures: runs.reduce((sum, run) => sum + failuresOf(run), 0),
    othersShare: shares.length === 0 ? undefined : Math.max(...shares),
  };
}

function failuresOf({ failures, healthFailures = {} }: BenchRun): number {
  return [...Object.values(failures), ...Object.values(healthFailures)].reduce((a, b) => a + b, 0);
}

/** Median time of one item: the latency of the server, or of a run of the ceiling. */
function oneItemMs({ latency, batchSizes }: BenchRun): number | undefined {
  return latency?.p50Ms ?? batchSizes?.find(({ batchSize }) => batchSize === 1)?.p50Ms;
}

/** One subject's value compared with another's, round by round. */
function byRound(
  runs: readonly BenchRun[],
  subject: SubjectName,
  other: SubjectName,
  value: (run: BenchRun) => number | undefined,
  compareValues: (value: number, other: number) => number,
): Figure | undefined {
  const rounds = [...new Set(runs.map(({ round }) => round))].sort((a, b) => a - b);
  const of = (wanted: SubjectName, round: number) => {
    const run = runs.find((candidate) => candidate.subject === wanted && candidate.round === round);
    return run === undefined ? undefined : value(run);
  };
  return figure(
    rounds.map((round) => {
      const [first, second] = [of(subject, round), of(other, round)];
      return first === undefined || second === undefined ? undefined : compareValues(first, second);
    }),
  );
}

function figure(values: readonly (number | undefined)[]): Figure | undefined {
  const rounds = values.filter((value) => value !== undefined);
  const value = median(rounds);
  return value === undefined ? undefined : { value, rounds };
}

function atMost(value: number): Target {
  return { bound: "at most", value };
}

type FactRow = readonly [
  name: string,
  unit: Fact["unit"],
  subject: SubjectName,
  value: (run: BenchRun) => number | undefined,
  target?: Target,
];

const residentMB = (run: BenchRun) => run.residentMB;
const residentAfterMB = (run: BenchRun) => run.residentAfterMB;
const createMs = (run: BenchRun) => run.createMs;
const readyMs = (run: BenchRun) => run.readyMs;
const healthP99Ms = (run: BenchRun) => run.health?.p99Ms;

/** Medians over the runs of a subject with the full model. */
const factRows: readonly FactRow[] = [
  ["resident memory when ready", "MB", "server", residentMB],
  ["resident memory after load", "MB", "server", residentAfterMB, atMost(serverTargets.residentMB)],
  [
    "resident memory after load, int8",
    "MB",
    "server-int8",
    residentAfterMB,
    atMost(serverTargets.residentInt8MB),
  ],
  ["resident memory after load, baseline", "MB", "baseline", residentAfterMB],
  ["session creation, ONNX Runtime alone", "ms", "ceiling", createMs],
  ["process start to session, ONNX Runtime alone", "ms", "ceiling", readyMs],
  ["process start to ready", "ms", "server", readyMs],
  ["process start to ready, int8", "ms", "server-int8", readyMs],
  ["process start to ready, baseline", "ms", "baseline", readyMs],
  [
    "GET /healthz during 32 requests, p99",
    "ms",
    "server",
    healthP99Ms,
    { bound: "less than", value: serverTargets.healthP99Ms },
  ],
  ["GET /healthz during 32 requests, p99, baseline", "ms", "baseline", healthP99Ms],
];

function factsOf(runs: readonly BenchRun[]): readonly Fact[] {
  const full = runs.filter(({ load }) => findLoad(load)?.model === "full");
  const runsOf = (subject: SubjectName) => full.filter((run) => run.subject === subject);
  const fact = (
    name: string,
    unit: Fact["unit"],
    found: Figure | undefined,
    target?: Target,
  ): readonly Fact[] => (found === undefined ? [] : [{ name, unit, ...judge(found, target) }]);
  const created = figure(runsOf("ceiling").map(createMs));
  const ready = figure(runsOf("server").map(readyMs));
  const readyRatio = created && ready && ready.value / created.value;
  const single = runsOf("server").filter(({ load }) => load === "single");
  const lowestCosine = (subject: SubjectName): Figure | undefined => {
    const rounds = runsOf(subject).flatMap((run) => run.cosineToServer ?? []);
    return rounds.length === 0 ? undefined : { value: Math.min(...rounds), rounds };
  };
  return [
    ...factRows.flatMap(([name, unit, subject, value, target]) =>
      fact(name, unit, figure(runsOf(subject).map(value)), target),
    ),
    ...fact(
      "process start to ready ÷ session creation",
      "ratio",
      figure([readyRatio]),
      atMost(serverTargets.readyOfCreation),
    ),
    ...fact(
      "request time beyond preprocessing and compute, concurrency 1",
      "ms",
      figure(single.map((run) => run.added?.ms)),
    ),
    ...fact("lowest cosine similarity, int8 to fp32", "cosine", lowestCosine("server-int8")),
    ...fact("lowest cosine similarity, baseline to server", "cosine", lowestCosine("baseline")),
  ];
}

const targetMet: Readonly<Record<Target["bound"], (value: number, limit: number) => boolean>> = {
  "at least": (value, limit) => value >= limit,
  "at most": (value, limit) => value <= limit,
  "less than": (value, limit) => value < limit,
};

function judge(found: Figure, target: Target | undefined): Judged {
  return target === undefined
    ? found
    : { ...found, target, passed: targetMet[target.bound](found.value, target.value) };
}

function missedRatios(row: LoadRow): readonly string[] {
  const { title } = row.load;
  return [
    ...missedTarget(`${title}: images/s as a ratio to the ceiling`, row.ofCeiling),
    ...missedTarget(`${title}: images/s as a ratio to the baseline`, row.againstBaseline),
    ...missedTarget(`${title}: p95 as a ratio to the baseline`, row.p95AgainstBaseline),
    ...missedTarget(`${title}: latency added to the ceiling`, row.addedMs, " ms"),
    ...(row.failures > 0 ? [`${title}: ${row.failures} requests failed`] : []),
  ];
}

const missedFact = (fact: Fact) =>
  missedTarget(fact.name, fact, fact.unit === "MB" || fact.unit === "ms" ? ` ${fact.unit}` : "");

function missedTarget(name: string, judged: Judged | undefined, unit = ""): readonly string[] {
  if (judged?.passed !== false || judged.target === undefined) return [];
  const { value, target } = judged;
  return [
    `${name} must be ${target.bound} ${target.value}${unit}, got ${Number(value.toPrecision(4))}${unit}`,
  ];
}
