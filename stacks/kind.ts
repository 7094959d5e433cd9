import type { Construct } from "constructs";
import { KindCluster } from "../constructs/kind/kind-cluster.ts";
import { KindImage } from "../constructs/kind/kind-image.ts";
import { MetricsServer } from "../constructs/kind/metrics-server.ts";
import { InferenceDeployment } from "../constructs/kubernetes/inference-deployment.ts";
import { InferenceNamespace } from "../constructs/kubernetes/inference-namespace.ts";
import { InferenceRelease } from "../constructs/kubernetes/inference-release.ts";
import { EnvironmentOutput } from "../constructs/stack/environment-output.ts";
import { packagedPath } from "../model-tools/files/folders.ts";
import type { KindSettings } from "./settings/kind-settings.ts";
import { kindImage } from "./shared/image-builds.ts";
import { InferenceStack } from "./shared/inference-stack.ts";

/** Kind cluster on this machine with the embed server on CPU. */
export class KindStack extends InferenceStack {
  constructor(scope: Construct, id: string, settings: KindSettings) {
    super(scope, id, settings.state);

    const { autoscaler, budget, deployWith, embed, limitRange, models, quota } = settings;
    const cluster = new KindCluster(this, "cluster", settings.cluster);
    this.host = cluster;
    const image = new KindImage(this, "image", {
      cluster,
      source:
        embed.image.source === "local"
          ? embed.image
          : kindImage(embed.image, models, embed.server?.modelPrecision),
    });
    new MetricsServer(this, "metrics-server", { cluster, ...settings.metricsServer });
    const namespace = new InferenceNamespace(this, "namespace", {
      name: settings.namespace,
      cluster,
      deployWith,
      quota,
      limitRange,
    });
    const Inference = { kubernetes: InferenceDeployment, helm: InferenceRelease }[deployWith];
    const inference = new Inference(this, "embed", {
      ...embed,
      cluster,
      chart: packagedPath("helm/clipstack"),
      namespace,
      image,
      models,
      autoscaler,
      budget,
    });

    this.environment = new EnvironmentOutput(this, "environment", {
      where: {
        context: cluster.context,
        kubeconfig: settings.cluster.kubeconfig,
        namespace: namespace.name,
      },
      services: [inference],
    });
  }
}
