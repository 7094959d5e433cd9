import { afterEach, expect, test } from "vitest";
import { realTritonMissing, realTritonProgram } from "../../client/triton/test-real-triton.ts";
import { type AgreeOptions, agreeTable, compareWithBaselines, medianRatio } from "./agree.ts";
import { startNullHttpServer } from "./null-server.ts";
import { hey, heyMissing } from "./test-hey.ts";
import { startSleepingTriton } from "./test-sleeping-triton.ts";

/** Smoke test with wide tolerances; `npm run lab -- generator` compares precisely. */

const delayMs = 30;
const options: AgreeOptions = {
  image: {
    bytes: new Uint8Array(10_000),
    contentType: "image/jpeg",
    tensor: new Float32Array(3 * 224 * 224),
  },
  rounds: 1,
  seconds: 3,
  concurrency: 2,
  signal: new AbortController().signal,
  log: () => {},
};

const stops: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const stop of stops.splice(0)) await stop();
});

test.skipIf(realTritonMissing !== "")(
  `clipstack and perf_analyzer measure similar figures on a real Triton server${realTritonMissing === "" ? "" : ` (not here: ${realTritonMissing})`}`,
  async () => {
    const triton = await startSleepingTriton(delayMs);
    stops.push(() => triton.stop());
    const rows = await compareWithBaselines(
      {
        triton: {
          http: triton.url,
          grpc: triton.grpcTarget,
          perfAnalyzer: realTritonProgram("perf_analyzer"),
        },
      },
      options,
    );
    console.log(agreeTable(rows));
    expect(rows.map(({ endpoint, baseline }) => `${endpoint} ${baseline}`)).toEqual([
      "onnx-http perf_analyzer",
      "onnx-grpc perf_analyzer",
    ]);
    for (const row of rows) expectSimilar(row);
  },
);

test.skipIf(heyMissing !== "")(
  `clipstack and hey measure similar figures${heyMissing === "" ? "" : ` (not here: ${heyMissing})`}`,
  async () => {
    const server = await startNullHttpServer({ delayMs });
    stops.push(() => server.close());
    const rows = await compareWithBaselines({ embed: { http: server.url, hey } }, options);
    console.log(agreeTable(rows));
    expect(rows).toHaveLength(1);
    for (const row of rows) expectSimilar(row);
  },
);

test.skipIf(heyMissing !== "")(
  `the maximum request rate is not much lower than that of hey${heyMissing === "" ? "" : ` (not here: ${heyMissing})`}`,
  async () => {
    const server = await startNullHttpServer();
    stops.push(() => server.close());
    const [row] = await compareWithBaselines(
      { embed: { http: server.url, hey } },
      { ...options, concurrency: 8, rounds: 2, seconds: 1 },
    );
    // 0.5 is required on an idle machine (`npm run lab -- generator --null`); a test must pass on a busy one
    expect(row && medianRatio(row, "requestsPerSecond")).toBeGreaterThan(0.25);
  },
);

function expectSimilar(row: Parameters<typeof medianRatio>[0]): void {
  for (const figure of ["requestsPerSecond", "p50Ms"] as const) {
    expect(medianRatio(row, figure)).toBeGreaterThan(0.6);
    expect(medianRatio(row, figure)).toBeLessThan(1.6);
  }
}
