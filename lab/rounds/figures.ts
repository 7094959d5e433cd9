import { formatMs } from "../../report/document/number-format.ts";
import { aligned } from "../../report/render/text-table.ts";
import { median } from "../../target/stats/statistics.ts";

/** One subject under one load in one round, in new processes. */
export interface Run {
  readonly load: string;
  readonly subject: string;
  readonly round: number;
  /** Number of failed requests by status or code. */
  readonly failures: Readonly<Record<string, number>>;
  /** Share of the machine used by processes outside the measurement, 0..1. */
  readonly othersShare?: number;
}

export interface Target {
  readonly bound: "at least" | "at most" | "less than";
  readonly value: number;
}

export const atLeast = (value: number): Target => ({ bound: "at least", value });
export const atMost = (value: number): Target => ({ bound: "at most", value });

/** Runs of one load in one round, by subject. */
export type Round<R> = Readonly<Partial<Record<string, R>>>;

/** Figure of a load, computed in each round from the runs of that round. */
export interface Measure<R> {
  readonly name: string;
  readonly unit?: "ms" | "MB" | "cosine";
  readonly of: (round: Round<R>) => number | undefined;
  readonly target?: Target;
  /** Value of all rounds. @default their median */
  readonly summary?: (values: readonly number[]) => number;
}

/** Measurements of one or several loads, with the failed requests and the disturbances by other processes. */
export interface Group<R> {
  readonly title: string;
  readonly loads: string | readonly string[];
  readonly measures: readonly Measure<R>[];
}

/** Figure with the values of the rounds, and its target. */
export interface Result extends Pick<Measure<never>, "name" | "unit" | "target"> {
  readonly title: string;
  readonly value: number;
  readonly rounds: readonly number[];
  /** Absent without a target. */
  readonly passed?: boolean;
}

/** Ratio of a figure of two subjects in the same round. */
export const ratio =
  <R>(dividend: string, divisor: string, value: (run: R) => number | undefined) =>
  (round: Round<R>): number | undefined => {
    const [a, b] = [dividend, divisor].map((subject) => round[subject] && value(round[subject]));
    return a === undefined || !b ? undefined : a / b;
  };

/** A figure of each subject. */
export function ofSubjects<R>(
  subjects: readonly string[],
  name: string,
  value: (run: R) => number | undefined,
  unit?: Measure<R>["unit"],
): readonly Measure<R>[] {
  return subjects.map((subject) => ({
    name: `${name}, ${subject}`,
    unit,
    of: ({ [subject]: run }) => run && value(run),
  }));
}

/** Maximum share of the machine used by other processes that is not reported. */
const quietShare = 0.05;

/** Measured figures of all groups, with failed requests and disturbances by other processes. */
export function resultsOf<R extends Run>(
  runs: readonly R[],
  groups: readonly Group<R>[],
): readonly Result[] {
  return groups.flatMap(({ title, loads, measures }) => {
    const isOneLoad = typeof loads === "string";
    const own = runs.filter(({ load }) => (isOneLoad ? load === loads : loads.includes(load)));
    const keys = new Set(own.map(({ load, round }) => JSON.stringify([load, round])));
    const rounds = [...keys].map((key): Round<R> => {
      const some = own.filter(({ load, round }) => JSON.stringify([load, round]) === key);
      return Object.fromEntries(some.map((run) => [run.subject, run]));
    });
    const failed = own.flatMap(({ failures }) => Object.values(failures));
    const share = Math.max(0, ...own.map(({ othersShare = 0 }) => othersShare));
    const counted = (name: string, value: number, target?: Target): Result =>
      judged({ title, name, value, rounds: [], target });
    return [
      ...measures.flatMap(({ of, summary = median, ...measure }) => {
        const values = rounds.map(of).filter((value) => value !== undefined);
        const value = values.length === 0 ? undefined : summary(values);
        return value === undefined ? [] : [judged({ title, ...measure, value, rounds: values })];
      }),
      ...(isOneLoad && failed.length > 0
        ? [
            counted(
              "failed requests",
              failed.reduce((a, b) => a + b, 0),
              atMost(0),
            ),
          ]
        : []),
      ...(isOneLoad && share > quietShare
        ? [counted("share of the machine that other processes used, at most", share)]
        : []),
    ];
  });
}

const meets: Readonly<Record<Target["bound"], (value: number, limit: number) => boolean>> = {
  "at least": (value, limit) => value >= limit,
  "at most": (value, limit) => value <= limit,
  "less than": (value, limit) => value < limit,
};

function judged(result: Result): Result {
  const { target, value } = result;
  return target === undefined
    ? result
    : { ...result, passed: meets[target.bound](value, target.value) };
}

/** Missed targets, as sentences. */
export function missedTargets(results: readonly Result[]): readonly string[] {
  return results
    .filter(({ passed }) => passed === false)
    .map(({ title, name, value, target, unit }) => {
      const suffix = unit === undefined ? "" : ` ${unit}`;
      const got = Number(value.toPrecision(4));
      return `${title}: ${name} must be ${target?.bound} ${target?.value}${suffix}, got ${got}${suffix}`;
    });
}

/** Table of all figures with the values of the rounds, and the number of met targets. */
export function resultsText(results: readonly Result[]): string {
  const targets = results.filter(({ passed }) => passed !== undefined);
  const met = targets.filter(({ passed }) => passed);
  const rows = results.map(({ title, name, unit, value, rounds, target, passed }) => {
    const format = (one: number) => (unit === "cosine" ? one.toFixed(6) : formatMs(one));
    const spread =
      rounds.length > 5
        ? `${format(Math.min(...rounds))} to ${format(Math.max(...rounds))}`
        : rounds.map(format).join(", ");
    const label = unit === undefined || unit === "cosine" ? name : `${name}, ${unit}`;
    const verdict = target && `${passed ? "✓" : "✗"} ${target.bound} ${target.value}`;
    return [title, label, format(value), spread, verdict ?? ""];
  });
  return `${aligned([["load", "figure", "median", "rounds", "target"], ...rows], () => "left")}\n\n${met.length} of ${targets.length} targets met`;
}
