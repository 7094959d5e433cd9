import { median } from "../stats/statistics.ts";
import { type Load, loads, type SubjectName, serverTargets } from "./loads.ts";
import type { BenchRun, ServerRecord } from "./record.ts";

/** Figure measured in several rounds. */
export interface Figure {
  /** Median of the rounds. */
  readonly value: number;
  /** Values of the rounds, in their order. */
  readonly rounds: readonly number[];
}

/** Figure with its target. */
export interface Judged extends Figure {
  readonly target?: {
    readonly bound: "at least" | "at most" | "less than";
    readonly value: number;
  };
  /** `undefined` without a target. */
  readonly passed?: boolean;
}

/** Results of one load. */
export interface LoadRow {
  readonly load: Load;
  /** Images per second of each subject. */
  readonly imagesPerSecond: Readonly<Partial<Record<SubjectName, Figure>>>;
  readonly p50Ms: Readonly<Partial<Record<SubjectName, Figure>>>;
  readonly p95Ms: Readonly<Partial<Record<SubjectName, Figure>>>;
  readonly cpuMsPerImage: Readonly<Partial<Record<SubjectName, Figure>>>;
  /** Ratios of runs of the same round. */
  readonly ofCeiling?: Judged;
  readonly againstBaseline?: Judged;
  readonly p95AgainstBaseline?: Judged;
  readonly failures: number;
  /** Maximum share of the machine that other processes used during a run. */
  readonly othersShare?: number;
}

/** Figure that does not belong to one load. */
export interface Fact extends Judged {
  readonly name: string;
  readonly unit: "MB" | "ms" | "s" | "ratio" | "cosine";
}

export interface Comparison {
  readonly rows: readonly LoadRow[];
  readonly facts: readonly Fact[];
  /** Missed targets, as sentences. */
  readonly missedTargets: readonly string[];
}

/** Results of a record: medians of rounds, ratios of runs of the same round, and their targets. */
export function compare({ runs }: Pick<ServerRecord, "runs">): Comparison {
  const rows = loads
    .filter(({ id }) => runs.some((run) => run.load === id))
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
  const shares = runs.flatMap(({ othersShare }) => othersShare ?? []);
  return {
    load,
    imagesPerSecond: bySubject(rate),
    p50Ms: bySubject((run) => run.latency?.p50Ms),
    p95Ms: bySubject(p95),
    cpuMsPerImage: bySubject((run) => run.cpuMsPerImage),
    ofCeiling: atLeast(ratio(runs, measured, "ceiling", rate), targets.ofCeiling),
    againstBaseline: atLeast(ratio(runs, measured, "baseline", rate), targets.againstBaseline),
    p95AgainstBaseline: atMost(ratio(runs, measured, "baseline", p95), targets.p95AgainstBaseline),
    failures: runs.reduce((sum, run) => sum + failuresOf(run), 0),
    othersShare: shares.length === 0 ? undefined : Math.max(...shares),
  };
}

function failuresOf({ failures, healthFailures = {} }: BenchRun): number {
  return [...Object.values(failures), ...Object.values(healthFailures)].reduce((a, b) => a + b, 0);
}

/** Ratio of one subject's value to another's, round by round. */
function ratio(
  runs: readonly BenchRun[],
  subject: SubjectName,
  by: SubjectName,
  value: (run: BenchRun) => number | undefined,
): Figure | undefined {
  const rounds = [...new Set(runs.map(({ round }) => round))].sort((a, b) => a - b);
  const of = (wanted: SubjectName, round: number) => {
    const run = runs.find((one) => one.subject === wanted && one.round === round);
    return run === undefined ? undefined : value(run);
  };
  return figure(
    rounds.map((round) => {
      const [upper, lower] = [of(subject, round), of(by, round)];
      return upper === undefined || lower === undefined ? undefined : upper / lower;
    }),
  );
}

function figure(values: readonly (number | undefined)[]): Figure | undefined {
  const rounds = values.filter((value) => value !== undefined);
  const value = median(rounds);
  return value === undefined ? undefined : { value, rounds };
}

function factsOf(runs: readonly BenchRun[]): readonly Fact[] {
  const full = runs.filter(({ load }) => loads.find(({ id }) => id === load)?.model === "full");
  const of = (subject: SubjectName, value: (run: BenchRun) => number | undefined) =>
    figure(full.filter((run) => run.subject === subject).map(value));
  const resident = (run: BenchRun) => run.residentMB;
  const loaded = (run: BenchRun) => run.residentAfterMB;
  const ready = (run: BenchRun) => run.readyMs;
  const created = of("ceiling", ({ createMs }) => createMs);
  const [serverReady, health] = [of("server", ready), of("server", (run) => run.health?.p99Ms)];
  const added = figure(
    runs
      .filter(({ load, subject }) => load === "single" && subject === "server")
      .map((run) => run.added?.ms),
  );
  const cosineOf = (subject: SubjectName) => {
    const found = full.flatMap((run) =>
      run.subject === subject ? (run.cosineToServer ?? []) : [],
    );
    return found.length === 0 ? undefined : { value: Math.min(...found), rounds: found };
  };
  const fact = (name: string, unit: Fact["unit"], value: Judged | undefined): readonly Fact[] =>
    value === undefined ? [] : [{ name, unit, ...value }];
  const { residentMB, residentInt8MB, readyOfCreation, healthP99Ms } = serverTargets;
  return [
    ...fact("resident size at ready", "MB", judged(of("server", resident))),
    ...fact("resident size after load", "MB", atMost(of("server", loaded), residentMB)),
    ...fact(
      "resident size after load, int8",
      "MB",
      atMost(of("server-int8", loaded), residentInt8MB),
    ),
    ...fact("resident size after load, baseline", "MB", judged(of("baseline", loaded))),
    ...fact("session creation, ONNX Runtime alone", "ms", judged(created)),
    ...fact(
      "start of the process to a session, ONNX Runtime alone",
      "ms",
      judged(of("ceiling", ready)),
    ),
    ...fact("start of the process to ready", "ms", judged(serverReady)),
    ...fact("start of the process to ready, int8", "ms", judged(of("server-int8", ready))),
    ...fact("start of the process to ready, baseline", "ms", judged(of("baseline", ready))),
    ...fact(
      "ready, as a ratio to the session's creation",
      "ratio",
      created && serverReady && atMost(single(serverReady.value / created.value), readyOfCreation),
    ),
    ...fact("added beyond preprocessing and compute, concurrency 1", "ms", judged(added)),
    ...fact("GET /healthz beside 32 requests, p99", "ms", lessThan(health, healthP99Ms)),
    ...fact(
      "GET /healthz beside 32 requests, p99, baseline",
      "ms",
      judged(of("baseline", (run) => run.health?.p99Ms)),
    ),
    ...fact(
      "smallest cosine of embeddings, int8 to fp32",
      "cosine",
      judged(cosineOf("server-int8")),
    ),
    ...fact(
      "smallest cosine of embeddings, the baseline to the server",
      "cosine",
      judged(cosineOf("baseline")),
    ),
  ];
}

const single = (value: number): Figure => ({ value, rounds: [value] });

function judged(found: Figure | undefined): Judged | undefined {
  return found;
}

function atLeast(found: Figure | undefined, value?: number): Judged | undefined {
  if (found === undefined || value === undefined) return found;
  return { ...found, target: { bound: "at least", value }, passed: found.value >= value };
}

function atMost(found: Figure | undefined, value?: number): Judged | undefined {
  if (found === undefined || value === undefined) return found;
  return { ...found, target: { bound: "at most", value }, passed: found.value <= value };
}

function lessThan(found: Figure | undefined, value: number): Judged | undefined {
  if (found === undefined) return found;
  return { ...found, target: { bound: "less than", value }, passed: found.value < value };
}

function missedRatios({
  load,
  ofCeiling,
  againstBaseline,
  p95AgainstBaseline,
  failures,
}: LoadRow): readonly string[] {
  const miss = (what: string, value: Judged | undefined) =>
    value?.passed === false
      ? [
          `${load.title}: ${what} must be ${value.target!.bound} ${value.target!.value}, got ${value.value.toFixed(3)}`,
        ]
      : [];
  return [
    ...miss("images/s as a ratio to the ceiling", ofCeiling),
    ...miss("images/s as a ratio to the baseline", againstBaseline),
    ...miss("p95 as a ratio to the baseline", p95AgainstBaseline),
    ...(failures > 0 ? [`${load.title}: ${failures} requests failed`] : []),
  ];
}

function missedFact({ name, unit, value, target, passed }: Fact): readonly string[] {
  if (passed !== false || target === undefined) return [];
  const suffix = unit === "MB" || unit === "ms" || unit === "s" ? ` ${unit}` : "";
  return [
    `${name} must be ${target.bound} ${target.value}${suffix}, got ${Number(value.toPrecision(4))}${suffix}`,
  ];
}
