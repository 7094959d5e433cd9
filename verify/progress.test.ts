import { expect, test } from "vitest";
import { failedCheck } from "../bench/record/test-record.ts";
import { startProgress } from "./progress.ts";

function output(isTTY: boolean) {
  const written: string[] = [];
  return { isTTY, columns: 60, write: (text: string) => written.push(text), written };
}

test("without a terminal, progress is one line per event", () => {
  const to = output(false);
  const progress = startProgress(to);
  progress.onEvent({ kind: "phase", environment: "single-gpu", text: "parity: embed" });
  progress.onEvent({ kind: "check", result: failedCheck() });
  progress.onEvent({ kind: "check", result: failedCheck({ outcome: "pass" }) });
  progress.end();
  expect(to.written.join("")).toBe(
    "single-gpu: parity: embed\n" +
      "✘ wiring single-gpu/triton-onnx: docker_container.triton (container 'single-gpu-triton-onnx'): publishes 8010 for its port 8009, but listens on 8000, 8001, 8002\n",
  );
});

test("without a terminal, a counting phase is one line", () => {
  const to = output(false);
  const progress = startProgress(to);
  for (const percent of [1, 2, 10, 100]) {
    progress.onEvent({ kind: "phase", text: `generate the model, ${percent} %` });
  }
  progress.onEvent({ kind: "phase", environment: "single-gpu", text: "parity: embed" });
  progress.end();
  expect(to.written.join("")).toBe("generate the model, 1 %\nsingle-gpu: parity: embed\n");
});

test("on a terminal, progress is one line, cut to the terminal width", () => {
  const to = output(true);
  const progress = startProgress(to);
  progress.onEvent({ kind: "phase", environment: "single-gpu", text: "x".repeat(200) });
  progress.end();
  const lines = to.written.join("").split("\r\u001b[K");
  expect(to.written.join("")).not.toContain("\n");
  expect(Math.max(...lines.map((line) => line.length))).toBe(59);
  expect(to.written.at(-1)).toBe("\r\u001b[K");
});

test("on a terminal, a failure keeps its own line", () => {
  const to = output(true);
  const progress = startProgress(to);
  progress.onEvent({ kind: "check", result: failedCheck() });
  progress.end();
  expect(to.written.join("")).toMatch(/✘ wiring single-gpu\/triton-onnx: .*\n/);
});
