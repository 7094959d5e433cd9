import { once } from "node:events";
import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, onTestFinished, test } from "vitest";
import { type HttpClient, openHttpClient } from "./http-client.ts";
import { startLoad } from "./load.ts";

const images = [{ bytes: new Uint8Array([1]), contentType: "image/jpeg" }];

async function serve(
  listener: RequestListener,
): Promise<{ url: string; connections: Set<number> }> {
  const connections = new Set<number>();
  const server = createServer((request, response) => {
    connections.add(request.socket.remotePort ?? 0);
    request.resume();
    listener(request, response);
  }).listen(0, "127.0.0.1");
  onTestFinished(() => void server.close());
  await once(server, "listening");
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, connections };
}

function client(): HttpClient {
  const http = openHttpClient(64, undefined, { oneRequestEach: true });
  onTestFinished(() => http.close());
  return http;
}

test("a fixed rate goes on while answers are missing, and each request has a connection of its own", async () => {
  const { url, connections } = await serve((_request, response) => {
    setTimeout(() => response.end("{}"), 200);
  });
  const load = startLoad(client(), url, images, { kind: "fixed rate", ratePerSecond: 50 });
  await sleep(400);
  await load.stop();
  expect(load.samples.length).toBeGreaterThan(5);
  expect(load.samples.every(({ ok }) => ok)).toBe(true);
  expect(connections.size).toBe(load.samples.length);
});

test("requests that were sent are waited for when the load stops", async () => {
  let answered = 0;
  const { url } = await serve((_request, response) => {
    setTimeout(() => response.end("{}", () => answered++), 150);
  });
  const load = startLoad(client(), url, images, { kind: "closed loop", concurrency: 3 });
  await sleep(50);
  await load.stop();
  expect(load.samples).toHaveLength(3);
  expect(answered).toBe(3);
});

test("what fails is a sample with its code", async () => {
  const { url } = await serve((_request, response) => {
    response.statusCode = 503;
    response.end();
  });
  const load = startLoad(client(), url, images, { kind: "closed loop", concurrency: 1 });
  await sleep(50);
  await load.stop();
  expect(load.samples[0]).toMatchObject({ ok: false, code: "503" });
});

test("nobody there is a failure, and no storm of requests", async () => {
  const load = startLoad(client(), "http://127.0.0.1:1", images, {
    kind: "closed loop",
    concurrency: 2,
  });
  await sleep(250);
  await load.stop();
  expect(load.samples.every(({ ok }) => !ok)).toBe(true);
  expect(load.samples.length).toBeLessThan(20);
});

test("a request that hangs has failed when the wait for answers is cut", async () => {
  const { url } = await serve(() => {});
  const load = startLoad(client(), url, images, { kind: "closed loop", concurrency: 2 });
  await sleep(50);
  await load.stop(AbortSignal.timeout(50));
  expect(load.samples.map(({ ok }) => ok)).toEqual([false, false]);
});
