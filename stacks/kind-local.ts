import type { Construct } from "constructs";
import { TerraformStack } from "../constructs/cdktf.ts";
import { EnvironmentOutput } from "../constructs/environment-output.ts";
import { InferenceDeployment } from "../constructs/inference-deployment.ts";
import { InferenceNamespace } from "../constructs/inference-namespace.ts";
import { KindCluster } from "../constructs/kind-cluster.ts";
import { keepState } from "../constructs/state.ts";
import type { KindLocalSettings } from "./settings.ts";

/** A kind cluster on this machine, with the embed server on CPU: what a cluster adds, without a GPU. */
export class KindLocalStack extends TerraformStack {
  constructor(scope: Construct, id: string, settings: KindLocalSettings) {
    super(scope, id);
    keepState(this, settings.state);

    const { autoscaler, budget, embed, limitRange, quota } = settings;
    const cluster = new KindCluster(this, "cluster", {
      ...settings.cluster,
      images: [embed.image],
    });
    const namespace = new InferenceNamespace(this, "namespace", {
      name: settings.namespace,
      cluster,
      quota,
      limitRange,
    });
    const inference = new InferenceDeployment(this, "embed", {
      ...embed,
      cluster,
      namespace,
      autoscaler,
      budget,
    });

    new EnvironmentOutput(this, "environment", { where: cluster, services: [inference] });
  }
}
