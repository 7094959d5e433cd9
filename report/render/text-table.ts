import type { DataTable } from "../document/document.ts";

/** Table for a terminal. */
export function textTable({ columns, rows }: DataTable): string {
  return aligned(
    [
      columns.map(({ label }) => label),
      ...rows.map((row) => row.map(({ text }) => text.replace(/\s*\n\s*/g, " "))),
    ],
    (column) => (columns[column]?.kind === "number" ? "right" : "left"),
  );
}

/** Rows with aligned columns, two spaces apart. */
export function aligned(
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
