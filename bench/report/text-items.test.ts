import { expect, test } from "vitest";
import { renderMarkdown } from "../../report/render/render-md.ts";
import { benchReport } from "./bench-report.ts";
import { testBenchRecord, testLoadPoint } from "./test-bench-record.ts";
import { inUnit } from "./text-items.ts";

test.each([
  ["42.0 images/s, p50 8.00 ms", "42.0 texts/s, p50 8.00 ms"],
  ["8 images per request, 1 client", "8 texts per request, 1 client"],
  ["1 image per request", "1 text per request"],
  ["Images per second by batch size", "Texts per second by batch size"],
  ["ms per image", "ms per text"],
  ["a million images", "a million texts"],
  ["Pulling images is not included.", "Pulling images is not included."],
])("'%s' of texts", (line, expected) => {
  expect(inUnit(line, true)).toBe(expected);
  expect(inUnit(line, false)).toBe(line);
});

test("a report of texts has rates and prices of texts, in tables and figures", () => {
  const point = testLoadPoint(
    {},
    { id: "onnx-http_text b1 c1", endpoint: "onnx-http", payload: "text" },
  );
  const record = testBenchRecord({ loadPoints: [point] });
  const report = benchReport(record);
  const text = renderMarkdown(report);
  expect(text).toContain("texts/s");
  expect(text).not.toContain("images/s");
  const figures = [...report.summary, ...report.sections].flatMap((section) => section.figures);
  expect(figures.map(({ draw }) => draw(600)).join("")).not.toContain("images/s");
});
