import { expect, test } from "vitest";
import type { RecordRow } from "./calibrate-record.ts";
import { recordErrorLines } from "./capacity-text.ts";

function row(role: RecordRow["role"], throughputError: number, latencyError = 0): RecordRow {
  const figures = { measured: 1, predicted: 1 };
  return {
    cell: "onnx-http b1 c1",
    role,
    imagesPerSecond: figures,
    latencyMs: figures,
    throughputError,
    latencyError,
  };
}

test("says how far a record's predictions are off, without the loads that calibrate", () => {
  const rows = [row("calibrates", 0), row("predicted", -0.2, 0.1), row("predicted", 0.4, 0.3)];
  expect(recordErrorLines({ rows })).toEqual([
    "Of 2 predicted loads the median error is 30 % of images/s, 20 % of latency (--check).",
  ]);
});

test("warns where the model does not fit a record", () => {
  const [, warning] = recordErrorLines({ rows: [row("predicted", 1.81)] });
  expect(warning).toContain("the model does not fit this record");
});

test("says that nothing could be checked where all loads calibrate", () => {
  expect(recordErrorLines({ rows: [row("calibrates", 0)] })).toEqual([
    "Nothing could be checked: every load of the record calibrates the model.",
  ]);
});
