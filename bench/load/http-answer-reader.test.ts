import fc from "fast-check";
import { expect, test } from "vitest";
import { HttpAnswerReader } from "./http-answer-reader.ts";

/** Reads an answer that comes in these parts. */
function readParts(parts: readonly string[]) {
  const reader = new HttpAnswerReader();
  const states = parts.map((part) => reader.read(Buffer.from(part, "latin1")));
  return {
    state: states.at(-1),
    status: reader.status,
    bytes: reader.bodyBytes,
    keepAlive: reader.keepAlive,
  };
}

const withLength = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
const inChunks =
  "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3;x=1\r\nabc\r\na\r\n0123456789\r\n0\r\nt: 1\r\n\r\n";

test("an answer with a length is whole with its last byte", () => {
  expect(readParts([withLength])).toEqual({
    state: "done",
    status: 200,
    bytes: 5,
    keepAlive: true,
  });
  expect(readParts([withLength.slice(0, -1)])).toMatchObject({ state: "more" });
});

test.each([
  ["a length", withLength, 5],
  ["chunks", inChunks, 13],
])("an answer with %s is read the same however it is divided", (_what, answer, bytes) => {
  fc.assert(
    fc.property(fc.array(fc.integer({ min: 1, max: answer.length - 1 })), (cuts) => {
      const ends = [0, ...[...new Set(cuts)].sort((a, b) => a - b), answer.length];
      const parts = ends.slice(1).map((end, i) => answer.slice(ends[i], end));
      expect(readParts(parts)).toEqual({ state: "done", status: 200, bytes, keepAlive: true });
    }),
  );
});

test("a tab before a length, or before a word, is a space", () => {
  const answer = withLength.replace(": ", ":\t").replace("\r\n", "\r\nConnection:\tclose\r\n");
  expect(readParts([answer])).toMatchObject({ state: "done", bytes: 5, keepAlive: false });
});

test("100 Continue is not the answer", () => {
  expect(readParts([`HTTP/1.1 100 Continue\r\n\r\n${withLength}`])).toMatchObject({
    state: "done",
    status: 200,
    bytes: 5,
  });
});

test("a connection that the server wants closed is not used again", () => {
  const answer = withLength.replace("\r\n", "\r\nConnection: close\r\n");
  expect(readParts([answer]).keepAlive).toBe(false);
  expect(readParts([withLength.replace("1.1", "1.0")]).keepAlive).toBe(false);
});

test("an answer without a length ends with its connection", () => {
  const reader = new HttpAnswerReader();
  expect(reader.read(Buffer.from("HTTP/1.1 200 OK\r\n\r\nhello"))).toBe("more");
  expect(reader.endsWithConnection).toBe(true);
  expect(reader.bodyBytes).toBe(5);
});

test.each([
  ["what is not HTTP", "SSH-2.0-OpenSSH_9.2\r\n\r\n"],
  ["more than the answer", `${withLength}HTTP/1.1 200 OK\r\n`],
  ["a chunk that is longer than it says", inChunks.replace("abc", "abcd")],
  ["a chunk whose size is no number", inChunks.replace("3;x=1", "3x")],
  ["a head whose lines end without a carriage return", withLength.replaceAll("\r", "")],
  ["a chunk without a size", inChunks.replace("3;x=1", "x")],
  ["a head without an end", `HTTP/1.1 200 OK\r\nx: ${"y".repeat(70_000)}`],
])("%s is refused", (_what, answer) => {
  expect(readParts([answer]).state).toBe("broken");
});
