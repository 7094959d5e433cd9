import { expect, test } from "vitest";
import { operatorShares } from "./operators.ts";

const options = {
  environment: "single-gpu",
  service: "triton-onnx",
  model: "tiny",
  batch: 1,
  sessionOptions: { executionProviders: ["cuda", "cpu"] },
};
const profile = {
  runs: 10,
  rows: [
    { operator: "Add", provider: "CPUExecutionProvider", nodes: 2, us: 10_000 },
    { operator: "MatMul", provider: "CUDAExecutionProvider", nodes: 12, us: 30_000 },
  ],
};

test("operators come by their share of the time, the largest first", () => {
  expect(operatorShares(options, profile).operators).toEqual([
    {
      operator: "MatMul",
      provider: "CUDAExecutionProvider",
      nodes: 12,
      msPerRun: 3,
      share: 0.75,
    },
    { operator: "Add", provider: "CPUExecutionProvider", nodes: 2, msPerRun: 1, share: 0.25 },
  ]);
});

test("nodes on the CPU are fallbacks where another provider was asked for", () => {
  expect(operatorShares(options, profile)).toMatchObject({ nodes: 14, cpuFallbacks: 2 });
});

test("nothing falls back to the CPU where the CPU was asked for", () => {
  const onCpu = { ...options, sessionOptions: { executionProviders: ["cpu"] } };
  expect(operatorShares(onCpu, profile).cpuFallbacks).toBe(0);
});
