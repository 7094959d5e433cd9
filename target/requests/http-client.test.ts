import { once } from "node:events";
import { createServer, type ServerResponse } from "node:http";
import { createServer as createTlsServer } from "node:https";
import type { AddressInfo } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { testCertificate } from "../../http/test-certificate.ts";
import { openHttpClient, reason } from "./http-client.ts";

/** Requests a server that answers with `respond`; returns why the request failed. */
async function failureOf(
  respond: (response: ServerResponse) => void,
  timeoutMs = 5_000,
  scheme = "http",
): Promise<string> {
  const server = createServer((_request, response) => respond(response));
  await once(server.listen(0, "127.0.0.1"), "listening");
  const http = openHttpClient();
  onTestFinished(async () => {
    server.closeAllConnections();
    server.close();
    await http.close();
  });
  const { port } = server.address() as AddressInfo;
  return http.send(`${scheme}://127.0.0.1:${port}/`, { timeoutMs }).then(() => "none", reason);
}

test("a response that never ends fails in time, though bytes keep arriving", async () => {
  const failure = await failureOf((response) => {
    const timer = setInterval(() => response.write(" "), 20);
    response.once("close", () => clearInterval(timer));
  }, 300);
  expect(failure).toBe("no response in time");
});

test("a response that is too large fails instead of filling the memory", async () => {
  const block = Buffer.alloc(4 * 2 ** 20);
  const failure = await failureOf((response) => {
    const fill = () => {
      while (response.write(block));
      response.once("drain", fill);
    };
    fill();
  });
  expect(failure).toBe("response larger than 128 MiB");
});

test("an address without TLS is named as such", async () => {
  expect(await failureOf(() => {}, 5_000, "https")).toBe("the server does not speak TLS");
});

test("a certificate of an unknown authority is named with its remedy", async () => {
  const server = createTlsServer(testCertificate());
  await once(server.listen(0, "127.0.0.1"), "listening");
  const http = openHttpClient();
  const { port } = server.address() as AddressInfo;
  expect(await http.send(`https://127.0.0.1:${port}/`).catch(reason)).toBe(
    "no trusted authority signed the certificate (NODE_EXTRA_CA_CERTS adds one)",
  );
  await http.close();
  server.close();
});
