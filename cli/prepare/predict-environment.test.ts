import { describe, expect, test } from "vitest";
import type { Capacity } from "../../review/changes/capacity.ts";
import { changeOfDocuments } from "../../review/input/document-change.ts";
import { parseDocument } from "../../review/input/synthesized-document.ts";
import { reviewOf } from "../../review/review.ts";
import { synthesizedText } from "../../review/test-stacks.ts";
import type { ShippedEnvironment } from "../../stacks/settings/environment-files.ts";
import { predictEnvironment } from "../prepare/predict-environment.ts";

/** Capacity of an environment with default settings, and with changes. */
function capacities(name: ShippedEnvironment, ...settings: readonly string[]): readonly Capacity[] {
  return ["", ...settings].map((yaml) => {
    const document = parseDocument(synthesizedText(name, yaml), name);
    const review = reviewOf([changeOfDocuments(name, undefined, document)], {
      predict: predictEnvironment,
    });
    return review.stacks[0]!.capacity.after!;
  });
}

describe("images per second are those of the GPUs that services use", () => {
  test("on a host", () => {
    const [all, one] = capacities(
      "multi-gpu-4x",
      "tritonOnnx: { gpus: [0] }\ntritonTrt: { gpus: [0] }\n",
    );
    expect([all?.gpus, one?.gpus]).toEqual(["4 × rtx-4080", "4 × rtx-4080 (1 used)"]);
    // one Triton server ingests tensors at the same rate for one GPU as for four
    expect(one?.imagesPerSecond).toBeCloseTo(all?.imagesPerSecond ?? 0, 1);
    expect(all?.predictionSource).toContain("tensorrt, 64 clients");
    expect(one?.predictionSource).toContain("tensorrt on 1 of 4 GPUs, ");
  });

  test("in a cluster with the maximum number of pods", () => {
    const [some, one] = capacities(
      "k8s-gpu",
      "triton: { autoscaler: { minReplicas: 1, maxReplicas: 1 } }\n",
    );
    expect(one?.gpus).toBe("4 × l4 (1 used)");
    expect(one!.imagesPerSecond).toBeLessThan(some!.imagesPerSecond! * 0.8);
    expect(one?.predictionSource).toContain("on 1 of 4 GPUs, with the maximum number of pods, ");
  });
});

test("an embed server that computes itself has a prediction with its bottleneck", () => {
  const [all, alone] = capacities(
    "single-gpu",
    "tritonOnnx: { enabled: false }\ntritonTrt: { enabled: false }\n",
  );
  expect(alone?.imagesPerSecond).toBeGreaterThan(100);
  expect(alone?.imagesPerSecond).toBeLessThan(all!.gpuImagesPerSecond!);
  expect(alone?.predictionSource).toMatch(
    /onnxruntime, 64 clients that send JPEG files of 10 KB to the embed server.*; bottleneck: \w/,
  );
});

test("states why there is no prediction", () => {
  const [cpu] = capacities("kind-local");
  expect([cpu?.imagesPerSecond, cpu?.predictionMissing]).toEqual([
    undefined,
    "available for GPUs only",
  ]);
});

test("a declared GPU has the capacity, price and rules of one of the catalogue", () => {
  const facts = "name: Card, memory: 12282, architecture: 7.5, price: 0.3, fp16Tflops: 65";
  const yaml = (gpu: string) => `host: { gpu: ${gpu} }\ntritonTrt: { enabled: true }\n`;
  const [known, declared] = ["t4", `{ ${facts} }`].map((gpu) => {
    const document = parseDocument(synthesizedText("single-gpu", yaml(gpu)), "single-gpu");
    const change = changeOfDocuments("single-gpu", undefined, document);
    return reviewOf([change], { predict: predictEnvironment }).stacks[0]!;
  });
  const capacity = declared!.capacity.after!;
  expect(capacity).toMatchObject({ gpus: "1 × Card", usdPerHour: 0.3, priceDate: undefined });
  expect(capacity.gpuImagesPerSecond).toBe(known!.capacity.after?.gpuImagesPerSecond);
  expect(capacity.vramUsableMiB).toBeLessThan(known!.capacity.after?.vramUsableMiB ?? 0);
  expect(declared!.findings).toEqual(known!.findings);
  expect(synthesizedText("single-gpu", yaml(`{ ${facts} }`))).toContain("sm75-");
});

test("a slower GPU at a higher price is a reason of the verdict", () => {
  const document = (yaml: string) => parseDocument(synthesizedText("single-gpu", yaml), "a");
  const [before, after] = ["rtx-4090", "t4"].map((gpu) => document(`host: { gpu: ${gpu} }\n`));
  const { verdict } = reviewOf([changeOfDocuments("s", before, after)], {
    predict: predictEnvironment,
  });
  expect(verdict.level).toBe("attention");
  expect(verdict.reasons.join("\n")).toMatch(
    /The GPUs compute \d+ % of the images per second \(predicted \d+ instead of \d+\)/,
  );
});
