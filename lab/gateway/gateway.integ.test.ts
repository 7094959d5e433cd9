import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { compare } from "../rounds/comparison.ts";
import { gatewayComparison } from "./gateway.ts";

const report = mkdtempSync(join(tmpdir(), "clipstack-bench-gateway-"));
afterAll(() => rmSync(report, { recursive: true, force: true }));

test("measures the gateway with every payload format", async () => {
  const { record, results } = await compare(gatewayComparison, {
    ...{ rounds: 1, seconds: 1, only: ["thumbnails"], model: [], baseline: false, report },
    onProgress: () => {},
  });
  expect(record.subject.baseline).toEqual({ reason: "--no-baseline" });
  expect(record.runs.map((run) => run.subject)).toEqual(
    expect.arrayContaining(["gateway-uint8", "gateway-fp32", "gateway-jpeg"]),
  );
  for (const run of record.runs) {
    expect(run.failures).toEqual({});
    expect(run.cpuMsPerImage).toBeGreaterThan(0);
  }
  expect(results.map(({ name }) => name)).toContain("JPEG forwarded, per image");
});
