import { copyFileSync, existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { benchRecordText } from "../../bench/record/record-text.ts";
import { testRecord } from "../../bench/record/test-record.ts";
import { testBenchRecord, testLoadPoint } from "../../bench/report/test-bench-record.ts";
import { recordText } from "../../report/save-reports.ts";
import { clipstack } from "../test-programs.ts";
import { readHistory } from "./report-history.ts";

let folder: string;
let records: string;

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "clipstack-history-"));
  records = join(folder, "records");
  mkdirSync(records);
  for (const [day, slower] of [
    [21, 1],
    [22, 1],
    [23, 1.5],
  ] as const) {
    const record = testBenchRecord({
      startedAt: `2026-11-${day}T10:30:00.000Z`,
      loadPoints: [testLoadPoint({ slower })],
      studies: [],
    });
    writeFileSync(join(records, `${day}.json`), benchRecordText(record));
  }
  copyFileSync(join(records, "21.json"), join(records, "copy.json"));
  writeFileSync(join(records, "verify.json"), recordText(testRecord()));
  writeFileSync(join(records, "half.json"), '{ "kind": "bench"');
  writeFileSync(join(records, "notes.md"), "no record");
});

afterAll(() => rmSync(folder, { recursive: true }));

test("reads the records of a folder once, and lists each other JSON file with its reason", () => {
  const { subjects, skipped } = readHistory([records, join(records, "21.json")]);
  expect(subjects.map(({ runs }) => runs.length)).toEqual([3]);
  expect(skipped.map(({ reason }) => reason.replace(records, ""))).toEqual([
    expect.stringMatching(/^\/half\.json: [^\n]+$/),
    '/verify.json: kind must be "bench", got "verify"',
  ]);
});

test("prints the changes and writes the page; unreadable files are one line each", async () => {
  const output = join(folder, "page.html");
  const { code, stdout, stderr } = await clipstack([
    ...["report", "--history", records, "--output", output],
  ]);
  expect(code).toBe(0);
  expect(stdout).toMatch(/2026-11-23 10:30 .*images\/s .*2026-11-22 10:30, 0123456789ab/);
  expect(stderr.split("\n").filter((line) => line.startsWith("skipped "))).toHaveLength(2);
  expect(existsSync(output)).toBe(true);
});

test("--json prints only the history", async () => {
  const { code, stdout } = await clipstack([
    ...["report", "--json", "--history", join(records, "22.json"), join(records, "23.json")],
  ]);
  expect(code).toBe(0);
  const { subjects, skipped } = JSON.parse(stdout);
  expect(skipped).toEqual([]);
  expect(subjects[0].series[0]).toMatchObject({
    endpoint: "onnx-http",
    metric: "throughput",
    changes: [{ to: { run: { commit: "0123456789abcdef0123456789abcdef01234567" } } }],
  });
});

test.each([
  [
    "no readable record",
    () => ["--history", join(records, "verify.json")],
    () =>
      `clipstack: --history ${records}/verify.json: no file is a readable record of bench: ${records}/verify.json: kind must be "bench", got "verify"`,
  ],
  [
    "a path that does not exist",
    () => ["--history", join(folder, "no")],
    () => `clipstack: --history ${folder}/no: cannot be read: ENOENT`,
  ],
  [
    "a record and a history",
    () => [join(records, "21.json"), "--history", records],
    () => "clipstack: --history cannot be combined with a record or --import",
  ],
  ["neither", () => [], () => "clipstack: report requires a record or --history"],
])("fails with exit code 2 and one line on %s", async (_name, args, message) => {
  const { code, stderr } = await clipstack(["report", ...args()]);
  expect({ code, stderr: stderr.split("\n").at(-1) }).toEqual({ code: 2, stderr: message() });
});
