import type { Construct } from "constructs";
import { ClusterInference } from "../constructs/kubernetes/cluster-inference.ts";
import { GpuCluster } from "../constructs/kubernetes/gpu-cluster.ts";
import { EnvironmentOutput } from "../constructs/stack/environment-output.ts";
import { packagedPath } from "../model-tools/files/folders.ts";
import type { KubernetesSettings } from "./settings/kubernetes-settings.ts";
import { clusterImageNotes } from "./shared/cluster-images.ts";
import { InferenceStack } from "./shared/inference-stack.ts";

/** Existing cluster with GPU nodes: embed servers as gateways to Triton servers, installed with the chart. */
export class KubernetesStack extends InferenceStack {
  override readonly notes: readonly string[];

  constructor(scope: Construct, id: string, settings: KubernetesSettings) {
    super(scope, id, settings.state);
    this.notes = clusterImageNotes(id, settings);

    const cluster = new GpuCluster(this, "cluster", {
      ...settings.cluster,
      accelerator: settings.accelerator,
      pool: settings.nodePool,
    });
    const inference = new ClusterInference(this, "inference", {
      ...settings,
      cluster,
      chart: packagedPath("helm/clipstack"),
    });

    this.environment = new EnvironmentOutput(this, "environment", {
      where: cluster.locationOf(settings.namespace),
      services: inference.services,
    });
  }
}
