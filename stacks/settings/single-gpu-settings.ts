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
  network,
  tracing,
  tritonOnnx,
  tritonTrt,
  upstream,
  weights,
} from "./docker-settings.ts";
import { models, type WithSpecs } from "./model-settings.ts";
import { monitoring } from "./monitoring-settings.ts";
import { review } from "./review-settings.ts";
import { state } from "./state-settings.ts";

export const singleGpuSettings = z.strictObject({
  accelerator,
  host: host(1),
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
      enabled: z.boolean().default(true).describe("`false` omits the service."),
      ...embedService,
      backend: z
        .enum(["onnxruntime", "triton"])
        .default("onnxruntime")
        .describe(
          "`onnxruntime`: ONNX Runtime in the embed server. `triton`: gateway to a Triton server.",
        ),
      upstream,
      gpus: gpus
        .max(1, "must list one GPU: ONNX Runtime in the embed server runs on one")
        .default([0])
        .describe("GPU of ONNX Runtime, by index or by UUID."),
    })
    .prefault({}),
  tritonOnnx: tritonOnnx(gpus.default([0])),
  tritonTrt: tritonTrt(gpus.default([0])),
  baseline,
  monitoring,
});
export type SingleGpuSettings = WithSpecs<z.infer<typeof singleGpuSettings>>;
