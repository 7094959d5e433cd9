import { expect, test } from "vitest";
import { startNullHttpServer } from "../../lab/load/null-server.ts";
import { measureLoadPoint } from "../measure/measure-load-point.ts";
import { confirmedTrial, type Slo } from "../record/slo-search.ts";
import { testBenchRecord } from "../report/test-bench-record.ts";
import { defaultSettings } from "../run/bench-run.ts";
import { testContext, testTarget } from "../run/test-run.ts";
import { searchSlos } from "./run-slo.ts";
import { highestRate } from "./test-deterministic-queue.ts";

const endpoint = { endpoint: "embed-http", payload: "jpeg", serialization: "binary" } as const;
const queue = { serviceMs: 50, servers: 16 };
const capacity = (queue.servers / queue.serviceMs) * 1_000;
/** Trials that other programs may disturb before the figure says nothing. */
const maxInvalid = 2;
/** The server reads only the length of a request. */
const image = {
  bytes: new Uint8Array(1_000),
  contentType: "image/jpeg",
  tensor: new Float32Array(0),
};
const slo: Slo = { percentile: "p99", limitMs: 2 * queue.serviceMs };

test("the confirmed rate of a server with a known capacity is within 5 % of queueing theory", async ({
  skip,
}) => {
  const server = await startNullHttpServer({
    service: { ms: queue.serviceMs, servers: queue.servers },
  });
  try {
    const target = testTarget({
      environment: "null",
      service: "embed",
      endpoint: "embed-http",
      url: server.url,
      payloads: ["jpeg"],
    });
    const record = testBenchRecord({ loadPoints: [] });
    const context = testContext({
      settings: { ...record.settings, ...defaultSettings, windowSeconds: 0.5, durationSeconds: 15 },
      items: [image],
      onEvent: (event) => {
        if (event.kind === "notice") console.log(event.text);
      },
    });
    const load = { kind: "closed loop", concurrency: 2 * queue.servers } as const;
    const saturated = await measureLoadPoint(context, target, endpoint, { batch: 1, load });
    expect(saturated.requestsPerSecond / capacity).toBeGreaterThan(0.95);
    expect(saturated.requestsPerSecond / capacity).toBeLessThan(1.05);
    record.loadPoints.push(saturated);

    const goal = { slo, arrivals: "poisson", seed: 1 } as const;
    await searchSlos(context, record, goal, [{ target, endpoint, batch: 1 }], {});
    const [search] = record.slo ?? [];
    const invalid = search?.trials.filter(({ verdict }) => verdict === "client") ?? [];
    if (invalid.length > maxInvalid) {
      skip(`other programs disturbed the load generator in ${invalid.length} trials`);
    }
    const confirmed = search && confirmedTrial(search);
    const theory = highestRate(queue, 99, slo.limitMs);
    const ratio = (confirmed?.ratePerSecond ?? 0) / theory;
    console.log(
      `theory ${theory.toFixed(1)}, confirmed ${confirmed?.ratePerSecond}, ratio ${ratio.toFixed(3)}`,
    );
    expect(ratio).toBeGreaterThan(0.95);
    expect(ratio).toBeLessThan(1.05);
  } finally {
    await server.close();
  }
});
