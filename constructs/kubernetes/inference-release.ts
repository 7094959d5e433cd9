import { Construct } from "constructs";
import type { Service } from "../../contract/environment.ts";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { defaultModels } from "../../contract/models/index.ts";
import { podObjectName, progressDeadlineSeconds } from "../../contract/pods.ts";
import { addressOf } from "../terraform/cdktf.ts";
import { chartValuesForKind } from "./chart-values-for.ts";
import { InferenceChart } from "./inference-chart.ts";
import {
  checkInference,
  type InferenceDeploymentProps,
  inferenceService,
} from "./inference-deployment.ts";
import { podSummary } from "./kubernetes-quantities.ts";
import { RolloutGate } from "./rollout-gate.ts";

export interface InferenceReleaseProps extends InferenceDeploymentProps {
  /** Folder of the chart `clipstack`, relative to the project. */
  readonly chart: string;
}

/** Objects of `InferenceDeployment`, deployed as a release of the Helm chart `clipstack`. */
export class InferenceRelease extends Construct {
  /** Entry of the environment output. */
  readonly service: Service;
  /** Specs of the served models; the first is the default. */
  readonly models: readonly ModelSpec[];
  /** Name and number of pods, for one line about the stack. */
  readonly summary: string;
  readonly chart: InferenceChart;
  /** Completes when the pods are ready. */
  readonly ready: RolloutGate;

  constructor(scope: Construct, id: string, props: InferenceReleaseProps) {
    super(scope, id);

    const { cluster, namespace, image, autoscaler, models = defaultModels } = props;
    this.models = models;
    this.summary = podSummary(id, autoscaler);
    checkInference(this, props);

    const { embed, ...values } = chartValuesForKind({
      ...props,
      image: image.name,
      quota: namespace.quota,
      limitRange: namespace.limitRange,
    });
    this.chart = new InferenceChart(this, "chart", {
      folder: props.chart,
      namespace: namespace.namespace.namespaceName,
      values: { ...values, embed: { ...embed, podAnnotations: { ...image.annotations } } },
      timeoutSeconds: progressDeadlineSeconds(),
      dependsOn: image.resource === undefined ? undefined : [image.resource],
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
        ...(cluster.resource !== undefined && { cluster: addressOf(cluster.resource) }),
      },
    };
  }
}
