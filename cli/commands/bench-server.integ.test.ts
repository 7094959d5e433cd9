import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { serverRecord } from "../../bench/baselines/record.ts";
import { benchServer } from "./bench-server.ts";

const reports = mkdtempSync(join(tmpdir(), "clipstack-bench-server-"));
afterAll(() => rmSync(reports, { recursive: true, force: true }));

test("measures the server with the tiny model and saves a valid record", async () => {
  const { record, saved } = await benchServer({
    rounds: 1,
    seconds: 1,
    only: ["tiny"],
    baseline: false,
    reports,
    onProgress: () => {},
  });
  expect(serverRecord.safeParse(record).error).toBeUndefined();
  expect(record.subject.baseline).toEqual({ measured: false, reason: "--no-baseline" });
  expect(record.runs).toHaveLength(1);
  expect(record.runs[0]).toMatchObject({ load: "tiny", subject: "server", failures: {} });
  expect(record.runs[0]?.imagesPerSecond).toBeGreaterThan(0);
  expect(saved.json.startsWith(reports)).toBe(true);
});
