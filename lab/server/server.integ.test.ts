import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { compare } from "../rounds/comparison.ts";
import { serverComparison } from "./server.ts";

const report = mkdtempSync(join(tmpdir(), "clipstack-bench-server-"));
afterAll(() => rmSync(report, { recursive: true, force: true }));

const options = { rounds: 1, seconds: 1, baseline: false, report, onProgress: () => {} };

test("measures the server with the tiny model and saves the record", async () => {
  const { record, file } = await compare(serverComparison, {
    ...options,
    only: ["tiny"],
    model: [],
  });
  expect(record.subject.baseline).toMatchObject({ reason: "--no-baseline" });
  expect(record.runs).toMatchObject([{ load: "tiny", subject: "server", failures: {} }]);
  expect(record.runs[0]?.imagesPerSecond).toBeGreaterThan(0);
  expect(file.startsWith(report)).toBe(true);
});

test("measures towers of models with ONNX Runtime alone and the server", async () => {
  const model = ["efficientnet-lite0"];
  const { record, results } = await compare(serverComparison, {
    ...options,
    only: ["single"],
    model,
  });
  expect(record.subject.models).toHaveProperty("efficientnet-lite0:image");
  const load = "efficientnet-lite0:image:single";
  expect(record.runs).toMatchObject([
    { load, subject: "ceiling", failures: {} },
    { load, subject: "server", failures: {} },
  ]);
  expect(results.map(({ name }) => name)).toContain("latency added to the ceiling");
});
