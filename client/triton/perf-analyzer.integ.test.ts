import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { defaultModel } from "../../contract/models/index.ts";
import { tritonModelName } from "../../contract/triton-models.ts";
import { fullTestRepository, type TestRepository } from "../../emulator/test-repository.ts";
import { type RunningTritonEmulator, startTritonEmulator } from "../../emulator/triton-emulator.ts";
import { realTritonMissing, realTritonProgram } from "./test-real-triton.ts";

const fp32Name = tritonModelName(defaultModel, "fp32");
const u8ModelName = tritonModelName(defaultModel, "u8");

/** NVIDIA's load generator from PyPI, unmodified, against this project's server. */

const run = promisify(execFile);

interface Row {
  readonly concurrency: number;
  readonly perSecond: number;
  /** Means in microseconds, from the server's statistics. */
  readonly queueUs: number;
  readonly inferUs: number;
  /** Measured by the client. */
  readonly p50Us: number;
}

describe.skipIf(realTritonMissing !== "")(
  `perf_analyzer from PyPI${realTritonMissing === "" ? "" : ` (skipped: ${realTritonMissing})`}`,
  () => {
    let repository: TestRepository;
    let server: RunningTritonEmulator;
    let folder: string;
    beforeAll(async () => {
      folder = await mkdtemp(join(tmpdir(), "clipstack-perf-"));
      repository = await fullTestRepository();
      server = await startTritonEmulator(repository.flags(), { log: () => {} });
    });
    afterAll(async () => {
      await server?.stop();
      await repository?.remove();
      if (folder !== undefined) await rm(folder, { recursive: true });
    });

    test.each([
      { protocol: "http", model: fp32Name },
      { protocol: "grpc", model: u8ModelName },
    ] as const)("measures $model without an error over $protocol", async ({ protocol, model }) => {
      const levels = [1, 8];
      const before = await inferences(model);
      const report = join(folder, `${protocol}-${model}.csv`);
      const { stdout } = await run(
        realTritonProgram("perf_analyzer"),
        [
          ...["-m", model, "-i", protocol, "-u", `127.0.0.1:${server.ports[protocol]}`],
          ...["--concurrency-range", "1:8:7", "-b", "1", "-f", report],
          // a bounded number of requests instead of a stable result, because only the protocol is tested
          ...["--measurement-mode", "count_windows", "--measurement-request-count", "30"],
          ...["--max-trials", "3", "--stability-percentage", "999"],
        ],
        { timeout: 120_000 },
      );
      expect(stdout).not.toMatch(/error|failed/i);
      const rows = readReport(await readFile(report, "utf8"));
      console.table(rows);
      expect(rows.map(({ concurrency }) => concurrency)).toEqual(levels);
      for (const { perSecond, inferUs, p50Us } of rows) {
        expect(perSecond).toBeGreaterThan(0);
        // computed from the server's statistics
        expect(inferUs).toBeGreaterThan(0);
        expect(p50Us).toBeGreaterThan(0);
      }
      const after = await inferences(model);
      expect(after.success - before.success).toBeGreaterThanOrEqual(30 * levels.length);
      expect(after.fail - before.fail).toBe(0);
    });

    async function inferences(model: string): Promise<{ success: number; fail: number }> {
      const response = await fetch(
        `http://127.0.0.1:${server.ports.http}/v2/models/${model}/stats`,
      );
      const { model_stats: stats } = (await response.json()) as {
        model_stats: [{ inference_stats: Record<"success" | "fail", { count: number }> }];
      };
      const { success, fail } = stats[0].inference_stats;
      return { success: success.count, fail: fail.count };
    }
  },
);

/** Parses the output of `perf_analyzer -f`. */
function readReport(csv: string): readonly Row[] {
  const [head = "", ...lines] = csv.trim().split("\n");
  const columns = head.split(",");
  return lines
    .map((line) => {
      const values = line.split(",");
      const value = (name: string) => Number(values[columns.indexOf(name)]);
      return {
        concurrency: value("Concurrency"),
        perSecond: value("Inferences/Second"),
        queueUs: value("Server Queue"),
        inferUs: value("Server Compute Infer"),
        p50Us: value("p50 latency"),
      };
    })
    .sort((a, b) => a.concurrency - b.concurrency);
}
