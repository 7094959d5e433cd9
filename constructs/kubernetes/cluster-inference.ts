import { Construct } from "constructs";
import type { Service } from "../../contract/environment.ts";
import { podObjectName } from "../../contract/pods.ts";
import { embedPort, tritonPorts } from "../../contract/ports.ts";
import { check, warn } from "../checks/findings.ts";
import { checkedProps } from "../checks/props.ts";
import type { ServiceEntry } from "../stack/environment-output.ts";
import { clusterChartValues } from "./cluster-chart-values.ts";
import { clusterFindings, clusterWarnings } from "./cluster-findings.ts";
import { type ClusterInferenceProps, type ClusterPlan, clusterPlan } from "./cluster-plan.ts";
import { furtherValuesFindings, withFurtherValues } from "./further-chart-values.ts";
import { HardenedNamespace } from "./hardened-namespace.ts";
import { InferenceChart } from "./inference-chart.ts";
import { podSummary } from "./kubernetes-quantities.ts";
import { clusterApis, monitorLabels, namedObjects } from "./namespace-requirements.ts";
import { RolloutGate } from "./rollout-gate.ts";

/** Embed server and Triton servers in a cluster, deployed with the chart `clipstack` and checked during synthesis. */
export class ClusterInference extends Construct {
  readonly chart: InferenceChart;
  /** Entries of the environment output, the embed server first. */
  readonly services: readonly ServiceEntry[];
  /** Deployments with their numbers of pods, for one line about the stack. */
  readonly summary: string;

  constructor(scope: Construct, id: string, props: ClusterInferenceProps) {
    super(scope, id);

    checkedProps(this, props);
    const { cluster, chartValues = {} } = props;
    const plan = clusterPlan(props);
    const values = clusterChartValues(props, plan);
    check(this, () => [
      ...clusterFindings(props, plan),
      ...furtherValuesFindings(chartValues, values),
    ]);
    warn(this, clusterWarnings(props, plan));

    cluster.setRequirements({
      namespace: props.namespace,
      createNamespace: props.createNamespace,
      gpus: totalGpus(plan, ({ maxReplicas, surge }) => maxReplicas + surge),
      gpusAtLeast: totalGpus(plan, ({ minReplicas }) => minReplicas),
      apis: clusterApis(props, plan),
      objects: namedObjects(props, plan),
      ...(props.scraping === "service-monitor" && {
        serviceMonitor: { labels: monitorLabels(props.serviceMonitor.labels) },
      }),
    });

    const namespace = props.createNamespace
      ? new HardenedNamespace(this, "namespace", props.namespace).namespaceName
      : props.namespace;
    this.chart = new InferenceChart(this, "chart", {
      folder: props.chart,
      namespace,
      values: withFurtherValues(values, chartValues),
      timeoutSeconds: Math.max(...plan.workloads.map(({ rolloutSeconds }) => rolloutSeconds)),
    });

    const services = [embedService(props, plan), tritonService(props, plan)];
    const isDeployed = (name: string) => plan.workloads.some(({ service }) => service === name);
    const resources = { release: this.chart.address };
    this.services = services
      .filter(({ name }) => isDeployed(name))
      .map((service) => ({ service: { ...service, resources }, models: plan.models }));
    this.summary = plan.workloads.map((pods) => podSummary(pods.service, pods)).join(", ");
    const scalesToZero = chartValues.triton?.autoscaling?.scaleToZero?.enabled === true;
    for (const { service, minReplicas, rolloutSeconds } of plan.workloads) {
      new RolloutGate(this, `${service}-ready`, {
        cluster,
        declaredBy: this.chart.release,
        deployment: podObjectName(service),
        namespace: props.namespace,
        // KEDA may have removed the pods of an idle gateway before the gate reads them
        replicas: service === "triton" && scalesToZero ? 0 : minReplicas,
        timeoutSeconds: rolloutSeconds,
      });
    }
  }
}

/** Number of GPUs of all Deployments, each with the number of pods that `pods` returns. */
function totalGpus(
  { workloads }: ClusterPlan,
  pods: (workload: ClusterPlan["workloads"][number]) => number,
): number {
  return workloads.reduce((total, workload) => total + pods(workload) * workload.gpusPerPod, 0);
}

type PlannedService = Omit<Service, "resources">;

function namesOf({ models }: ClusterPlan): string[] {
  return models.map(({ name }) => name);
}

function embedService(
  { embed, namespace }: ClusterInferenceProps,
  plan: ClusterPlan,
): PlannedService {
  const scheme = embed.tls === undefined ? "http" : "https";
  const url = `${scheme}://${podObjectName("embed")}.${namespace}.svc:${embedPort}`;
  return {
    name: "embed",
    kind: "embed",
    backend: embed.backend,
    models: namesOf(plan),
    modelKind: plan.embed.served,
    ...(embed.keySecret !== undefined && { authorization: "bearer" as const }),
    workload: podObjectName("embed"),
    endpoints: [
      { protocol: "embed-http", url, name: "embed-http" },
      { protocol: "metrics", url },
    ],
  };
}

function tritonService(
  { triton, namespace }: ClusterInferenceProps,
  plan: ClusterPlan,
): PlannedService {
  const name = podObjectName("triton");
  const host = `${name}.${namespace}.svc`;
  // never exposed outside the cluster
  const headlessHost = `${name}-grpc.${namespace}.svc`;
  const prefix = triton.backend === "tensorrt" ? "trt" : "onnx";
  return {
    name: "triton",
    kind: "triton",
    backend: triton.backend,
    server: triton.server,
    models: namesOf(plan),
    modelKind: plan.triton.served,
    workload: name,
    endpoints: [
      { protocol: "oip-http", url: `http://${host}:${tritonPorts.http}`, name: `${prefix}-http` },
      { protocol: "oip-grpc", url: `${host}:${tritonPorts.grpc}`, name: `${prefix}-grpc` },
      { protocol: "metrics", url: `http://${headlessHost}:${tritonPorts.metrics}` },
    ],
  };
}
