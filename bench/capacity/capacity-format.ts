import { aligned } from "../../report/render/text-table.ts";

/** Numbers and tables of the text output of `clipstack capacity`. */

/** Table with right-aligned numeric columns. */
export function textTable(rows: readonly (readonly string[])[]): string {
  const number = /^([-+]?[$]?\d.*)?$/;
  return aligned(rows, (column) =>
    rows.slice(1).every((row) => number.test(row[column] ?? "")) ? "right" : "left",
  );
}

/** Number with three significant digits. */
export function formatNumber(value: number): string {
  const size = Math.abs(value);
  if (Number.isInteger(value)) return value.toLocaleString("en-US");
  if (size >= 1000) return Math.round(value).toLocaleString("en-US");
  if (size >= 100) return value.toFixed(0);
  if (size >= 10) return value.toFixed(1);
  return size >= 1 || size === 0 ? value.toFixed(2) : value.toPrecision(2);
}
