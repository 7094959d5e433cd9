import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { benchGateway } from "./bench-gateway.ts";
import { parseGatewayRecord } from "./record.ts";

const reports = mkdtempSync(join(tmpdir(), "clipstack-bench-gateway-"));
afterAll(() => rmSync(reports, { recursive: true, force: true }));

test("measures the gateway with every payload format and saves a valid record", async () => {
  const { saved } = await benchGateway({
    rounds: 1,
    seconds: 1,
    only: ["thumbnails"],
    baseline: false,
    reports,
    onProgress: () => {},
  });
  const { runs, subject } = parseGatewayRecord(readFileSync(saved.json, "utf8"), saved.json);
  expect(subject.baseline).toEqual({ reason: "--no-baseline" });
  expect(runs.map((run) => run.subject)).toEqual(
    expect.arrayContaining(["gateway-uint8", "gateway-fp32", "gateway-jpeg"]),
  );
  for (const run of runs) {
    expect(run.failures).toEqual({});
    expect(run.cpuMsPerImage).toBeGreaterThan(0);
  }
});
