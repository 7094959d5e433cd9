import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { UserError } from "../contract/user-error.ts";
import type { Report } from "./document/document.ts";
import { renderHtml } from "./render/render-html.ts";
import { renderMarkdown } from "./render/render-md.ts";

/** Paths of one saved run. */
export interface SavedReports {
  readonly json: string;
  readonly html: string;
  readonly md: string;
}

/** File name without extension: start in UTC and subject, `2026-11-21T10-30-00Z-bench-single-gpu`. */
export function reportName(startedAt: string, what: string): string {
  return `${startedAt.replace(/\.\d+Z$/, "Z").replaceAll(":", "-")}-${what}`;
}

/** Saved and printed form of a record: indented JSON. */
export function recordText(record: unknown): string {
  return `${JSON.stringify(record, null, 2)}\n`;
}

/** Writes a record and its HTML and Markdown reports. */
export function saveReports(
  folder: string,
  name: string,
  record: string,
  report: Report,
): SavedReports {
  const base = join(folder, name);
  const saved = { json: `${base}.json`, html: `${base}.html`, md: `${base}.md` };
  try {
    mkdirSync(folder, { recursive: true });
    // the record first, because the reports can be rendered from it
    writeFileSync(saved.json, record);
    writeFileSync(saved.html, renderHtml(report));
    writeFileSync(saved.md, renderMarkdown(report));
  } catch (error) {
    throw new UserError(`reports cannot be written to ${folder}: ${(error as Error).message}`);
  }
  return saved;
}
