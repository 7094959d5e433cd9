import { expect, test } from "vitest";
import { testLoadPoint } from "../report/test-bench-record.ts";
import { bottleneckOf, orderFor } from "./bottleneck.ts";

const host = { cores: 2, maxBatch: 32 };
const point = (decodeMs: number, inferMs: number) =>
  testLoadPoint(
    {},
    {
      load: { kind: "closed loop", concurrency: 16 },
      server: { source: "embed", requests: 100, averageBatch: 8, decodeMs, inferMs },
    },
  );
const variables = ["embed.server.modelInstances", "embed.server.preprocessThreads"].map(
  (setting) => ({ setting, current: 1, values: [2] }),
);

test.each([
  // 2 cores decode 200 images per second; the model computes 8 in 16 ms
  [10, 16, "decode", ["embed.server.preprocessThreads", "embed.server.modelInstances"]],
  [1, 80, "gpu", ["embed.server.modelInstances", "embed.server.preprocessThreads"]],
] as const)(
  "with %d ms of decoding and %d ms per batch, %s is first",
  (decodeMs, inferMs, station, order) => {
    const bottleneck = bottleneckOf(point(decodeMs, inferMs), host);
    expect(bottleneck).toBe(station);
    expect(orderFor(bottleneck, variables).map(({ setting }) => setting)).toEqual(order);
  },
);
