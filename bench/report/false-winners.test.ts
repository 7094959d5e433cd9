import { expect, test } from "vitest";
import { normals, simulatedRounds } from "../stats/test-rounds.ts";
import { testBenchRecord, testLoadPoint } from "./test-bench-record.ts";
import { verdictOf } from "./verdict.ts";

const names = ["embed-http", "onnx-http", "onnx-grpc", "trt-http", "trt-grpc"] as const;
const loads = [1, 4].flatMap((concurrency) =>
  [1, 8].map((batch) => ({ batch, load: { kind: "closed loop", concurrency } }) as const),
);

const templates = loads.map(({ batch, load }) => testLoadPoint({ batch, load }));
const empty = testBenchRecord({ loadPoints: [], studies: [] });

/** Record of endpoints that are all the same server, but for one that takes `slower` times as long. */
function identicalEndpoints(seed: number, count: number, between: number, slower = 1) {
  const normal = normals(seed);
  const loadPoints = names.slice(0, count).flatMap((endpoint, i) =>
    templates.map((template, j) => {
      const point = i === 0 && slower !== 1 ? testLoadPoint({ ...loads[j]!, slower }) : template;
      const noise = { between, within: 0.03 };
      return simulatedRounds({ ...point, endpoint }, 5, noise, normal);
    }),
  );
  return { ...empty, loadPoints };
}

/** Returns whether a report calls any endpoint worse than another in latency or throughput. */
function hasWinner(record: ReturnType<typeof identicalEndpoints>, count: number): boolean {
  return verdictOf(record)
    .choices.filter(({ goal }) => goal !== "cost")
    .some(({ ties }) => ties.length < count - 1);
}

test.each([
  [2, 0],
  [2, 0.05],
  [5, 0.02],
  [5, 0.1],
])(
  "at most 7 % of 200 A/A records of %i identical endpoints with a noise of %d between rounds have a winner",
  (count, between) => {
    const records = Array.from({ length: 200 }, (_, i) =>
      identicalEndpoints(10_000 * count + 1_000 * between + i, count, between),
    );
    const winners = records.filter((record) => hasWinner(record, count)).length;
    expect(winners / records.length).toBeLessThanOrEqual(0.07);
  },
);

test("an endpoint that takes 1.5 times as long is found in nearly all records", () => {
  const found = Array.from({ length: 50 }, (_, i) => identicalEndpoints(i, 5, 0.03, 1.5)).filter(
    (record) =>
      verdictOf(record)
        .choices.slice(0, 2)
        .every(({ ties }) => !ties.includes("embed-http")),
  ).length;
  expect(found).toBeGreaterThanOrEqual(48);
});
