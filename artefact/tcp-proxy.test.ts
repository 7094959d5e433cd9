import { createServer, type Server } from "node:http";
import { afterEach, expect, test } from "vitest";
import { openHttpClient } from "../target/requests/http-client.ts";
import { freePorts, isPortInUse } from "./free-ports.ts";
import { startTcpProxy } from "./tcp-proxy.ts";

const closers: (() => Promise<unknown> | unknown)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

/** Server that responds with its name. */
async function named(name: string): Promise<number> {
  const server: Server = createServer((_request, response) => response.end(name));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  closers.push(() => new Promise((resolve) => server.close(resolve)));
  const address = server.address();
  return typeof address === "object" && address !== null ? address.port : 0;
}

async function proxied(backends: readonly number[]) {
  const proxy = await startTcpProxy(0, backends);
  closers.push(() => proxy.close());
  return proxy.port;
}

/** One request on a new connection. */
async function ask(port: number): Promise<string> {
  const http = openHttpClient();
  try {
    return (await http.send(`http://127.0.0.1:${port}/`)).body.toString("utf8");
  } finally {
    await http.close();
  }
}

test("connections are distributed round-robin", async () => {
  const port = await proxied([await named("a"), await named("b")]);
  expect([await ask(port), await ask(port), await ask(port), await ask(port)]).toEqual([
    "a",
    "b",
    "a",
    "b",
  ]);
});

test("a backend that refuses connections is skipped", async () => {
  const [dead = 0] = await freePorts(1);
  const port = await proxied([dead, await named("b")]);
  expect([await ask(port), await ask(port)]).toEqual(["b", "b"]);
});

test("a connection that every backend refuses is closed", async () => {
  const port = await proxied(await freePorts(2));
  await expect(ask(port)).rejects.toThrow();
});

test("a port is in use while a program listens on it, and free afterwards", async () => {
  const proxy = await startTcpProxy(0, []);
  expect(await isPortInUse(proxy.port)).toBe(true);
  await proxy.close();
  expect(await isPortInUse(proxy.port)).toBe(false);
});

test("free ports are distinct", async () => {
  const ports = await freePorts(20);
  expect(new Set(ports).size).toBe(20);
});
