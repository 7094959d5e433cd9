import { expect, test } from "vitest";
import { testBenchRecord, testLoadPoint } from "../report/test-bench-record.ts";
import { loadPointsOf } from "./other-record.ts";

const { subject } = testBenchRecord();
const model = { ...subject.model, sha256: "a".repeat(64) };

function other(sha256 = model.sha256) {
  const loadPoints = [
    testLoadPoint({}, { id: "one", study: "scaling" }),
    testLoadPoint({}, { id: "two", study: "batch" }),
  ];
  return testBenchRecord({ loadPoints, subject: { ...subject, model: { ...model, sha256 } } });
}

test("the load points of the study are taken from the other record, with its name", () => {
  const loadPoints = loadPointsOf("scaling", other(), "one-gpu.json", model);
  expect(loadPoints.map(({ id }) => id)).toEqual(["one (one-gpu.json)"]);
});

test("fails if the other record measured another model file", () => {
  const record = other("b".repeat(64));
  expect(() => loadPointsOf("scaling", record, "one-gpu.json", model)).toThrow(
    "--against one-gpu.json: must be of the same model file",
  );
});

test("fails if the other record lacks the study", () => {
  expect(() => loadPointsOf("topology", other(), "one-gpu.json", model)).toThrow(
    "--against one-gpu.json: must contain load points of the study 'topology' ('clipstack sweep topology'), got none",
  );
});
