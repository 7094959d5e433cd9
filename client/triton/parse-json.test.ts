import { describe, expect, test } from "vitest";
import { parseRequestJson } from "./parse-json.ts";

describe("JSON of a request", () => {
  const nested = (levels: number, open = "[", close = "]") =>
    Buffer.from(`${open.repeat(levels)}1${close.repeat(levels)}`);

  test.each([
    ["arrays", "[", "]"],
    ["objects", '{"a":', "}"],
    ["arrays and objects", '{"]":[', "]}"],
  ])("rejects deeply nested %s", (_, open, close) => {
    const message = "JSON must be nested at most 64 levels deep, got more";
    expect(() => parseRequestJson(nested(20_000, open, close))).toThrow(message);
    expect(parseRequestJson(nested(32, open, close))).toBeTruthy();
  });

  test("is not nested by brackets in strings", () => {
    const text = `${"[{".repeat(1_000)}\\"[`;
    expect(parseRequestJson(Buffer.from(JSON.stringify([text, [text]])))).toEqual([text, [text]]);
  });

  test("may have many flat arrays", () => {
    const rows = Array.from({ length: 20_000 }, (_, index) => [index]);
    expect(parseRequestJson(Buffer.from(JSON.stringify(rows)))).toEqual(rows);
  });
});
