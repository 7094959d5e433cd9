import { expect, test } from "vitest";
import {
  type DeploymentFacts,
  deployedModelConfig,
  type TunableTritonModel,
  tunableKinds,
} from "./deployed-model-config.ts";
import { executionInstances, gpuLayout, modelConfig } from "./model-config.ts";
import type { ModelConfigSettings } from "./model-config-settings.ts";
import { openclipVitB32 as spec } from "./models/openclip-vit-b32.ts";
import { printModelConfig } from "./print-model-config.ts";

const onnx = (settings: ModelConfigSettings, batching = spec.batching) =>
  deployedModelConfig({ spec: { ...spec, batching }, modelKind: "fp32" }, 1, settings);
const trt = (
  settings: ModelConfigSettings,
  batching = spec.batching,
  facts: DeploymentFacts = {},
) => deployedModelConfig({ spec: { ...spec, batching }, modelKind: "trt" }, 1, settings, facts);
/** Batching of a spec that names preferred batch sizes. */
const preferring = { maximum: 32, preferred: [8, 16] };
const accelerator = ({ config }: ReturnType<typeof trt>) =>
  config.optimization?.execution_accelerators?.gpu_execution_accelerator?.[0];

const all = tunableKinds.flatMap((modelKind) =>
  [0, 1, 2, 3, 4, 8, 16].map((gpus) => [modelKind, gpus] as const),
);

test.each(all)(
  "%s, %d GPUs: without settings it equals the configuration of the model",
  (modelKind, gpus) => {
    const { config, text, problems } = deployedModelConfig({ spec, modelKind }, gpus);
    const expected = modelConfig(spec, modelKind, gpuLayout(gpus));
    expect(config).toEqual(expected);
    expect(text.replace(/^(#.*\n)+\n/, "")).toBe(printModelConfig(expected));
    expect(problems).toEqual([]);
  },
);

test("the heading has the number of instances and names the settings", () => {
  const { text } = deployedModelConfig({ spec, modelKind: "fp32" }, 4, {
    instancesPerGpu: 2,
  });
  expect(text.split("\n").slice(0, 3)).toEqual([
    "# Rendered from the settings of the environment: change those.",
    "# Execution instances: 8 (count on each GPU of [0, 1, 2, 3]).",
    "",
  ]);
});

test("a queue delay changes one line of the text", () => {
  const lines = onnx({}).text.split("\n");
  const changed = onnx({ maxQueueDelayMicroseconds: 2_000 }).text.split("\n");
  expect(changed.filter((line, i) => line !== lines[i])).toEqual([
    "  max_queue_delay_microseconds: 2000",
  ]);
});

test("a queue delay of 0 is written, so that a change of it changes one line", () => {
  expect(onnx({ maxQueueDelayMicroseconds: 0 }).text).toContain(
    "max_queue_delay_microseconds: 0\n",
  );
});

test("instancesPerGpu applies to each GPU", () => {
  const { config } = deployedModelConfig({ spec, modelKind: "trt" }, 4, {
    instancesPerGpu: 3,
  });
  expect(executionInstances(config, 4)).toBe(12);
});

test("another optimum batch size has its own engine in the cache", () => {
  expect(accelerator(trt({ optimumBatchSize: 8 }))?.parameters).toMatchObject({
    trt_profile_min_shapes: "image:1x3x224x224",
    trt_profile_opt_shapes: "image:8x3x224x224",
    trt_profile_max_shapes: "image:32x3x224x224",
    trt_engine_cache_prefix: "openclip_vit_b32_trt_fp16_b32_o8",
  });
  expect(trt({ optimumBatchSize: 16 })).toEqual(trt({}));
});

test("the optimum batch size of a model is at most its maximum", () => {
  const small: TunableTritonModel = {
    spec: { ...spec, batching: { maximum: 6, preferred: [6] } },
    modelKind: "trt",
  };
  const deployed = deployedModelConfig(small, 1, { optimumBatchSize: 16 });
  expect(deployed).toEqual(deployedModelConfig(small, 1, {}));
  expect(deployed.problems).toEqual([]);
  expect(accelerator(deployed)?.parameters).toMatchObject({
    trt_profile_opt_shapes: "image:6x3x224x224",
    trt_profile_max_shapes: "image:6x3x224x224",
  });
});

test("the engine cache prefix starts with that of the deployment, which may contain Terraform expressions", () => {
  const named = (engineCachePrefix: string) => trt({}, spec.batching, { engineCachePrefix });
  expect(accelerator(named("4f1c_26.07"))?.parameters?.trt_engine_cache_prefix).toBe(
    "4f1c_26.07_openclip_vit_b32_trt_fp16_b32",
  );
  const expression = `\${substr(filesha256("model.onnx"), 0, 12)}`;
  expect(named(`${expression}_x`).problems).toEqual([]);
});

test("CUDA graphs are an option of TensorRT's execution provider", () => {
  expect(accelerator(trt({ cudaGraphs: true }))?.parameters?.trt_cuda_graph_enable).toBe("true");
  expect(trt({ cudaGraphs: true }).problems).toEqual([]);
  for (const gpus of [0, 1]) {
    const { problems } = deployedModelConfig({ spec, modelKind: "fp32" }, gpus, {
      cudaGraphs: true,
    });
    expect(problems, `${gpus}`).toEqual([
      expect.stringMatching(/^cudaGraphs must be false if ONNX Runtime runs .*, got true$/),
    ]);
  }
  expect(trt({ cudaGraphs: false })).toEqual(trt({}));
  expect(onnx({ cudaGraphs: false })).toEqual(onnx({}));
});

test("a model has no preferred batch sizes unless its spec names them", () => {
  expect(onnx({}).text).not.toContain("preferred_batch_size");
  expect(trt({}).text).not.toContain("preferred_batch_size");
  expect(onnx({}, preferring).text).toContain("preferred_batch_size: [8, 16]");
});

test("preferred batch sizes replace those of the model, and an empty list has none", () => {
  const batching = (preferredBatchSizes?: readonly number[]) =>
    onnx({ preferredBatchSizes }, preferring).config.dynamic_batching;
  expect(batching()?.preferred_batch_size).toEqual([8, 16]);
  expect(batching([4, 24])).toEqual({
    preferred_batch_size: [4, 24],
    max_queue_delay_microseconds: 0,
  });
  expect(onnx({ preferredBatchSizes: [4, 24] }).text).toContain("preferred_batch_size: [4, 24]");
  expect(batching([])).toEqual({ max_queue_delay_microseconds: 0 });
});

test.each<readonly [ModelConfigSettings, number | undefined]>([
  [{ preferredBatchSizes: [16] }, undefined],
  // a batch of the maximum does not wait in any case
  [{ preferredBatchSizes: [16, 32] }, undefined],
  [{ preferredBatchSizes: [8], optimumBatchSize: 8 }, undefined],
  [{ preferredBatchSizes: [] }, undefined],
  [{ preferredBatchSizes: [8] }, 8],
  [{ preferredBatchSizes: [16, 24] }, 24],
  [{ preferredBatchSizes: [8, 16], optimumBatchSize: 8 }, 16],
  // of the spec
  [{}, 8],
])("with TensorRT only the optimum of its profile can be preferred: %j", (settings, rejected) => {
  const optimum = settings.optimumBatchSize ?? 16;
  expect(trt(settings, preferring).problems).toEqual(
    rejected === undefined
      ? []
      : [
          `openclip_vit_b32_trt: dynamic_batching.preferred_batch_size must be ${optimum} with TensorRT, the optimum of the only profile that ONNX Runtime executes, got ${rejected}`,
        ],
  );
});

test.each([[[8, 33]], [[8, 8]], [[16, 8]]])(
  "preferred batch sizes %j are rejected",
  (preferredBatchSizes) => {
    expect(onnx({ preferredBatchSizes }).problems).toEqual([
      `preferredBatchSizes must be in ascending order, at most 32 (the maximum batch size of openclip_vit_b32), got [${preferredBatchSizes.join(", ")}]`,
    ]);
  },
);

test("on a CPU only the queue delay and the preferred batch sizes have an effect", () => {
  const settings = {
    preferredBatchSizes: [4, 8],
    maxQueueDelayMicroseconds: 100,
    instancesPerGpu: 4,
    optimumBatchSize: 8,
    cudaGraphs: true,
  } as const;
  const { config, problems } = deployedModelConfig({ spec, modelKind: "trt" }, 0, settings, {
    engineCachePrefix: "x",
  });
  expect(problems).toEqual([]);
  expect(config).toEqual({
    ...modelConfig(spec, "trt", gpuLayout(0)),
    dynamic_batching: { preferred_batch_size: [4, 8], max_queue_delay_microseconds: 100 },
  });
});

test("the engine of a text tower is built for its context length", () => {
  const { config, problems } = deployedModelConfig({ spec, modelKind: "text-trt" }, 1, {
    optimumBatchSize: 8,
  });
  expect(problems).toEqual([]);
  const [accelerator] =
    config.optimization?.execution_accelerators?.gpu_execution_accelerator ?? [];
  expect(accelerator?.parameters).toMatchObject({
    trt_profile_min_shapes: "text:1x77",
    trt_profile_opt_shapes: "text:8x77",
    trt_profile_max_shapes: "text:32x77",
    trt_engine_cache_prefix: "openclip_vit_b32_text_trt_fp16_b32_o8",
  });
});

test.each<[ModelConfigSettings, string]>([
  [{ maxQueueDelayMicroseconds: -1 }, "maxQueueDelayMicroseconds must be 0 to 1000000, got -1"],
  [
    { maxQueueDelayMicroseconds: 0.5 },
    "maxQueueDelayMicroseconds must be a whole number, 0 to 1000000, got 0.5",
  ],
  [{ instancesPerGpu: 0 }, "instancesPerGpu must be 1 to 16, got 0"],
  [{ optimumBatchSize: 12 as 8 }, "optimumBatchSize must be one of 8, 16, got 12"],
  [{ preferredBatchSizes: [0, 8] }, "preferredBatchSizes.0 must be 1 to 4096, got 0"],
])("rejects %j", (settings, problem) => {
  const { config, problems } = trt(settings);
  expect(problems).toEqual([problem]);
  expect(config).toEqual(modelConfig(spec, "trt", gpuLayout(1)));
});

test.each(["../x", ""])("rejects the engine cache prefix '%s'", (engineCachePrefix) => {
  expect(trt({}, spec.batching, { engineCachePrefix }).problems).toEqual([
    `engineCachePrefix must be letters, digits, '.', '_' and '-', got '${engineCachePrefix}'`,
  ]);
});

test("settings and facts of TensorRT have no effect on other models", () => {
  const model = { spec, modelKind: "fp32" } as const;
  expect(
    deployedModelConfig(model, 1, { optimumBatchSize: 8 }, { engineCachePrefix: "x" }),
  ).toEqual(onnx({}));
});
