import { describe, expect, test } from "vitest";
import { ensembleProblems, stepsInOrder } from "./ensemble-check.ts";
import { type EnsembleStep, type ModelConfig, modelConfig } from "./model-config.ts";
import { checkModelConfig } from "./model-config-check.ts";
import { catalogueSpecs } from "./models/index.ts";
import { openclipVitB32 as spec } from "./models/openclip-vit-b32.ts";
import { allKindsOf } from "./triton-models.ts";

const ensemble = modelConfig(spec, "jpeg");
const models = allKindsOf(spec).map((modelKind) => modelConfig(spec, modelKind));
const [first, second] = ensemble.ensemble_scheduling!.step as [EnsembleStep, EnsembleStep];

const withSteps = (...step: readonly EnsembleStep[]): ModelConfig => ({
  ...ensemble,
  ensemble_scheduling: { step },
});
const problemsOf = (config: ModelConfig) => [
  ...ensembleProblems(config, (name) => models.find((other) => other.name === name)),
];

test("the ensemble of the model repository passes all checks", () => {
  expect(problemsOf(ensemble)).toEqual([]);
});

test("orders steps after those that write their inputs", () => {
  expect(stepsInOrder(withSteps(second, first))).toEqual([first, second]);
  expect(problemsOf(withSteps(second, first))).toEqual([]);
});

describe("rejects", () => {
  const name = "openclip_vit_b32_jpeg";
  test.each(
    Object.entries<ModelConfig>({
      [`must specify 'step' for ensemble '${name}'`]: withSteps(),
      [`must specify 'model_name' in step 0 of ensemble '${name}'`]: withSteps(
        { ...first, model_name: "" },
        second,
      ),
      [`must specify 'output_map' in step 1 of ensemble '${name}'`]: withSteps(first, {
        ...second,
        output_map: {},
      }),
      [`ensemble ${name} contains models that are not available or ambiguous: resnet`]: withSteps(
        first,
        { ...second, model_name: "resnet" },
      ),
      [`in ensemble ${name}, ensemble tensor pixels is mapping to non-existing input mask in model openclip_vit_b32_u8`]:
        withSteps(first, { ...second, input_map: { image: "pixels", mask: "pixels" } }),
      [`in ensemble ${name}, input image in model openclip_vit_b32_u8 is not mapped to any ensemble tensors`]:
        withSteps(first, { ...second, input_map: { imagee: "pixels" } }),
      [`in ensemble ${name}, ensemble tensor embedding is mapped from non-existing output logits in model openclip_vit_b32_u8`]:
        withSteps(first, { ...second, output_map: { logits: "embedding" } }),
      [`in ensemble ${name}, ensemble tensor pixels: inconsistent data type: TYPE_UINT8 is inferred from model openclip_vit_b32_preprocess while TYPE_FP32 is inferred from model openclip_vit_b32`]:
        withSteps(first, { ...second, model_name: "openclip_vit_b32" }),
      [`in ensemble ${name}, ensemble tensor embedding: inconsistent shape: [-1,256] is inferred from model ${name} while [-1,512] is inferred from model openclip_vit_b32_u8`]:
        { ...ensemble, output: [{ ...ensemble.output[0]!, dims: [256] }] },
      [`ensemble ${name} allows maximum batch size 64, but it contains model openclip_vit_b32_preprocess which only allows maximum batch size to be 32`]:
        { ...ensemble, max_batch_size: 64 },
      [`ensemble tensor 'pixels' can appear in an output map only once for ensemble '${name}' step 1`]:
        withSteps(first, first, second),
      [`ensemble output 'vector' for ensemble ${name} is not used`]: {
        ...ensemble,
        output: [{ ...ensemble.output[0]!, name: "vector" }],
      },
      [`ensemble input 'mask' for ensemble ${name} is not used`]: {
        ...ensemble,
        input: [...ensemble.input, { ...ensemble.input[0]!, name: "mask" }],
      },
      [`output 'embedding' for ensemble '${name}' is not written`]: withSteps(
        { ...first, input_map: { encoded: "pixels2" } },
        second,
        {
          ...first,
          input_map: { encoded: "pixels" },
          output_map: { pixels: "pixels2" },
        },
      ),
      [`ensemble tensor 'more' is unused in ensemble '${name}'`]: withSteps(first, second, {
        ...first,
        output_map: { pixels: "more" },
      }),
    }),
  )("%s", (problem, config) => {
    expect(problemsOf(config)).toContain(problem);
  });

  test.each(
    Object.entries<Partial<ModelConfig>>({
      "dynamic_batching must not be given for an ensemble: its models have their own": {
        dynamic_batching: {},
      },
      "instance_group must not be given for an ensemble: its models have their own": {
        instance_group: [{ kind: "KIND_CPU" }],
      },
      "ensemble_scheduling must not be given without the platform ensemble": {
        platform: "onnxruntime_onnx",
      },
    }),
  )("%s", (problem, extra) => {
    expect(checkModelConfig({ ...ensemble, ...extra }, { specs: catalogueSpecs })).toEqual([
      `${name}: ${problem}`,
    ]);
  });

  test("an accelerator of another backend, in Python", () => {
    const config = {
      ...modelConfig(spec, "preprocess"),
      optimization: {
        execution_accelerators: { gpu_execution_accelerator: [{ name: "tensorrt" }] },
      },
    };
    expect(checkModelConfig(config, { specs: catalogueSpecs })).toContain(
      "openclip_vit_b32_preprocess: execution_accelerators are for onnxruntime, and python ignores them: remove tensorrt",
    );
  });
});
