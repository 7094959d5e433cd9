import { z } from "zod";
import { chartValues } from "../../constructs/kubernetes/chart-values.ts";
import { kubernetesSettings } from "./kubernetes-settings.ts";
import type { WithSpecs } from "./model-settings.ts";

const {
  embed,
  triton,
  imagePullSecret: _secret,
  quota: _quota,
  ...shared
} = kubernetesSettings.shape;
const { accelerator, state, review, cluster, namespace, createNamespace, models, nodePool } =
  shared;
const chart = chartValues.shape;
const { enabled: _enabled, accelerator: _accelerator, job, ...fields } = chart.bulk.unwrap().shape;

/** Settings of a bulk job; `model` and `job` are those of the chart. */
export const bulkSettings = z.strictObject({
  accelerator: accelerator
    .unwrap()
    .default("cpu")
    .describe(
      "Device of the model. `gpu` adds a Triton server as a sidecar container to each worker.",
    ),
  state,
  review,
  cluster,
  namespace: namespace
    .unwrap()
    .default("bulk")
    .describe("Namespace of the job, without other environments."),
  createNamespace,
  models,
  nodePool,
  model: chart.model,
  image: embed.unwrap().shape.image,
  tritonImage: triton.unwrap().shape.image,
  job: z
    .strictObject({ job: job.default("s3://vectors/job"), ...fields })
    .prefault({})
    .describe("The chart's `bulk`: pods, schedule, limits and network."),
});
export type BulkSettings = WithSpecs<z.infer<typeof bulkSettings>>;
