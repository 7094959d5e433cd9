import { expect, test } from "vitest";
import { parseSettings } from "../../stacks/settings.ts";
import { synth } from "../test-synth.ts";
import { ClusterInference } from "./cluster-inference.ts";
import type { ClusterModel } from "./cluster-plan.ts";
import { GpuCluster } from "./gpu-cluster.ts";

function synthInference(settings: string, model: ClusterModel) {
  const { cluster, nodePool, accelerator, ...props } = parseSettings(
    "kubernetes",
    "test",
    settings,
  );
  let inference: ClusterInference | undefined;
  const { only } = synth((stack) => {
    inference = new ClusterInference(stack, "inference", {
      ...props,
      cluster: new GpuCluster(stack, "cluster", { ...cluster, accelerator, pool: nodePool }),
      chart: "helm/clipstack",
      model,
    });
  });
  const values = JSON.parse(only("helm_release").values[0]);
  return { values, models: inference?.services.map(({ service }) => service.model) };
}

const name = "openclip_vit_b32_u8";

test("serves the model of the props with its own configuration", () => {
  const { values, models } = synthInference("", { name, weights: "image" });
  expect(values.model).toEqual({ name, weights: "image" });
  expect(values.triton.modelConfig.text).toContain(`name: "${name}"`);
  expect(models).toEqual([name, name]);
});

test("serves the model of the props without Tritons", () => {
  const settings =
    "embed: { backend: onnxruntime, autoscaler: { maxReplicas: 4 } }\ntriton: { enabled: false }";
  expect(synthInference(settings, { name, weights: "image" }).models).toEqual([name]);
});

test("serves the shipped models by default", () => {
  const shipped = (settings: string) => synthInference(settings, { weights: "image" });
  expect(shipped("").values.model).toEqual({ weights: "image" });
  expect(shipped("").models).toEqual(["openclip_vit_b32", "openclip_vit_b32"]);
  const trt = "openclip_vit_b32_trt";
  expect(shipped("triton: { backend: tensorrt }").models).toEqual([trt, trt]);
});
