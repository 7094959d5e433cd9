import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { parseServerRecord } from "./record.ts";

const saved = readFileSync(
  new URL("../records/2026-11-23T15-27-19Z-bench-server.json", import.meta.url),
  "utf8",
);

test("fails on a record without a ceiling, naming the field", () => {
  const record = JSON.parse(saved);
  delete record.subject.ceiling;
  expect(() => parseServerRecord(JSON.stringify(record), "saved.json")).toThrow(
    /^saved\.json: subject\.ceiling: .*, got nothing$/,
  );
});

test("fails on a record of an unknown version", () => {
  const record = { ...JSON.parse(saved), schema: 3 };
  expect(() => parseServerRecord(JSON.stringify(record), "saved.json")).toThrow(
    "saved.json: schema must be 2, got 3",
  );
});
