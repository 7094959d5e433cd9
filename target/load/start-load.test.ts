import { createServer, type RequestListener } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, onTestFinished, test } from "vitest";
import { startLoad } from "./start-load.ts";
import { listen, requestsTo } from "./test-requests.ts";

const twoClients = { kind: "closed loop", concurrency: 2 } as const;

async function serve(listener: RequestListener): Promise<string> {
  const server = createServer((request, response) => {
    request.resume();
    listener(request, response);
  });
  onTestFinished(() => void server.close());
  return `http://127.0.0.1:${await listen(server)}`;
}

test("stopping a load waits for outstanding requests", async () => {
  const url = await serve((_request, response) => setTimeout(() => response.end("{}"), 150));
  const load = startLoad(requestsTo(url, { headers: { connection: "close" } }), twoClients);
  await sleep(50);
  await load.stop();
  expect(load.samples.map(({ code }) => code)).toEqual(["", ""]);
});

test("a rejecting or unreachable server is reported by its code, without a request storm", async () => {
  const rejecting = await serve((_request, response) => {
    response.statusCode = 503;
    response.end();
  });
  for (const [url, code] of [
    [rejecting, "503"],
    ["http://127.0.0.1:1", "ECONNREFUSED"],
  ] as const) {
    const load = startLoad(requestsTo(url, { headers: { connection: "close" } }), twoClients);
    await sleep(250);
    await load.stop();
    expect(new Set(load.samples.map((sample) => sample.code))).toEqual(new Set([code]));
    expect(load.samples.length).toBeLessThan(20);
  }
});
