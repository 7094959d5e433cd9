import { IncomingMessage } from "node:http";
import { Socket } from "node:net";
import { expect, test } from "vitest";
import { readBody } from "./request-body.ts";

test("reads large concurrent bodies in several iterations of the event loop", async () => {
  const pieces = Array.from({ length: 64 }, (_, index) => Buffer.alloc(64 * 1024, index));
  const expected = Buffer.concat(pieces);
  const bodies = Array.from({ length: 4 }, () => {
    const message = new IncomingMessage(new Socket());
    message.headers["content-length"] = String(expected.length);
    for (const piece of pieces) message.push(piece);
    message.push(null);
    return message;
  });
  let iterations = 0;
  let ended = false;
  const count = () => {
    iterations += 1;
    if (!ended) setImmediate(count);
  };
  setImmediate(count);
  const { signal } = new AbortController();
  const options = { maxBytes: expected.length, onBytes: () => {}, signal };
  const read = await Promise.all(bodies.map((message) => readBody(message, options)));
  ended = true;
  expect(read.every((body) => body.equals(expected))).toBe(true);
  // 4 x 4 MiB, 2 MiB in each
  expect(iterations).toBeGreaterThanOrEqual(6);
});
