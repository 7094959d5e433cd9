import { afterAll, expect, test } from "vitest";
import { startLoad } from "../../target/load/start-load.ts";
import type { PreparedRequests } from "../../target/requests/prepared-requests.ts";
import { type NullServer, startNullGrpcServer, startNullHttpServer } from "./null-server.ts";

const servers: NullServer[] = [];
afterAll(() => Promise.all(servers.map((server) => server.close())));

/** Latencies of the first responses to eight clients, ascending. */
async function firstLatencies(
  transport: "http" | "grpc",
  options: { ms: number; servers: number },
) {
  const start = transport === "http" ? startNullHttpServer : startNullGrpcServer;
  const server = await start({ service: options });
  servers.push(server);
  const requests: PreparedRequests = {
    transport,
    url: server.url,
    path: "/any",
    headers: {},
    requests: [{ headers: {}, body: new Uint8Array(10) }],
    imagesPerRequest: 1,
  };
  const load = startLoad(requests, { kind: "closed loop", concurrency: 8 });
  await expect.poll(() => load.samples.length).toBeGreaterThanOrEqual(8);
  const samples = [...load.samples];
  await load.stop();
  return samples.slice(0, 8).map(({ doneMs, dueMs }) => doneMs - dueMs);
}

/** Timers have a resolution of a millisecond. */
const early = 2;

test.each(["http", "grpc"] as const)(
  "a queue over %s serves as many requests at once as it has servers, in order of arrival",
  async (transport) => {
    const latencies = await firstLatencies(transport, { ms: 100, servers: 2 });
    for (const [i, latency] of latencies.entries()) {
      const services = Math.floor(i / 2) + 1;
      expect(latency, `response ${i + 1}`).toBeGreaterThan(100 * services - early);
    }
  },
);
