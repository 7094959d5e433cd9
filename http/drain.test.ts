import { once } from "node:events";
import { type AddressInfo, connect, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import Fastify, { type FastifyInstance } from "fastify";
import { afterEach, beforeEach, expect, test } from "vitest";
import { drainHttp, trackRequests } from "./drain.ts";

let app: FastifyInstance;
let client: Socket;

beforeEach(async () => {
  app = Fastify({ forceCloseConnections: "idle", pluginTimeout: 0 });
  const requests = trackRequests(app);
  app.addHook("preClose", () => drainHttp(app, requests, 2_000));
  // larger than the buffers of the kernel
  app.get("/large", async () => Buffer.alloc(50_000_000));
  app.get("/slow", async () => {
    await sleep(3_000);
    return "done";
  });
  await app.listen({ host: "127.0.0.1", port: 0 });
  client = connect((app.server.address() as AddressInfo).port, "127.0.0.1").pause();
  client.on("error", () => {});
});
afterEach(async () => {
  client.destroy();
  await app.close();
});

async function send(path: string): Promise<void> {
  const received = once(app.server, "request");
  client.write(`GET ${path} HTTP/1.1\r\nhost: a\r\n\r\n`);
  await received;
  await sleep(200);
}

test("cuts a response that its client does not read at the end of the grace period", async () => {
  await send("/large");
  const startedAt = performance.now();
  await app.close();
  expect(performance.now() - startedAt).toBeGreaterThan(900);
  await once(client.resume(), "close");
  expect(client.bytesRead).toBeLessThan(50_000_000);
});

test("does not cut a request that has no response yet", async () => {
  await send("/slow");
  await app.close();
  const [answer] = await once(client.resume(), "data");
  expect(String(answer)).toContain("done");
});
