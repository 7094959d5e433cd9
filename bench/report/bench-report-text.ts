import type { BenchRecord } from "../src/bench-record.ts";
import { formatRate } from "../src/summary.ts";
import { caveatsOf } from "./caveats.ts";
import { counted, type DataTable } from "./document.ts";
import { sectionsOf } from "./sections.ts";
import { verdictOf } from "./verdict.ts";

/** The end of a run, for a terminal: what to choose, why, and what limits it. */
export function benchReportText(record: BenchRecord): string {
  const { headline, choices, limits } = verdictOf(record);
  const chosen = choices.flatMap((choice) =>
    choice.winner === undefined
      ? []
      : [[choice.title, choice.winner.name, `${choice.value} ${choice.unit}`, choice.setting]],
  );
  const why = choices.flatMap(({ title, why: reasons, doubts, winner }) =>
    winner === undefined
      ? [`${title}: ${reasons.join(" ")}`]
      : [`${title}: ${[...reasons.slice(0, 2), ...doubts].join(" ")}`],
  );
  const caveats = caveatsOf(record)
    .filter(({ kind }) => kind !== "know")
    .map(({ title, text }) => `! ${title}: ${text}`);
  const loads = sectionsOf(record).find(({ id }) => id === "loads")?.tables[0];
  const within = limits.map(
    ({ limitMs, name, cell }) =>
      `  p95 within ${limitMs} ms: ${name}, ${counted(cell.imagesPerRequest, "image")} a request, ${formatRate(cell.imagesPerSecond)} images/s`,
  );
  return [
    loads === undefined ? "" : textTable(loads),
    `${bare(headline)}.`,
    aligned(chosen, () => "left"),
    why.map(bare).join("\n"),
    within.length === 0 ? "" : `The most within a limit of latency:\n${within.join("\n")}`,
    caveats.map(bare).join("\n"),
  ]
    .filter((part) => part !== "")
    .join("\n\n");
}

const bare = (text: string) => text.replaceAll("`", "");

/** A table for a terminal. */
export function textTable({ columns, rows }: DataTable): string {
  return aligned(
    [columns.map(({ label }) => label), ...rows.map((row) => row.map(({ text }) => text))],
    (column) => (columns[column]?.kind === "number" ? "right" : "left"),
  );
}

function aligned(
  rows: readonly (readonly string[])[],
  align: (column: number) => "left" | "right",
): string {
  const widths = (rows[0] ?? []).map((_, column) =>
    Math.max(...rows.map((row) => row[column]?.length ?? 0)),
  );
  return rows
    .map((row) =>
      row
        .map((cell, column) =>
          align(column) === "left"
            ? cell.padEnd(widths[column] ?? 0)
            : cell.padStart(widths[column] ?? 0),
        )
        .join("  ")
        .trimEnd(),
    )
    .join("\n");
}
