import { modelText } from "../../target/subject/subject-text.ts";
import type { BenchRecord, LoadPoint } from "../record/bench-record.ts";
import { type ComparedMetric, comparedMetrics } from "../record/metrics.ts";
import { confidencePerRatio, figureOf, type Interval, unpairedRatio } from "../stats/intervals.ts";
import { judgeSingle } from "./compare.ts";
import {
  distinct,
  endpointOf,
  grouped,
  isUnmodified,
  loadPointKey,
  settingText,
  unreliabilityRank,
} from "./load-points.ts";
import { environmentText } from "./subject.ts";

/** Record and the file that it was read from. */
export interface NamedRecord {
  readonly file: string;
  readonly record: BenchRecord;
}

export interface HistoryRun {
  readonly file: string;
  /** UTC, ISO 8601. */
  readonly startedAt: string;
  readonly commit?: string;
  /** Whether files differed from the commit. */
  readonly dirty?: boolean;
}

/** Value of a metric in one run. */
export interface HistoryValue {
  readonly run: HistoryRun;
  readonly value: number;
}

/** Significant change of a metric from an earlier run. */
export interface HistoryChange {
  /** Last run at the former level; other commits can lie between the two. */
  readonly from: HistoryValue;
  readonly to: HistoryValue;
  /** `to` divided by `from`. */
  readonly interval: Interval;
  readonly isBetter: boolean;
}

/** Metric of one load point over all runs of a subject. */
export interface HistorySeries {
  readonly endpoint: string;
  readonly imagesPerRequest: number;
  readonly load: LoadPoint["load"];
  /** `4 images per request, 8 clients`. */
  readonly setting: string;
  readonly metric: ComparedMetric;
  /** In order of time; at least one. */
  readonly values: readonly HistoryValue[];
  readonly changes: readonly HistoryChange[];
}

/** Runs that can be compared: the same environments, target, machine, GPU and model file. */
export interface HistorySubject {
  readonly environment: string;
  readonly hardware: string;
  readonly model: string;
  readonly runs: readonly HistoryRun[];
  readonly series: readonly HistorySeries[];
}

/** Groups records by subject and finds the significant changes of each metric. Unreliable load points are left out. */
export function historyOf(records: readonly NamedRecord[]): readonly HistorySubject[] {
  const sorted = [...records].sort(
    (a, b) => Date.parse(a.record.startedAt) - Date.parse(b.record.startedAt),
  );
  return grouped(sorted, ({ record }) => JSON.stringify(subjectOf(record))).map((group) => {
    const { environment, hardware, model } = subjectOf(group[0].record);
    return { environment, hardware, model, runs: group.map(runOf), series: seriesOfSubject(group) };
  });
}

function subjectOf(record: BenchRecord) {
  const { machine, gpu, model } = record.subject;
  return {
    environment: environmentText(record),
    hardware: `${gpu === undefined ? "" : `${gpu.count} × ${gpu.name}, `}${machine.cpu}, ${machine.cores} cores`,
    model: `${modelText(model)}${model.modality === "text" ? ", texts" : ""}`,
    sha256: model.sha256,
  };
}

function runOf({ file, record: { startedAt, subject } }: NamedRecord): HistoryRun {
  const { commit, dirty } = subject;
  return { file, startedAt, commit, dirty };
}

/** Load point of one run. */
interface Measured {
  readonly run: HistoryRun;
  readonly point: LoadPoint;
}

function seriesOfSubject(group: readonly NamedRecord[]): readonly HistorySeries[] {
  const measured = group.flatMap((named) => {
    const reliable = named.record.loadPoints.filter(
      (point) => isUnmodified(point) && unreliabilityRank(point) === 0,
    );
    return distinct(reliable).map((point): Measured => ({ run: runOf(named), point }));
  });
  return grouped(measured, ({ point }) => loadPointKey(point)).flatMap((own) =>
    comparedMetrics.flatMap((metric) => seriesOfMetric(own, metric)),
  );
}

function seriesOfMetric(
  all: readonly Measured[],
  metric: ComparedMetric,
): readonly HistorySeries[] {
  const measured = all.flatMap(({ run, point }) => {
    const value = figureOf(point, metric);
    return value === undefined ? [] : [{ run, point, value }];
  });
  const [first] = measured;
  if (first === undefined) return [];
  return [
    {
      endpoint: endpointOf(first.point),
      imagesPerRequest: first.point.imagesPerRequest,
      load: first.point.load,
      setting: settingText(first.point),
      metric,
      values: measured.map(({ run, value }) => ({ run, value })),
      changes: changesOf(measured, metric),
    },
  ];
}

/**
 * Each run is compared with the first run of the current level, so that a slow drift in small steps is found as well; a difference
 * beyond what `compare` tolerates between two runs starts a new level.
 */
function changesOf(
  measured: readonly (Measured & HistoryValue)[],
  metric: ComparedMetric,
): readonly HistoryChange[] {
  const changes: HistoryChange[] = [];
  const confidence = confidencePerRatio(measured.length - 1);
  let [level, previous] = [measured[0], measured[0]];
  for (const next of measured.slice(1)) {
    if (level === undefined || previous === undefined) break;
    const interval = unpairedRatio([[level.point, next.point]], metric, confidence);
    const judgement = judgeSingle(metric, interval);
    if (interval !== undefined && (judgement === "better" || judgement === "worse")) {
      changes.push({
        from: { run: previous.run, value: level.value },
        to: { run: next.run, value: next.value },
        interval,
        isBetter: judgement === "better",
      });
      level = next;
    }
    previous = next;
  }
  return changes;
}
