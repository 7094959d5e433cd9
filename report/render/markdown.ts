import type { DataTable } from "../document/document.ts";

export function markdownTable({ columns, rows }: DataTable): string {
  if (rows.length === 0) return "";
  return tableOf(
    columns.map(({ label }) => escapeMarkdown(label)),
    rows.map((row) => row.map(({ text }) => escapeMarkdown(text))),
  );
}

/** Table of cells that contain Markdown. */
export function tableOf(header: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]) => `| ${cells.join(" | ")} |`;
  return [line(header), line(header.map(() => "---")), ...rows.map(line)].join("\n");
}

/** Escapes text to one line without markup or mentions: `@name` would notify a user. */
export function escapeMarkdown(text: string): string {
  return text
    .replace(/\s*[\r\n\u2028\u2029]+\s*/g, " ")
    .replace(/[\\`*_[\]<>|]/g, "\\$&")
    .replace(/@(?=\w)/g, "@\u200b");
}

/** Escapes text except code in backticks. */
export function escapeInline(text: string): string {
  return text
    .split(/(`[^`]*`)/)
    .map((part, i) => (i % 2 === 1 ? part : escapeMarkdown(part)))
    .join("");
}
