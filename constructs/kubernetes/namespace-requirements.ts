import { labelNames, podAppName } from "../../contract/pods.ts";
import type { ClusterInferenceProps, ClusterPlan } from "./cluster-plan.ts";
import type { ClusterRequirements } from "./cluster-requirements.ts";

/** Requirements of the embed server and Triton servers that a cluster must meet before the deployment. */

/** Required APIs that are not part of Kubernetes itself. */
export function clusterApis(
  { embed, triton, scraping }: ClusterInferenceProps,
  { workloads }: ClusterPlan,
): ClusterRequirements["apis"] {
  const isScaled = ({ autoscaler: { minReplicas, maxReplicas } }: typeof embed | typeof triton) =>
    minReplicas < maxReplicas;
  const { metric, source } = triton.autoscaler;
  const hasTriton = workloads.some(({ service }) => service === "triton");
  const cpuScaled = [
    ...(isScaled(embed) ? ["embed.autoscaler"] : []),
    ...(hasTriton && isScaled(triton) && metric === "cpu" ? ["triton.autoscaler.metric cpu"] : []),
  ];
  const scalesOnQueueTime = hasTriton && isScaled(triton) && metric === "queue-time";
  const apiIf = (isRequired: boolean, groupVersion: string, setting: string, program: string) =>
    isRequired ? [{ groupVersion, setting, program }] : [];
  const readsFrom = (name: typeof source) => scalesOnQueueTime && source === name;
  return [
    ...apiIf(cpuScaled.length > 0, "metrics.k8s.io/v1beta1", cpuScaled[0] ?? "", "metrics-server"),
    ...apiIf(readsFrom("keda"), "keda.sh/v1alpha1", "triton.autoscaler.source keda", "KEDA"),
    ...apiIf(
      readsFrom("prometheus-adapter"),
      "custom.metrics.k8s.io/v1beta1",
      "triton.autoscaler.source prometheus-adapter",
      "the Prometheus adapter",
    ),
    ...apiIf(
      scraping === "service-monitor",
      "monitoring.coreos.com/v1",
      "scraping service-monitor",
      "the Prometheus operator",
    ),
  ];
}

/** Existing objects of the namespace that settings name. */
export function namedObjects(
  props: ClusterInferenceProps,
  plan: ClusterPlan,
): ClusterRequirements["objects"] {
  const { imagePullSecret, embed, model } = props;
  return [
    { kind: "secret", name: imagePullSecret, setting: "imagePullSecret" },
    { kind: "secret", name: embed.keySecret, setting: "embed.keySecret" },
    { kind: "secret", name: embed.keysSecret, setting: "embed.keysSecret" },
    { kind: "secret", name: embed.tls?.secret, setting: "embed.tls.secret" },
    {
      kind: "persistentvolumeclaim",
      name: model.weights === "pvc" ? model.claim : undefined,
      setting: "model.claim",
      mountedBy: weightsReaders(props, plan),
    },
  ].filter(({ name }) => name !== undefined) as ClusterRequirements["objects"];
}

/**
 * Maximum number of pods that mount the weights, and minimum number of nodes for them. Gateways mount only tokenizer files. Pods on the
 * CPU may share one node.
 */
function weightsReaders(
  { embed, cluster }: ClusterInferenceProps,
  { workloads, towers }: ClusterPlan,
): { readonly pods: number; readonly nodes: number } {
  const { devicesPerNode: gpusPerNode } = cluster;
  const hasTokenizers = towers.some(({ files }) => files.tokenizer !== undefined);
  const readers = workloads.filter(
    ({ service }) => service !== "embed" || embed.backend === "onnxruntime" || hasTokenizers,
  );
  const total = (each: (workload: ClusterPlan["workloads"][number]) => number) =>
    readers.reduce(
      (sum, workload) => sum + (workload.maxReplicas + workload.surge) * each(workload),
      0,
    );
  const nodesPerDeployment = readers
    .filter(({ gpusPerPod }) => gpusPerPod > 0)
    .map(({ maxReplicas, surge, gpusPerPod }) =>
      Math.ceil((maxReplicas + surge) / Math.max(1, Math.floor(gpusPerNode / gpusPerPod))),
    );
  return {
    pods: total(() => 1),
    nodes: Math.max(
      1,
      Math.ceil(total(({ gpusPerPod }) => gpusPerPod) / gpusPerNode),
      ...nodesPerDeployment,
    ),
  };
}

/** Labels of the ServiceMonitors by which Prometheus can select them. */
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
