import type { Cell } from "../record/bench-record.ts";
import {
  clientsOf,
  conditionsText,
  doubtsOf,
  isPlain,
  loadText,
  trustOf,
  trustText,
} from "./cells.ts";
import { type Field, formatMs, numberField, p99Field, textField } from "./document.ts";

/** Fields that tables of several sections share. */

/** Row of a table of load points. */
export interface CellRow {
  /** Endpoint; with the environment if there are several. */
  readonly name: string;
  readonly cell: Cell;
}

/** Load points of series as rows. */
export const cellRows = (
  series: readonly { readonly name: string; readonly cells: readonly Cell[] }[],
): readonly CellRow[] => series.flatMap(({ name, cells }) => cells.map((cell) => ({ name, cell })));

export const nameField: Field<Pick<CellRow, "name">> = textField("path", ({ name }) => name);

export const latencyFields: readonly Field<Pick<CellRow, "cell">>[] = [
  numberField("p50 ms", ({ cell }) => cell.latencyMs?.p50, formatMs),
  numberField("p95 ms", ({ cell }) => cell.latencyMs?.p95, formatMs),
  p99Field(({ cell }) => cell.latencyMs),
];

/** Average batch that the model was run with. */
export const executionField: Field<Pick<CellRow, "cell">> = numberField(
  "images an execution",
  ({ cell }) => cell.server?.averageBatch,
  (value) => value.toFixed(1),
  "Average batch that the model was run with",
);

export const loadField: Field<Pick<CellRow, "cell">> = textField("load", ({ cell }) => ({
  text: loadText(cell.load),
  sort: clientsOf(cell) ?? 1e6,
}));

/** Field for what a study changed, if it changed anything. */
export function conditionsFields(cells: readonly Cell[]): readonly Field<Pick<CellRow, "cell">>[] {
  return cells.every(isPlain)
    ? []
    : [textField("under", ({ cell }) => conditionsText(cell.conditions))];
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
export const trustField: Field<Pick<CellRow, "cell">> = textField("reliable", ({ cell }) => {
  const text = trustText(cell);
  return text === ""
    ? { text: "✓ stable", tone: "good" }
    : {
        text: `! ${text}`,
        tone: trustOf(cell) === "invalid" ? "bad" : "care",
        title: doubtsOf(cell).join(" "),
      };
});
