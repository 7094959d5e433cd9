import type { DataTable } from "./document.ts";

export function markdownTable({ columns, rows }: DataTable): string {
  if (rows.length === 0) return "";
  return tableOf(
    columns.map(({ label }) => escapeMarkdown(label)),
    rows.map((row) => row.map(({ text }) => escapeMarkdown(text))),
  );
}

/** A table of texts that are Markdown already. */
export function tableOf(header: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]) => `| ${cells.join(" | ")} |`;
  return [line(header), line(header.map(() => "---")), ...rows.map(line)].join("\n");
}

/** Text that Markdown must not read as markup, on one line, and that mentions nobody: `@name` would call people. */
export function escapeMarkdown(text: string): string {
  return text
    .replace(/\s*[\r\n\u2028\u2029]+\s*/g, " ")
    .replace(/[\\`*_[\]<>|]/g, "\\$&")
    .replace(/@(?=\w)/g, "@\u200b");
}

/** The same, but for code in backticks. */
export function escapeInline(text: string): string {
  return text
    .split(/(`[^`]*`)/)
    .map((part, i) => (i % 2 === 1 ? part : escapeMarkdown(part)))
    .join("");
}
