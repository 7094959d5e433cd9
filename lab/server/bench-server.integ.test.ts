import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { benchServer } from "./bench-server.ts";
import { serverRecord } from "./record.ts";

const reports = mkdtempSync(join(tmpdir(), "clipstack-bench-server-"));
afterAll(() => rmSync(reports, { recursive: true, force: true }));

test("measures the server with the tiny model and saves a valid record", async () => {
  const { record, saved } = await benchServer({
    rounds: 1,
    seconds: 1,
    only: ["tiny"],
    models: [],
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

test("measures towers of models with ONNX Runtime alone and the server", async () => {
  const { record, saved } = await benchServer({
    rounds: 1,
    seconds: 1,
    only: ["single"],
    models: ["efficientnet-lite0"],
    baseline: true,
    reports,
    onProgress: () => {},
  });
  expect(serverRecord.safeParse(record).error).toBeUndefined();
  expect(record.subject.baseline).toMatchObject({ measured: false });
  expect(record.subject.models).toHaveProperty("efficientnet-lite0:image");
  const load = "efficientnet-lite0:image:single";
  expect(record.runs).toMatchObject([
    { load, subject: "ceiling", failures: {} },
    { load, subject: "server", failures: {} },
  ]);
  expect(readFileSync(saved.md, "utf8")).toContain("p50 above the ceiling, ms");
});
