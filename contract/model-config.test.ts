import { describe, expect, test } from "vitest";
import {
  executionInstances,
  gpuLayout,
  type InstanceGroup,
  type ModelConfig,
  modelConfig,
} from "./model-config.ts";
import { checkModelConfig } from "./model-config-check.ts";
import { catalogueSpecs } from "./models/index.ts";
import { openclipVitB32 as spec } from "./models/openclip-vit-b32.ts";
import { siglip2Base224 } from "./models/siglip2-base-224.ts";
import { printModelConfig } from "./print-model-config.ts";
import { allKindsOf, tritonModelName } from "./triton-models.ts";
import { precisionSourceOf } from "./triton-releases.ts";

const gpuCounts = [1, 2, 3, 4, 8, 16];

const onnx = modelConfig(spec, "fp32", gpuLayout(1));
const trt = modelConfig(spec, "trt", gpuLayout(1));

test.each(catalogueSpecs)("every configuration of $name passes all checks", (entry) => {
  for (const modelKind of allKindsOf(entry)) {
    expect(
      checkModelConfig(modelConfig(entry, modelKind), { specs: catalogueSpecs }),
      modelKind,
    ).toEqual([]);
    for (const gpus of [0, ...gpuCounts]) {
      const config = modelConfig(entry, modelKind, gpuLayout(gpus));
      expect(
        checkModelConfig(config, { specs: catalogueSpecs, gpus }),
        `${config.name} ${gpus}`,
      ).toEqual([]);
    }
  }
});

describe("execution instances are the sum of count × GPUs", () => {
  const of = (instance_group: readonly InstanceGroup[] | undefined, gpus: number) =>
    executionInstances({ ...onnx, instance_group }, gpus);

  test.each(gpuCounts)("a layout of %d GPUs has one on each", (gpus) => {
    const config = modelConfig(spec, "fp32", gpuLayout(gpus));
    const indices = Array.from({ length: gpus }, (_, index) => index);
    expect(config.instance_group).toEqual([{ kind: "KIND_GPU", count: 1, gpus: indices }]);
    expect(executionInstances(config, gpus)).toBe(gpus);
  });
  test("count applies to each listed GPU", () => {
    expect(of([{ kind: "KIND_GPU", count: 2, gpus: [1, 2] }], 4)).toBe(4);
  });
  test("a group without a GPU list uses every GPU of the host", () => {
    expect(of([{ kind: "KIND_GPU", count: 4 }], 4)).toBe(16);
  });
  test("all groups are added", () => {
    expect(
      of(
        [
          { kind: "KIND_GPU", count: 1, gpus: [0] },
          { kind: "KIND_CPU", count: 3 },
        ],
        4,
      ),
    ).toBe(4);
  });
  test("without a group there is one per GPU, or two on a CPU", () => {
    expect(of(undefined, 4)).toBe(4);
    expect(of([], 0)).toBe(2);
  });
});

describe("TensorRT", () => {
  const parametersOf = (config: ModelConfig) =>
    config.optimization?.execution_accelerators?.gpu_execution_accelerator?.[0]?.parameters;

  test.each([
    ["26.05-py3", "FP16", undefined],
    ["26.06-py3", undefined, "model.trt-fp16.onnx"],
    ["26.07-py3", undefined, "model.trt-fp16.onnx"],
    // an unknown release: right for both
    ["my-build", "FP16", "model.trt-fp16.onnx"],
  ])("%s takes the precision %s from precision_mode and serves the file %s", (tag, mode, file) => {
    const precision = precisionSourceOf(`tritonserver:${tag}`);
    for (const modelKind of ["trt", "text-trt"] as const) {
      const onGpu = modelConfig(spec, modelKind, gpuLayout(1), precision);
      expect(parametersOf(onGpu)?.precision_mode).toBe(mode);
      expect(onGpu.default_model_filename).toBe(file);
      const onCpu = modelConfig(spec, modelKind, gpuLayout(0), precision);
      expect(onCpu.default_model_filename).toBeUndefined();
    }
  });

  test("keeps engines and timings on the cache volume", () => {
    expect(parametersOf(trt)).toMatchObject({
      trt_engine_cache_enable: "true",
      trt_engine_cache_path: "/engine-cache/openclip_vit_b32_trt",
      trt_timing_cache_enable: "true",
      trt_timing_cache_path: "/engine-cache/openclip_vit_b32_trt",
    });
  });
  test("shape profiles cover every batch size, so that no request builds an engine", () => {
    expect(parametersOf(trt)).toMatchObject({
      trt_profile_min_shapes: "image:1x3x224x224",
      trt_profile_opt_shapes: "image:16x3x224x224",
      trt_profile_max_shapes: "image:32x3x224x224",
    });
  });
  test("warms up all batch sizes of the bench, including the smallest and the largest", () => {
    expect(trt.model_warmup?.map(({ batch_size }) => batch_size)).toEqual([1, 4, 8, 16, 32]);
  });
  test("is omitted on a CPU", () => {
    expect(modelConfig(spec, "trt", gpuLayout(0))).not.toHaveProperty("optimization");
  });
});

describe("of another spec", () => {
  const small = { ...siglip2Base224, batching: { maximum: 6, preferred: [] } };
  const gpu = (modelKind: "fp32" | "trt" | "text") => modelConfig(small, modelKind, gpuLayout(1));

  test("batch sizes follow from it", () => {
    expect(gpu("fp32").max_batch_size).toBe(6);
    expect(gpu("fp32").dynamic_batching).toEqual({ max_queue_delay_microseconds: 0 });
    expect(gpu("fp32").model_warmup?.map(({ batch_size }) => batch_size)).toEqual([1, 4, 6]);
    const [tensorrt] =
      gpu("trt").optimization?.execution_accelerators?.gpu_execution_accelerator ?? [];
    expect(tensorrt?.parameters).toMatchObject({
      trt_profile_opt_shapes: "image:6x3x224x224",
      trt_profile_max_shapes: "image:6x3x224x224",
    });
  });

  test("the text tower is warmed up with a token id that every vocabulary has", () => {
    const { contextLength, idType } = siglip2Base224.towers.text!.input;
    expect(gpu("text").model_warmup?.[0]?.inputs).toEqual({
      text: {
        data_type: `TYPE_${idType.toUpperCase()}`,
        dims: [contextLength],
        zero_data: true,
      },
    });
  });

  test("the ensemble connects its own models", () => {
    const step = modelConfig(small, "jpeg").ensemble_scheduling?.step;
    expect(step?.map(({ model_name }) => model_name)).toEqual([
      tritonModelName(small, "preprocess"),
      tritonModelName(small, "u8"),
    ]);
  });
});

test("prints text format: unquoted enums, quoted strings, maps as entries", () => {
  expect(
    printModelConfig({
      name: "m",
      max_batch_size: 0,
      input: [{ name: "x", data_type: "TYPE_FP32", dims: [-1] }],
      output: [],
      instance_group: [{ kind: "KIND_CPU" }],
      optimization: undefined,
      parameters: { a: { string_value: 'say "b"' } },
    }),
  ).toBe(`name: "m"
max_batch_size: 0
input [
  {
    name: "x"
    data_type: TYPE_FP32
    dims: [-1]
  }
]
output: []
instance_group [
  {
    kind: KIND_CPU
  }
]
parameters {
  key: "a"
  value {
    string_value: "say \\"b\\""
  }
}
`);
});

describe("rejects", () => {
  const image = onnx.input[0]!;
  const group = (instance: object) => ({
    ...onnx,
    instance_group: [{ kind: "KIND_GPU", count: 1, ...instance } as InstanceGroup],
  });
  const withParameters = (changes: Readonly<Record<string, string | undefined>>) => {
    const accelerator = trt.optimization!.execution_accelerators!.gpu_execution_accelerator![0]!;
    const parameters = Object.fromEntries(
      Object.entries({ ...accelerator.parameters, ...changes }).filter(
        (entry): entry is [string, string] => entry[1] !== undefined,
      ),
    );
    return {
      ...trt,
      optimization: {
        execution_accelerators: { gpu_execution_accelerator: [{ ...accelerator, parameters }] },
      },
    };
  };
  const warmup = (changes: object) => ({
    ...onnx,
    model_warmup: [{ ...onnx.model_warmup![0]!, ...changes }],
  });

  test.each(
    Object.entries<ModelConfig>({
      "model: name must be the name of the model's folder, got nothing": { ...onnx, name: "" },
      "platform must be onnxruntime_onnx or ensemble, or backend python or dali, got 'tensorrt_plan'":
        { ...onnx, platform: "tensorrt_plan" },
      "max_batch_size must be an integer of at least 0, got -1": {
        ...onnx,
        max_batch_size: -1,
        dynamic_batching: undefined,
        model_warmup: [],
      },
      "dynamic_batching.preferred_batch_size must be 1 to max_batch_size (32), got 64": {
        ...onnx,
        dynamic_batching: { preferred_batch_size: [8, 64] },
      },
      "dynamic_batching.max_queue_delay_microseconds must be an integer of at least 0, got -5": {
        ...onnx,
        dynamic_batching: { max_queue_delay_microseconds: -5 },
      },
      "dynamic_batching needs a max_batch_size of at least 1, got 0": {
        ...onnx,
        max_batch_size: 0,
        model_warmup: [],
      },
      "input image: dims must not include the batch dimension, which max_batch_size adds, got [-1, 3, 224, 224]":
        { ...onnx, input: [{ ...image, dims: [-1, 3, 224, 224] }], model_warmup: [] },
      "output embedding: dims must not include the batch dimension, which max_batch_size adds, got [32, 512]":
        { ...onnx, output: [{ ...onnx.output[0]!, dims: [32, 512] }] },
      "output embedding: dims must be [512], got [768]": {
        ...onnx,
        output: [{ ...onnx.output[0]!, dims: [768] }],
      },
      "output embedding: dims must be integers of at least 1, or -1 for any size, got [0]": {
        ...onnx,
        output: [{ ...onnx.output[0]!, dims: [0] }],
      },
      "output embedding: dims must be given": {
        ...onnx,
        output: [{ ...onnx.output[0]!, dims: [] }],
      },
      "input must list at least one tensor, got none": { ...onnx, input: [], model_warmup: [] },
      "input must not name 'image' twice": { ...onnx, input: [image, image] },
      "output embedding: data_type must be TYPE_FP32, got TYPE_UINT8": {
        ...onnx,
        output: [{ ...onnx.output[0]!, data_type: "TYPE_UINT8" }],
      },
      "instance_group[0].count must be an integer of at least 1, got 0": group({ count: 0 }),
      "instance_group[0].gpus must be 0 to 3, the host has 4, got 4": group({ gpus: [0, 4] }),
      "instance_group[0].gpus must not list 1 twice; more instances on one GPU are a higher count":
        group({ gpus: [1, 1] }),
      "instance_group[0].gpus must not be given with KIND_CPU, got [0]": group({
        kind: "KIND_CPU",
        gpus: [0],
      }),
      "instance_group[0].kind must be KIND_GPU or KIND_CPU, so that it does not depend on the host, got KIND_AUTO":
        group({ kind: "KIND_AUTO" }),
      "optimization.cuda.graphs is for the TensorRT backend only, and onnxruntime ignores it: remove it":
        { ...onnx, optimization: { cuda: { graphs: true } } },
      "optimization.eager_batching is for the TensorRT backend only, and onnxruntime ignores it: remove it":
        { ...onnx, optimization: { eager_batching: true } },
      "gpu_execution_accelerator needs an instance group of KIND_GPU, got tensorrt with KIND_CPU only":
        { ...trt, instance_group: [{ kind: "KIND_CPU", count: 1 }] },
      "gpu_execution_accelerator must be tensorrt or cuda, got 'tensor_rt'": {
        ...onnx,
        optimization: {
          execution_accelerators: { gpu_execution_accelerator: [{ name: "tensor_rt" }] },
        },
      },
      "tensorrt parameter 'trt_fp16_enable' is unknown to the onnxruntime backend": withParameters({
        trt_fp16_enable: "true",
      }),
      "tensorrt parameter precision_mode must be FP32, FP16, BF16 or INT8, got 'fp16'":
        withParameters({ precision_mode: "fp16" }),
      "tensorrt parameter trt_engine_cache_path must be an absolute path when trt_engine_cache_enable is true, got ''":
        withParameters({ trt_engine_cache_path: undefined }),
      "tensorrt parameters trt_profile_opt_shapes must be given: batches of 1 to 32 would each build an engine":
        withParameters({ trt_profile_opt_shapes: undefined }),
      "tensorrt shape profiles must cover batches of 1 to max_batch_size (32), got 1 to 16":
        withParameters({ trt_profile_max_shapes: "image:16x3x224x224" }),
      "tensorrt parameter trt_profile_opt_shapes must lie between min and max, got 'image:64x3x224x224'":
        withParameters({ trt_profile_opt_shapes: "image:64x3x224x224" }),
      "tensorrt parameter trt_profile_min_shapes must be image:Nx3x224x224, got 'image:1x224x224x3'":
        withParameters({ trt_profile_min_shapes: "image:1x224x224x3" }),
      "tensorrt parameter trt_profile_min_shapes must be input:1x3x224x224[,input:…], got '1x3x224x224'":
        withParameters({ trt_profile_min_shapes: "1x3x224x224" }),
      "model_warmup[0].batch_size must be 1 to 32, got 33": warmup({ batch_size: 33 }),
      "model_warmup must run at most 100 times in all, got 101": warmup({ count: 101 }),
      "model_warmup[0].inputs must give 'image'": warmup({ inputs: {} }),
    }),
  )("%s", (problem, config) => {
    const line = problem.startsWith("model:") ? problem : `${config.name}: ${problem}`;
    expect(checkModelConfig(config, { specs: catalogueSpecs, gpus: 4 })).toEqual([line]);
  });

  test("precision_mode from the release on that takes the precision from the graph", () => {
    const config = withParameters({ precision_mode: "FP16" });
    expect(checkModelConfig(config, { specs: catalogueSpecs, precision: "graph" })).toEqual([
      `${config.name}: tensorrt parameter precision_mode must not be set from Triton 26.06 on: TensorRT 11 ignores it and takes the precision from the graph (default_model_filename: "model.trt-fp16.onnx" is in FP16), got 'FP16'`,
    ]);
    expect(
      checkModelConfig(config, { specs: catalogueSpecs, precision: "precision-mode" }),
    ).toEqual([]);
    expect(checkModelConfig(config, { specs: catalogueSpecs, precision: "both" })).toEqual([]);
    expect(checkModelConfig(config, { specs: catalogueSpecs })).toEqual([]);
  });

  test("all errors at once", () => {
    const problems = checkModelConfig(
      { ...group({ count: 0, gpus: [9] }), dynamic_batching: { preferred_batch_size: [64] } },
      { specs: catalogueSpecs, gpus: 1 },
    );
    expect(problems).toEqual([
      "openclip_vit_b32: dynamic_batching.preferred_batch_size must be 1 to max_batch_size (32), got 64",
      "openclip_vit_b32: instance_group[0].count must be an integer of at least 1, got 0",
      "openclip_vit_b32: instance_group[0].gpus must be 0 to 0, the host has 1, got 9",
    ]);
  });
});

test("accepts any GPU index if the number of GPUs is unknown", () => {
  expect(
    checkModelConfig(modelConfig(spec, "fp32", gpuLayout(4)), { specs: catalogueSpecs }),
  ).toEqual([]);
});

test("rejects a GPU group on a host without a GPU", () => {
  expect(checkModelConfig(onnx, { specs: catalogueSpecs, gpus: 0 })).toEqual([
    "openclip_vit_b32: instance_group[0].kind must be KIND_CPU on a host without a GPU, got KIND_GPU",
  ]);
});
