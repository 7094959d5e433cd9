import type { LoadPoint } from "../record/bench-record.ts";
import { type Field, numberField, p99Field, textField } from "./document.ts";
import {
  clientsOf,
  conditionsText,
  doubtsOf,
  isPlain,
  loadText,
  trustOf,
  trustText,
} from "./load-points.ts";
import { formatMs } from "./number-format.ts";

/** Fields that tables of several sections share. */

/** Row of a table of load points. */
export interface LoadPointRow {
  /** Endpoint; with the environment if there are several. */
  readonly name: string;
  readonly point: LoadPoint;
}

/** Load points of series as rows. */
export const loadPointRows = (
  series: readonly { readonly name: string; readonly loadPoints: readonly LoadPoint[] }[],
): readonly LoadPointRow[] =>
  series.flatMap(({ name, loadPoints }) => loadPoints.map((point) => ({ name, point })));

export const nameField: Field<Pick<LoadPointRow, "name">> = textField("path", ({ name }) => name);

export const latencyFields: readonly Field<Pick<LoadPointRow, "point">>[] = [
  numberField("p50 ms", ({ point }) => point.latencyMs?.p50, formatMs),
  numberField("p95 ms", ({ point }) => point.latencyMs?.p95, formatMs),
  p99Field(({ point }) => point.latencyMs),
];

/** Average batch that the model was run with. */
export const executionField: Field<Pick<LoadPointRow, "point">> = numberField(
  "images an execution",
  ({ point }) => point.server?.averageBatch,
  (value) => value.toFixed(1),
  "Average batch that the model was run with",
);

export const loadField: Field<Pick<LoadPointRow, "point">> = textField("load", ({ point }) => ({
  text: loadText(point.load),
  sort: clientsOf(point) ?? 1e6,
}));

/** Field for what a study changed, if it changed anything. */
export function conditionsFields(
  loadPoints: readonly LoadPoint[],
): readonly Field<Pick<LoadPointRow, "point">>[] {
  return loadPoints.every(isPlain)
    ? []
    : [textField("under", ({ point }) => conditionsText(point.conditions))];
}

/** Field for the environment, if there are several. */
export function environmentFields(
  rows: readonly { readonly environment: string }[],
): readonly Field<{ readonly environment: string }>[] {
  return new Set(rows.map(({ environment }) => environment)).size > 1
    ? [textField("environment", ({ environment }) => environment)]
    : [];
}

/** Whether a load point can be relied on, as the last cell of a row. */
export const trustField: Field<Pick<LoadPointRow, "point">> = textField("reliable", ({ point }) => {
  const text = trustText(point);
  return text === ""
    ? { text: "✓ stable", tone: "good" }
    : {
        text: `! ${text}`,
        tone: trustOf(point) === "invalid" ? "bad" : "care",
        title: doubtsOf(point).join(" "),
      };
});
