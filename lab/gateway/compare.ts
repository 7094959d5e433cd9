import { median } from "../../target/stats/statistics.ts";
import {
  type GatewayLoad,
  type GatewayMeasure,
  type GatewaySubject,
  gatewayLoads,
  gatewayMeasures,
  gatewaySubjects,
} from "./loads.ts";
import type { GatewayRecord, GatewayRun } from "./record.ts";

/** Figure of several rounds. */
export interface GatewayFigure {
  /** Median of the rounds. */
  readonly value: number;
  readonly rounds: readonly number[];
}

export interface GatewayRow {
  readonly load: GatewayLoad;
  readonly cpuMsPerImage: Readonly<Partial<Record<GatewaySubject, GatewayFigure>>>;
  readonly imagesPerSecond: Readonly<Partial<Record<GatewaySubject, GatewayFigure>>>;
  readonly measures: Readonly<Partial<Record<GatewayMeasure, GatewayFigure>>>;
  readonly failures: number;
  readonly othersShare: number;
}

type RunsOfRound = Readonly<Partial<Record<GatewaySubject, GatewayRun>>>;

const cpuRatio =
  (dividend: GatewaySubject, divisor: GatewaySubject) =>
  (runs: RunsOfRound): number | undefined => {
    const [a, b] = [runs[dividend]?.cpuMsPerImage, runs[divisor]?.cpuMsPerImage];
    return a === undefined || b === undefined || b === 0 ? undefined : a / b;
  };

/** Ratios of processor time and of latency between runs of the same round. */
const measureOf: Readonly<
  Record<GatewayMeasure, (runs: RunsOfRound, load: GatewayLoad) => number | undefined>
> = {
  againstBaseline: cpuRatio("baseline", "gateway-uint8"),
  fastAgainstBaseline: cpuRatio("baseline", "gateway-uint8-fast"),
  ofCeiling: cpuRatio("ceiling", "gateway-uint8"),
  jpegMs: (runs) => runs["gateway-jpeg"]?.cpuMsPerImage,
  scaling: cpuRatio("gateway-uint8", "gateway-uint8-2-cores"),
  p99OfP50: (runs) => latencyRatio(runs, "p99Ms"),
  p95OfP50: (runs) => latencyRatio(runs, "p95Ms"),
};

function latencyRatio(runs: RunsOfRound, percentile: "p95Ms" | "p99Ms"): number | undefined {
  const latency = runs["gateway-uint8"]?.latency;
  return latency && latency[percentile] / latency.p50Ms;
}

/** Medians of rounds per load of a record, in the order of the table of loads. */
export function compareGateway({ runs }: Pick<GatewayRecord, "runs">): readonly GatewayRow[] {
  return gatewayLoads
    .map((load) => ({ load, own: runs.filter((run) => run.load === load.id) }))
    .filter(({ own }) => own.length > 0)
    .map(({ load, own }) => {
      const rounds = [...new Set(own.map(({ round }) => round))].sort((a, b) => a - b);
      const byRound = rounds.map(
        (round): RunsOfRound =>
          Object.fromEntries(
            own.filter((run) => run.round === round).map((run) => [run.subject, run]),
          ),
      );
      const bySubject = (value: (run: GatewayRun) => number) =>
        figures(gatewaySubjects, (subject) =>
          byRound.map((round) => round[subject] && value(round[subject])),
        );
      return {
        load,
        cpuMsPerImage: bySubject((run) => run.cpuMsPerImage),
        imagesPerSecond: bySubject((run) => run.imagesPerSecond),
        measures: figures(Object.keys(gatewayMeasures) as GatewayMeasure[], (measure) =>
          byRound.map((round) => measureOf[measure](round, load)),
        ),
        failures: own
          .flatMap(({ failures }) => Object.values(failures))
          .reduce((sum, count) => sum + count, 0),
        othersShare: Math.max(0, ...own.map((run) => run.othersShare ?? 0)),
      };
    });
}

function figures<Key extends string>(
  keys: readonly Key[],
  valuesOf: (key: Key) => readonly (number | undefined)[],
): Readonly<Partial<Record<Key, GatewayFigure>>> {
  const found: Partial<Record<Key, GatewayFigure>> = {};
  for (const key of keys) {
    const rounds = valuesOf(key).filter((value) => value !== undefined);
    const value = median(rounds);
    if (value !== undefined) found[key] = { value, rounds };
  }
  return found;
}

/** Figure with its target. */
export interface GatewayResult extends GatewayFigure {
  readonly load: GatewayLoad;
  readonly measure: GatewayMeasure;
  readonly target: NonNullable<GatewayLoad["targets"][GatewayMeasure]>;
  readonly passed: boolean;
}

/** Figures that have a target. */
export function gatewayResults(rows: readonly GatewayRow[]): readonly GatewayResult[] {
  return rows.flatMap(({ load, measures }) =>
    (Object.keys(gatewayMeasures) as GatewayMeasure[]).flatMap((measure) => {
      const [figure, target] = [measures[measure], load.targets[measure]];
      if (figure === undefined || target === undefined) return [];
      const passed =
        target.bound === "at least" ? figure.value >= target.value : figure.value <= target.value;
      return [{ ...figure, load, measure, target, passed }];
    }),
  );
}
