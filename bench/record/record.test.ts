import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { recordText, reportName, saveReports } from "../../report/save-reports.ts";
import { verifyReport } from "../../verify/verify-report.ts";
import { parseRecord } from "./record.ts";
import { failedCheck, testRecord } from "./test-record.ts";

const folder = mkdtempSync(join(tmpdir(), "clipstack-record-"));
afterAll(() => rmSync(folder, { recursive: true }));

const save = () => {
  const record = testRecord();
  const name = reportName(record.startedAt, "single-gpu+kind-local");
  return saveReports(folder, name, recordText(record), verifyReport(record));
};

test("a saved record reads back as it was", () => {
  const saved = save();
  expect(parseRecord(readFileSync(saved.json, "utf8"), saved.json)).toEqual(testRecord());
});

test("a run is saved as JSON, HTML and Markdown, named by its time and environments", () => {
  const saved = save();
  const base = join(folder, "2026-11-21T10-30-00Z-single-gpu+kind-local");
  expect(saved).toEqual({ json: `${base}.json`, html: `${base}.html`, md: `${base}.md` });
});

test("a name has only characters that every file system accepts", () => {
  expect(reportName(testRecord().startedAt, "single-gpu+kind-local")).toMatch(/^[\w.+-]+$/);
});

test.each(
  Object.entries({
    "record version (schema) must be 2, got 3: repeat the run with this version of clipstack": {
      ...testRecord(),
      schema: 3,
    },
    "record version (schema) is required": { kind: "verify" },
    "must be a saved record": [1],
    "checks.0.outcome must be one of pass, fail, skip": {
      ...testRecord(),
      checks: [failedCheck({ outcome: "maybe" as "fail" })],
    },
  }),
)("fails on a record: %s", (message, value) => {
  expect(() => parseRecord(JSON.stringify(value), "run.json")).toThrow(`run.json: ${message}`);
});

test("fails on text that is not JSON", () => {
  expect(() => parseRecord("{", "run.json")).toThrow("run.json: must be JSON");
});
