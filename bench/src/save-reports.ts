import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { BenchError } from "./bench-error.ts";
import type { VerifyRecord } from "./record.ts";
import { reportHtml } from "./report-html.ts";
import { reportMarkdown } from "./report-md.ts";

/** Paths of one saved run. */
export interface SavedReports {
  readonly json: string;
  readonly html: string;
  readonly md: string;
}

/** `2026-11-21T10-30-00Z-single-gpu+kind-local`: when, in UTC, and what. */
export function reportName({ startedAt, environments }: VerifyRecord): string {
  const time = startedAt.replace(/\.\d+Z$/, "Z").replaceAll(":", "-");
  return `${time}-${environments.map(({ name }) => name).join("+")}`;
}

/** The record as it is saved and printed. */
export function recordText(record: VerifyRecord): string {
  return `${JSON.stringify(record, null, 2)}\n`;
}

/** Write the record and both reports of it. */
export function saveReports(record: VerifyRecord, folder: string): SavedReports {
  const base = join(folder, reportName(record));
  const saved = { json: `${base}.json`, html: `${base}.html`, md: `${base}.md` };
  try {
    mkdirSync(folder, { recursive: true });
    writeFileSync(saved.json, recordText(record));
    writeFileSync(saved.html, reportHtml(record));
    writeFileSync(saved.md, reportMarkdown(record));
  } catch (error) {
    throw new BenchError(`reports cannot be written to ${folder}: ${(error as Error).message}`);
  }
  return saved;
}
