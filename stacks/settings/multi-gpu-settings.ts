import { z } from "zod";
import {
  accelerator,
  allowRandomWeights,
  baseline,
  downloads,
  embedService,
  gpus,
  host,
  modelRepository,
  modelVersions,
  network,
  optimumBatchSize,
  tracing,
  tritonOnHost,
  tritonOnnx,
  tritonTrt,
  upstream,
  weights,
} from "./docker-settings.ts";
import { models, type WithSpecs } from "./model-settings.ts";
import { monitoring } from "./monitoring-settings.ts";
import { review } from "./review-settings.ts";
import { state } from "./state-settings.ts";

const allGpus = gpus.optional().describe(`${gpus.description} Default: all of \`host.count\`.`);

export const multiGpuSettings = z.strictObject({
  topology: z
    .enum(["instance-group", "per-gpu"])
    .default("instance-group")
    .describe(
      "`instance-group`: one Triton server per backend, across all GPUs. `per-gpu`: one Triton server per GPU.",
    ),
  accelerator,
  host: host(4),
  state,
  review,
  models,
  modelRepository,
  weights,
  downloads,
  allowRandomWeights,
  network,
  tracing,
  embed: z
    .strictObject({
      ...embedService,
      upstream: upstream.describe("With `instance-group`: Triton that the gateway forwards to."),
    })
    .prefault({}),
  tritonOnnx: tritonOnnx(allGpus).describe("Used with `instance-group`."),
  tritonTrt: tritonTrt(allGpus).describe("Used with `instance-group`."),
  perGpu: z
    .strictObject({
      backend: z
        .enum(["onnxruntime", "tensorrt"])
        .default("onnxruntime")
        .describe("Triton backend that executes the model."),
      ...tritonOnHost,
      modelVersions,
      optimumBatchSize: optimumBatchSize.describe(
        "With the backend `tensorrt`: batch size that its kernels are tuned for.",
      ),
      gpus: allGpus.describe(
        "GPUs, with one Triton server each; their ports are 8010-8012, 8020-8022, 8030-8032, … Default: all of `host.count`.",
      ),
    })
    .prefault({})
    .describe("Used with `per-gpu`."),
  baseline,
  monitoring,
});
export type MultiGpuSettings = WithSpecs<z.infer<typeof multiGpuSettings>>;
