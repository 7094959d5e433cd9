import type { Construct } from "constructs";
import { TerraformStack } from "../constructs/cdktf.ts";
import { EnvironmentOutput } from "../constructs/environment-output.ts";
import { ClusterInference } from "../constructs/kubernetes/cluster-inference.ts";
import { GpuCluster } from "../constructs/kubernetes/gpu-cluster.ts";
import { keepState } from "../constructs/state.ts";
import type { KubernetesSettings } from "./kubernetes-settings.ts";

/** A cluster with GPU nodes, where one machine is not enough: the chart, embed servers in front of Tritons. */
export class KubernetesStack extends TerraformStack {
  constructor(scope: Construct, id: string, settings: KubernetesSettings) {
    super(scope, id);
    keepState(this, settings.state);

    const cluster = new GpuCluster(this, "cluster", {
      ...settings.cluster,
      accelerator: settings.accelerator,
      pool: settings.nodePool,
    });
    const inference = new ClusterInference(this, "inference", {
      ...settings,
      cluster,
      chart: "helm/clipstack",
    });

    new EnvironmentOutput(this, "environment", {
      where: cluster.placeOf(settings.namespace),
      services: inference.services,
    });
  }
}
