import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { bulkEnv, readBulkEnv } from "./settings.ts";

test("the README describes every variable of a worker with its default", () => {
  const readme = readFileSync(new URL("../README.md", import.meta.url), "utf8");
  for (const [name, schema] of Object.entries(bulkEnv.shape)) {
    const { success, data = "" } = schema.safeParse(undefined);
    const value = !success ? "required" : data === "" ? "" : `\`${data}\``;
    const row = `| \`${name}\` | ${value} | ${schema.description} |`;
    expect(readme).toContain(name.includes("BULK") || name.startsWith("JOB") ? row : `\`${name}\``);
  }
});

test("an empty variable counts as unset", () => {
  expect(readBulkEnv({ BULK_JOB: "job", BULK_WORKERS: "" }).BULK_WORKERS).toBe(1);
});

test("fails with one line per wrong variable", () => {
  const variables = { BULK_MEMORY_MIB: "8", BULK_WORKERS: "2", JOB_COMPLETION_INDEX: "2" };
  expect(() => readBulkEnv(variables)).toThrow(
    "BULK_JOB is required\nBULK_MEMORY_MIB: Too small: expected number to be >=64, got '8'",
  );
  expect(() => readBulkEnv({ ...variables, BULK_JOB: "job", BULK_MEMORY_MIB: "64" })).toThrow(
    "JOB_COMPLETION_INDEX: must be less than BULK_WORKERS, got '2'",
  );
  expect(() => readBulkEnv({ BULK_JOB: "job", BACKEND: "triton" })).toThrow(
    "TRITON_GRPC_URLS must be one host:port when BACKEND is triton",
  );
});
