import { afterEach, expect, test } from "vitest";
import type { LoadShape } from "../src/bench-record.ts";
import { type MeasureOptions, measureLoad } from "./measure-load.ts";
import { type NullServer, startNullGrpcServer, startNullHttpServer } from "./null-server.ts";
import type { PreparedRequests } from "./prepared-requests.ts";

const servers: NullServer[] = [];
afterEach(async () => {
  await Promise.all(servers.splice(0).map((server) => server.close()));
});

const start = { http: startNullHttpServer, grpc: startNullGrpcServer };

async function serverOf(
  transport: "http" | "grpc",
  options: Parameters<typeof startNullHttpServer>[0] = {},
): Promise<NullServer> {
  const server = await start[transport](options);
  servers.push(server);
  return server;
}

function requestsTo(url: string, transport: "http" | "grpc"): PreparedRequests {
  return {
    transport,
    url,
    path: "/any",
    headers: {},
    requests: [100, 200].map((size) => ({ headers: {}, body: new Uint8Array(size) })),
    imagesPerRequest: 4,
  };
}

const closedLoop: LoadShape = { kind: "closed loop", concurrency: 2 };

function optionsOf(options: Partial<MeasureOptions> = {}): MeasureOptions {
  return {
    load: closedLoop,
    windowSeconds: 0.2,
    stableWindows: 3,
    // what is tested is not whether this machine is quiet
    tolerance: 100,
    maxWindows: 10,
    durationSeconds: 20,
    workers: 1,
    signal: new AbortController().signal,
    ...options,
  };
}

test.each(["http", "grpc"] as const)(
  "a closed loop over %s counts every answer of its windows",
  async (transport) => {
    const server = await serverOf(transport, { delayMs: 5, answerBytes: 300 });
    const measured = await measureLoad(requestsTo(server.url, transport), optionsOf());
    expect(measured.stability.verdict).toBe("stable");
    expect(measured.measuredWindows).toBe(3);
    expect(measured.errorsInAll).toEqual({});
    expect(measured.requestBytes).toBe(150);
    expect(measured.responseBytes).toBe(300);
    expect(measured.samples).toBeGreaterThan(10);
    expect(measured.samples).toBe(measured.histogram.reduce((sum, [, count]) => sum + count, 0));
    expect(measured.imagesPerSecond).toBeCloseTo(4 * measured.requestsPerSecond);
    expect(measured.latencyMs?.p50).toBeGreaterThanOrEqual(4);
  },
);
