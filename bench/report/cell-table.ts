import type { Cell } from "../src/bench-record.ts";
import { doubtsOf, trustOf, trustText } from "./cells.ts";
import { formatMs, numberCell, numberColumn, type TableCell, textColumn } from "./document.ts";

/** What tables of every section have in common. */

/** Whether a load can be relied on, as the last cell of a row. */
export function trustCell(cell: Cell): TableCell {
  const text = trustText(cell);
  return text === ""
    ? { text: "✓ stable", tone: "good" }
    : {
        text: `! ${text}`,
        tone: trustOf(cell) === "invalid" ? "bad" : "care",
        title: doubtsOf(cell).join(" "),
      };
}

export function latencyCells(cell: Cell): readonly TableCell[] {
  const latency = cell.latencyMs;
  return [
    numberCell(latency?.p50, formatMs),
    numberCell(latency?.p95, formatMs),
    numberCell(
      latency?.p99,
      (value) => `${formatMs(value)}${latency?.p99Reliable === false ? " *" : ""}`,
      latency?.p99Reliable === false
        ? { title: "from too few requests: about the slowest of them" }
        : {},
    ),
  ];
}

export const latencyColumns = [
  numberColumn("p50 ms"),
  numberColumn("p95 ms"),
  numberColumn("p99 ms"),
] as const;

export const trustColumn = textColumn("reliable");
