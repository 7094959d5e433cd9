import { createServer, type Server } from "node:https";
import type { AddressInfo } from "node:net";
import { text } from "node:stream/consumers";
import { afterAll, beforeAll, expect, test } from "vitest";
import { testCertificate } from "../../http/test-certificate.ts";
import { type Forward, withoutTls } from "./local-forward.ts";

const name = "clipstack-embed.clipstack.svc";
const { cert, key } = testCertificate(name);
let server: Server;
let encrypted: Forward;

beforeAll(async () => {
  server = createServer({ cert, key }, async (request, response) =>
    response.end(`${request.method} ${await text(request)}`),
  );
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  encrypted = { port: (server.address() as AddressInfo).port, close: () => {} };
});
afterAll(() => void server.close());

const open = (servername: string, ca: string[]) =>
  withoutTls(encrypted, servername, ca, AbortSignal.timeout(10_000));

test("sends plain requests to a server with TLS, whose certificate is verified", async () => {
  const { port, close } = await open(name, [cert]);
  const body = "a".repeat(1_000_000);
  for (let request = 0; request < 3; request += 1) {
    const response = await fetch(`http://127.0.0.1:${port}`, { method: "POST", body });
    expect(await response.text()).toBe(`POST ${body}`);
  }
  close();
});

test.each([
  ["another name", "other.clipstack.svc", [cert], /altnames/],
  ["an unknown authority", name, [testCertificate(name).cert], /self-signed certificate/],
])("rejects a certificate of %s", async (_, servername, ca, message) => {
  await expect(open(servername, ca)).rejects.toThrow(message);
});
