import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { sessionOptions } from "../../inference/session/onnx-session.ts";
import { tinyModel } from "../../model-tools/test-model.ts";
import { operatorShares, profileOperators } from "./operators.ts";

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

test("operators are ordered by their share of the time, in descending order", () => {
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

test("nodes on the CPU are fallbacks if another provider was configured", () => {
  expect(operatorShares(options, profile)).toMatchObject({ nodes: 14, cpuFallbacks: 2 });
});

test("nodes on the CPU are no fallbacks if the CPU was configured", () => {
  const onCpu = { ...options, sessionOptions: { executionProviders: ["cpu"] } };
  expect(operatorShares(onCpu, profile).cpuFallbacks).toBe(0);
});

const profiling = {
  ...options,
  command: [
    process.execPath,
    fileURLToPath(new URL("../../inference/session/profile-session.mjs", import.meta.url)),
  ],
  sessionOptions: sessionOptions(),
  batch: 2,
  runs: 3,
  signal: new AbortController().signal,
};

test("ONNX Runtime profiles a model: shares add up, and each node is counted once", async () => {
  const result = await profileOperators({ ...profiling, modelPath: await tinyModel() });
  expect(result.runs).toBe(3);
  expect(result.operators.reduce((sum, { share }) => sum + share, 0)).toBeCloseTo(1);
  // a layer has 4 products of weights
  const products = result.operators.find(({ operator }) => operator === "MatMul");
  expect(products?.nodes).toBeGreaterThan(4);
  expect(products?.nodes).toBeLessThan(40);
  expect(products?.msPerRun).toBeGreaterThan(0);
});

test("fails with one line if the model cannot be opened", async () => {
  await expect(profileOperators({ ...profiling, modelPath: "/no/model.onnx" })).rejects.toThrow(
    /^the profile ended with code 1: .*\/no\/model\.onnx.*$/,
  );
});
