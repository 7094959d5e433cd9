import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { figureInterval } from "../stats/intervals.ts";
import { parseBenchRecord } from "./bench-record.ts";
import { parseRecord } from "./record.ts";
import { testRecord } from "./test-record.ts";

/** One load point of the example report of 2026-11-22, saved with schema 1. */
const file = fileURLToPath(new URL("./test-record-schema-1.json", import.meta.url));
const old = JSON.parse(readFileSync(file, "utf8"));

test("a record of schema 1 is upgraded", () => {
  const record = parseBenchRecord(JSON.stringify(old), "run.json");
  expect(record.schema).toBe(3);
  expect(record.subject.target).toBe("simulation");
  expect(record.subject.environments[0]?.services[1]?.backend).toBe("onnxruntime");
  expect(record.settings.endpoints).toEqual(old.settings.paths);
  expect(record.loadPoints).toHaveLength(old.cells.length);
  expect(record.loadPoints[0]).toMatchObject({ endpoint: "embed-http", payload: "jpeg" });
});

test("a load point of schema 1 or 2 becomes one round of its measured windows", () => {
  const [original] = old.cells;
  const discarded = { ...original.windows[0], imagesPerSecond: 1 };
  const cell = { ...original, windows: [discarded, ...original.windows] };
  const [point] = parseBenchRecord(
    JSON.stringify({ ...old, cells: [cell] }),
    "run.json",
  ).loadPoints;
  expect(point?.rounds).toHaveLength(1);
  expect(point?.rounds[0]).toMatchObject({
    ...{ round: 1, outcome: "complete", warmup: cell.warmup, latencyMs: cell.latencyMs },
    windows: original.windows,
  });
  expect(point?.imagesPerSecond).toBe(cell.imagesPerSecond);
  // one round has no interval
  expect(figureInterval(point!, "throughput")).toBeUndefined();
});

test.each([
  ["stable", "stable", "complete"],
  ["unstable", "drifting", "complete"],
  ["short", "short", "short"],
  ["interrupted", "interrupted", "interrupted"],
])("a load point that was %s is %s", (before, verdict, outcome) => {
  const cells = [{ ...old.cells[0], stability: { verdict: before, tolerance: 0.1 } }];
  const [point] = parseBenchRecord(JSON.stringify({ ...old, cells }), "run.json").loadPoints;
  expect(point).toMatchObject({ stability: { verdict }, rounds: [{ outcome }] });
});

test("a record of a later version is rejected by its number", () => {
  expect(() => parseBenchRecord(JSON.stringify({ ...old, schema: 4 }), "run.json")).toThrow(
    "run.json: schema must be 3, got 4",
  );
});

test("names of load points and endpoints follow the payload format", () => {
  const [cell] = old.cells;
  const pixels = { ...cell, id: "onnx-http_u8 b1 c1", path: "onnx-http", payload: "u8" };
  const settings = { ...old.settings, paths: ["onnx-http_u8", "onnx-grpc_jpeg"] };

  const text = JSON.stringify({ ...old, settings, cells: [pixels] });
  const record = parseBenchRecord(text, "run.json");
  expect(record.settings.endpoints).toEqual(["onnx-http_uint8", "onnx-grpc_jpeg"]);
  expect(record.loadPoints[0]).toMatchObject({
    id: "onnx-http_uint8 b1 c1",
    endpoint: "onnx-http",
    payload: "uint8",
  });
});

test("fails on a wrong field of an old record by its new path", () => {
  const text = JSON.stringify({ ...old, cells: [{ ...old.cells[0], requestBytes: "many" }] });
  expect(() => parseBenchRecord(text, "run.json")).toThrow(
    /^run\.json: loadPoints\.0\.requestBytes/,
  );
});

test("a verification record of schema 1 is upgraded", () => {
  const { subject, environments, checks, measurements, ...others } = testRecord();
  const { target: _, settings, ...about } = subject;
  const { secondsPerEndpoint, ...limits } = settings;
  const old = {
    ...others,
    schema: 1,
    subject: {
      ...about,
      runtime: "embedded",
      settings: { ...limits, secondsPerPath: secondsPerEndpoint },
    },
    environments: environments.map((environment) => ({
      ...environment,
      services: environment.services.map(({ server, backend, ...service }) => ({
        ...service,
        backend: backend === "onnxruntime" ? "onnx" : backend,
        ...(server && { engine: server === "emulator" ? "bundled" : server }),
      })),
    })),
    checks: checks.map(({ endpoint: path, ...check }) => ({ ...check, path })),
    measurements: measurements.map(({ endpoint: path, ...rest }) => ({ ...rest, path })),
  };
  expect(parseRecord(JSON.stringify(old), "run.json")).toEqual(testRecord());
});
