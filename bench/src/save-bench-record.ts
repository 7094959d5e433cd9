import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { BenchError } from "./bench-error.ts";
import type { BenchRecord } from "./bench-record.ts";

/** The record as it is saved and printed. */
export function benchRecordText(record: BenchRecord): string {
  return `${JSON.stringify(record, null, 2)}\n`;
}

/** `2026-11-22T00-30-00Z-bench-single-gpu`: when, in UTC, and what. */
export function benchReportName({ startedAt, subject }: BenchRecord): string {
  const time = startedAt.replace(/\.\d+Z$/, "Z").replaceAll(":", "-");
  const names = subject.environments.map(({ name }) => name).join("+");
  return `${time}-bench-${names || subject.runtime}`;
}

export function saveBenchRecord(
  record: BenchRecord,
  folder: string,
): { readonly json: string; readonly html: string } {
  const json = join(folder, `${benchReportName(record)}.json`);
  try {
    mkdirSync(folder, { recursive: true });
    writeFileSync(json, benchRecordText(record));
  } catch (error) {
    throw new BenchError(`reports cannot be written to ${folder}: ${(error as Error).message}`);
  }
  return { json, html: json };
}
