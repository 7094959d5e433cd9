import { type Field, numberCell, textField } from "../../report/document/document.ts";
import { formatRate } from "../../report/document/number-format.ts";
import type { LoadPoint } from "../record/bench-record.ts";
import { type Metric, type MetricName, metricNames, metricOf } from "../record/metrics.ts";
import { figureInterval } from "../stats/intervals.ts";
import {
  clientsOf,
  conditionsText,
  isUnmodified,
  loadText,
  reliabilityIssues,
  trustOf,
  trustText,
} from "./load-points.ts";

/** Row of a table of load points. */
export interface LoadPointRow {
  /** Name of the endpoint, with that of the environment if the record has several. */
  readonly name: string;
  readonly point: LoadPoint;
}

export const loadPointRows = (
  series: readonly { readonly name: string; readonly loadPoints: readonly LoadPoint[] }[],
): readonly LoadPointRow[] =>
  series.flatMap(({ name, loadPoints }) => loadPoints.map((point) => ({ name, point })));

export const nameField: Field<Pick<LoadPointRow, "name">> = textField(
  "endpoint",
  ({ name }) => name,
);

/** Column of a metric; an unreliable value is marked with `*`. */
export function metricField(name: MetricName): Field<Pick<LoadPointRow, "point">> {
  const { label, title, read, format, caution } = metricOf(name);
  const cell = ({ point }: Pick<LoadPointRow, "point">) => {
    const reason = caution?.(point);
    const mark = reason === undefined ? "" : " *";
    return numberCell(read(point), (value) => `${format(value)}${mark}`, { title: reason });
  };
  return { label, kind: "number", title, cell };
}

/** Columns of all metrics of the groups that at least one of the load points has. */
export function measuredMetricFields(
  loadPoints: readonly LoadPoint[],
  groups: readonly Metric["group"][],
): readonly Field<Pick<LoadPointRow, "point">>[] {
  return metricNames
    .filter((name) => groups.includes(metricOf(name).group))
    .filter((name) => loadPoints.some((point) => metricOf(name).read(point) !== undefined))
    .map(metricField);
}

/** Column of the 95 % interval of the throughput over the rounds. */
export const intervalField: Field<Pick<LoadPointRow, "point">> = {
  label: "images/s, 95 %",
  kind: "number",
  title: "95 % confidence interval of the mean over the rounds",
  cell: ({ point }) => {
    const interval = figureInterval(point, "throughput");
    if (interval === undefined) return { text: "–", tone: "quiet", title: "one round" };
    const { mean, low, high } = interval;
    return { text: `${formatRate(Math.max(0, low))} to ${formatRate(high)}`, sort: high - mean };
  },
};

export const latencyFields = (["p50", "p95", "p99"] as const).map(metricField);

export const loadField: Field<Pick<LoadPointRow, "point">> = textField("load", ({ point }) => ({
  text: loadText(point.load),
  sort: clientsOf(point) ?? 1e6,
}));

/** Column of the conditions changed by a study, if any. */
export function conditionsFields(
  loadPoints: readonly LoadPoint[],
): readonly Field<Pick<LoadPointRow, "point">>[] {
  return loadPoints.every(isUnmodified)
    ? []
    : [textField("conditions", ({ point }) => conditionsText(point.conditions))];
}

/** Column of the environment, if there are several. */
export function environmentFields(
  rows: readonly { readonly environment: string }[],
): readonly Field<{ readonly environment: string }>[] {
  return new Set(rows.map(({ environment }) => environment)).size > 1
    ? [textField("environment", ({ environment }) => environment)]
    : [];
}

/** Column of the reliability of a load point. */
export const trustField: Field<Pick<LoadPointRow, "point">> = textField("reliable", ({ point }) => {
  const text = trustText(point);
  return text === ""
    ? { text: "✓ stable", tone: "good" }
    : {
        text: `! ${text}`,
        tone: trustOf(point) === "invalid" ? "bad" : "care",
        title: reliabilityIssues(point).join(" "),
      };
});
