import type { Construct } from "constructs";
import { BulkEmbeddingJob } from "../constructs/kubernetes/bulk-embedding-job.ts";
import { GpuCluster } from "../constructs/kubernetes/gpu-cluster.ts";
import type { BulkSettings } from "./settings/bulk-settings.ts";
import { InferenceStack } from "./shared/inference-stack.ts";

/** Existing cluster: a Job or CronJob that embeds images into a table. */
export class BulkStack extends InferenceStack {
  constructor(scope: Construct, id: string, settings: BulkSettings) {
    super(scope, id, settings.state);

    const cluster = new GpuCluster(this, "cluster", {
      ...settings.cluster,
      accelerator: settings.accelerator,
      pool: settings.nodePool,
    });
    new BulkEmbeddingJob(this, "job", { ...settings, cluster, chart: "helm/clipstack" });
  }
}
