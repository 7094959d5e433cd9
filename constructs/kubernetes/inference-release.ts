import { Construct } from "constructs";
import type { Service } from "../../contract/environment.ts";
import { podObjectName, progressDeadlineSeconds } from "../../contract/pods.ts";
import { chartValuesForKind } from "./chart-values-for.ts";
import { InferenceChart } from "./inference-chart.ts";
import {
  checkInference,
  type InferenceDeploymentProps,
  inferenceService,
} from "./inference-deployment.ts";
import { RolloutGate } from "./rollout-gate.ts";

/** The embed server in a kind cluster, from the project's Helm chart: the objects of `InferenceDeployment`. */
export class InferenceRelease extends Construct {
  /** What the environment output says of it. */
  readonly service: Service;
  readonly minReplicas: number;
  readonly maxReplicas: number;
  readonly chart: InferenceChart;
  /** Done when the pods are ready. */
  readonly ready: RolloutGate;

  constructor(scope: Construct, id: string, props: InferenceDeploymentProps) {
    super(scope, id);

    const { cluster, namespace, image, autoscaler } = props;
    this.minReplicas = autoscaler.minReplicas;
    this.maxReplicas = autoscaler.maxReplicas;
    checkInference(this, props);

    const { embed, ...values } = chartValuesForKind({
      ...props,
      image: image.name,
      quota: namespace.quota,
      limitRange: namespace.limitRange,
    });
    this.chart = new InferenceChart(this, "chart", {
      namespace: namespace.namespace.metadata.name,
      values: { ...values, embed: { ...embed, podAnnotations: image.annotations } },
      timeoutSeconds: progressDeadlineSeconds(),
      waits: "gate",
      dependsOn: [image.loaded],
    });
    this.ready = new RolloutGate(this, "ready", {
      cluster,
      declaredBy: this.chart.release,
      deployment: podObjectName("embed"),
      namespace: namespace.name,
      replicas: autoscaler.minReplicas,
      timeoutSeconds: progressDeadlineSeconds(),
    });
    this.service = {
      ...inferenceService(id, props),
      resources: {
        release: this.chart.address,
        cluster: `terraform_data.${cluster.cluster.friendlyUniqueId}`,
      },
    };
  }
}
