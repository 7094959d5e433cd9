import { describe, expect, test } from "vitest";
import type { BenchRecord } from "../record/bench-record.ts";
import { testLoadPoint, testSimulationRecord } from "./test-bench-record.ts";
import { verdictOf } from "./verdict.ts";

describe("a local simulation", () => {
  const simulated = (changes: Partial<BenchRecord>) => ({ ...testSimulationRecord(), ...changes });
  const { parity } = testSimulationRecord();
  const five = parity.filter(({ payload, serialization, endpoint }) =>
    endpoint === "embed-http" ? true : payload === "fp32" && serialization === "binary",
  );
  const loadPoints = five.map(({ endpoint }) => testLoadPoint({ endpoint }));

  test("has no recommendation and no conclusion about performance", () => {
    const found = verdictOf(simulated({ parity: five, loadPoints }));
    expect(found.headline).toBe(
      "Works at all 5 load points of 5 endpoints; no performance conclusion",
    );
    expect(found.choices).toEqual([]);
  });

  test("names the endpoints that differ, fail or have no load point", () => {
    const [differs, failing, ...others] = loadPoints;
    const found = simulated({
      parity: five.map((result, i) => ({ ...result, passed: i !== 0 })),
      loadPoints: [{ ...failing!, errorsWithWarmup: { "503": 1 } }, ...others.slice(0, 2)],
      failures: ["one", "two"],
      passed: false,
    });
    expect(verdictOf(found).headline).toBe(
      `Works at 2 of 3 load points, not at \`${failing!.endpoint}\` (1 image per request, 1 client); the embeddings of \`${differs!.endpoint}\` differ; \`trt-grpc\` was not measured; no performance conclusion`,
    );
  });

  test("counts load points: one load of an endpoint can fail", () => {
    const [one] = loadPoints;
    const points = [1, 2, 4, 8, 16, 32].map((imagesPerRequest) => ({
      ...one!,
      imagesPerRequest,
      ...(imagesPerRequest > 1 && { errorsWithWarmup: { "429": 1 } }),
    }));
    const found = simulated({ parity: five.slice(0, 1), loadPoints: points });
    expect(verdictOf(found).headline).toMatch(
      /^Works at 1 of 6 load points, not at (`embed-http` \([^)]*\), ){2}.*\) and 2 others; no perf/,
    );
  });

  test("counts failures of no endpoint", () => {
    const found = simulated({
      ...{ parity: five.slice(0, 1), loadPoints: loadPoints.slice(0, 1) },
      ...{ failures: ["one"], passed: false },
    });
    expect(verdictOf(found).headline).toBe(
      "Works at the one load point of `embed-http`; 1 failure; no performance conclusion",
    );
  });
});
