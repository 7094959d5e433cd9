import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { parseServerRecord } from "./record.ts";

const saved = readFileSync(
  new URL("../records/2026-11-23T15-27-19Z-bench-server.json", import.meta.url),
  "utf8",
);

test("upgrades a record of version 1 to the names of version 2", () => {
  const before = JSON.parse(saved);
  expect(before.schema).toBe(1);
  const { schema, subject, runs } = parseServerRecord(saved, "saved.json");
  expect(schema).toBe(2);
  expect(subject.ceiling).toEqual({
    file: before.subject.limit.file,
    precision: before.subject.limit.form,
    sessionOptions: before.subject.limit.sessionOptions,
  });
  expect(subject.baseline).toEqual(before.subject.peer);
  expect(subject.optimisedModels).toEqual(before.subject.forms);
  expect([...new Set(runs.map((run) => run.subject))].sort()).toEqual([
    "baseline",
    "ceiling",
    "server",
    "server-int8",
  ]);
  expect(runs).toHaveLength(before.runs.length);
});

test("fails on a record of version 1 without a ceiling, naming the field", () => {
  const record = JSON.parse(saved);
  delete record.subject.limit;
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
