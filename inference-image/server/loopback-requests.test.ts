import Fastify from "fastify";
import { expect, test } from "vitest";
import { rejectOtherOrigins } from "./loopback-requests.ts";

const app = Fastify();
rejectOtherOrigins(app);
app.setErrorHandler((error: Error & { code: string }, _request, reply) =>
  reply.code(error.code === "forbidden" ? 403 : 500).send(error.message),
);
app.get("/", async () => "ok");

test.each([
  ["127.0.0.1:8002", undefined, 200],
  ["localhost:8002", "http://localhost:8002", 200],
  ["[::1]:8002", "http://127.0.0.1:3000", 200],
  ["rebound.example:8002", undefined, 403],
  ["rebound.example:8002", "http://rebound.example:8002", 403],
  ["127.0.0.1.example", undefined, 403],
  ["127.0.0.1:8002", "https://other.example", 403],
  ["127.0.0.1:8002", "null", 403],
])("Host '%s' and Origin '%s': %s", async (host, origin, status) => {
  const headers = { host, ...(origin !== undefined && { origin }) };
  const { statusCode, body } = await app.inject({ url: "/", headers });
  expect([statusCode, body]).toEqual([status, expect.stringMatching(/^ok$|^the header \w+ must/)]);
});
