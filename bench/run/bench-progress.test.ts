import { expect, test } from "vitest";
import { testLoadPoint } from "../report/test-bench-record.ts";
import { loadPointText, startBenchProgress } from "./bench-progress.ts";

const latencyMs = { mean: 9, p50: 8.24, p90: 11, p95: 12, p99: 120.6, max: 130, p99Reliable: true };
const point = testLoadPoint(
  {},
  {
    id: "onnx-http b8 c4",
    imagesPerSecond: 42.26,
    latencyMs,
    errors: {},
    invalid: [],
    stability: { verdict: "stable" },
  },
);

test("a load point is printed with its rate and latency", () => {
  expect(loadPointText(point)).toBe("onnx-http b8 c4: 42.3 images/s, p50 8.24 ms, p99 121 ms");
});

test("the bottleneck of a load point is in its line", () => {
  const limited = {
    ...point,
    latencyMs: { ...latencyMs, p99Reliable: false },
    stability: { verdict: "drifting" as const },
    errors: { "503": 2 },
    invalid: ["The client was the limit."],
  };
  expect(loadPointText(limited)).toBe(
    "onnx-http b8 c4: 42.3 images/s, p50 8.24 ms, p99 121 ms (few samples); drifting; 2 × 503; The client was the limit.",
  );
  expect(loadPointText({ ...point, latencyMs: undefined })).toBe("onnx-http b8 c4: no response");
});

test("without a terminal, load points are printed and windows are not", () => {
  const written: string[] = [];
  const progress = startBenchProgress({ isTTY: false, write: (text) => written.push(text) }, 4);
  progress.onEvent({ kind: "phase", environment: "one", text: "parity: onnx-http" });
  const window = { seconds: 1, requests: 5, imagesPerSecond: 40, failed: 0 };
  progress.onEvent({ kind: "window", pointId: point.id, window, index: 0 });
  progress.onEvent({ kind: "point", point });
  progress.end();
  expect(written.join("")).toBe(`one: parity: onnx-http\n${loadPointText(point)}\n`);
});

test("on a terminal, the status line shows the window and the number of finished measurements", () => {
  const written: string[] = [];
  const output = { isTTY: true, columns: 100, write: (text: string) => written.push(text) };
  const progress = startBenchProgress(output, 4);
  progress.onEvent({ kind: "round", point });
  progress.onEvent({ kind: "point", point });
  const window = { seconds: 1, requests: 5, imagesPerSecond: 40, failed: 0 };
  progress.onEvent({ kind: "window", pointId: "onnx-http b8 c8", window, index: 2 });
  progress.end();
  expect(written.join("")).toContain(
    "onnx-http b8 c8, window 3: 40.0 images/s  (2 of 4 measurements, 0 s)",
  );
});
