import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { parseBenchRecord } from "./bench-record.ts";
import { parseRecord } from "./record.ts";
import { testRecord } from "./test-record.ts";

const reports = fileURLToPath(new URL("../reports/", import.meta.url));
const saved = readdirSync(reports).filter((name) => name.endsWith(".json"));

test.each(saved)("%s, saved with schema 1, is upgraded", (name) => {
  const text = readFileSync(`${reports}${name}`, "utf8");
  const old = JSON.parse(text);
  expect(old.schema).toBe(1);

  const record = parseBenchRecord(text, name);
  expect(record.schema).toBe(2);
  expect(record.subject.target).toBe("simulation");
  expect(record.subject.environments[0]?.services[1]?.backend).toBe("onnxruntime");
  expect(record.settings.endpoints).toEqual(old.settings.paths);
  expect(record.loadPoints).toHaveLength(old.cells.length);
  expect(record.loadPoints[0]).toMatchObject({ endpoint: "embed-http", payload: "jpeg" });
});

test("names of load points and endpoints follow the payload format", () => {
  const old = JSON.parse(readFileSync(`${reports}${saved[0]}`, "utf8"));
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
  const old = JSON.parse(readFileSync(`${reports}${saved[0]}`, "utf8"));
  const text = JSON.stringify({ ...old, cells: [{ ...old.cells[0], samples: "many" }] });
  expect(() => parseBenchRecord(text, "run.json")).toThrow(/^run\.json: loadPoints\.0\.samples/);
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
