import { labelNames, podAppName } from "../../contract/pods.ts";
import type { ClusterInferenceProps, ClusterPlan } from "./cluster-plan.ts";
import type { ClusterRequirements } from "./cluster-requirements.ts";

/** What must be in a cluster before embed server and Tritons are. */

/** APIs that are no part of Kubernetes itself. */
export function clusterApis(
  { embed, triton, scraping }: ClusterInferenceProps,
  { workloads }: ClusterPlan,
): ClusterRequirements["apis"] {
  const isScaled = ({ autoscaler: { minReplicas, maxReplicas } }: typeof embed | typeof triton) =>
    minReplicas < maxReplicas;
  const { metric, source } = triton.autoscaler;
  const hasTriton = workloads.some(({ service }) => service === "triton");
  const onCpu = [
    ...(isScaled(embed) ? ["embed.autoscaler"] : []),
    ...(hasTriton && isScaled(triton) && metric === "cpu" ? ["triton.autoscaler.metric cpu"] : []),
  ];
  const onQueueTime = hasTriton && isScaled(triton) && metric === "queue-time";
  const adds = (isNeeded: boolean, groupVersion: string, setting: string, program: string) =>
    isNeeded ? [{ groupVersion, setting, program }] : [];
  const bySource = (name: typeof source) => onQueueTime && source === name;
  return [
    ...adds(onCpu.length > 0, "metrics.k8s.io/v1beta1", onCpu[0] ?? "", "metrics-server"),
    ...adds(bySource("keda"), "keda.sh/v1alpha1", "triton.autoscaler.source keda", "KEDA"),
    ...adds(
      bySource("prometheus-adapter"),
      "custom.metrics.k8s.io/v1beta1",
      "triton.autoscaler.source prometheus-adapter",
      "the Prometheus adapter",
    ),
    ...adds(
      scraping === "service-monitor",
      "monitoring.coreos.com/v1",
      "scraping service-monitor",
      "the Prometheus operator",
    ),
  ];
}

/** Objects of the namespace that settings name and nobody here makes. */
export function namedObjects(
  props: ClusterInferenceProps,
  plan: ClusterPlan,
): ClusterRequirements["objects"] {
  const { imagePullSecret, embed, model } = props;
  return [
    { kind: "secret", name: imagePullSecret, setting: "imagePullSecret" },
    { kind: "secret", name: embed.keySecret, setting: "embed.keySecret" },
    {
      kind: "persistentvolumeclaim",
      name: model.weights === "pvc" ? model.claim : undefined,
      setting: "model.claim",
      mountedBy: weightsReaders(props, plan),
    },
  ].filter((it) => it.name !== undefined) as ClusterRequirements["objects"];
}

/** Pods that mount the weights: every one but a gateway. CPU pods may all be on one node. */
function weightsReaders(
  { embed, cluster }: ClusterInferenceProps,
  { workloads }: ClusterPlan,
): { readonly pods: number; readonly nodes: number } {
  const { gpusPerNode } = cluster.pool;
  const readers = workloads.filter(
    ({ service }) => service !== "embed" || embed.backend === "onnxruntime",
  );
  const total = (each: (workload: ClusterPlan["workloads"][number]) => number) =>
    readers.reduce((sum, it) => sum + (it.maxReplicas + it.surge) * each(it), 0);
  const alone = readers
    .filter(({ gpusPerPod }) => gpusPerPod > 0)
    .map(({ maxReplicas, surge, gpusPerPod }) =>
      Math.ceil((maxReplicas + surge) / Math.max(1, Math.floor(gpusPerNode / gpusPerPod))),
    );
  return {
    pods: total(() => 1),
    nodes: Math.max(1, Math.ceil(total(({ gpusPerPod }) => gpusPerPod) / gpusPerNode), ...alone),
  };
}

/** Labels of the ServiceMonitors that somebody may look for. */
export function monitorLabels(
  labels: Readonly<Record<string, string>>,
): Readonly<Record<string, string>> {
  return {
    [labelNames.name]: podAppName,
    [labelNames.instance]: podAppName,
    [labelNames.managedBy]: "Helm",
    ...labels,
  };
}
