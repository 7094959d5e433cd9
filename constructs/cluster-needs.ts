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
  return [
    ...onCpu.slice(0, 1).map((setting) => ({
      groupVersion: "metrics.k8s.io/v1beta1",
      setting,
      program: "metrics-server",
    })),
    ...(onQueueTime && source === "keda"
      ? [
          {
            groupVersion: "keda.sh/v1alpha1",
            setting: "triton.autoscaler.source keda",
            program: "KEDA",
          },
        ]
      : []),
    ...(onQueueTime && source === "prometheus-adapter"
      ? [
          {
            groupVersion: "custom.metrics.k8s.io/v1beta1",
            setting: "triton.autoscaler.source prometheus-adapter",
            program: "the Prometheus adapter",
          },
        ]
      : []),
    ...(scraping === "service-monitor"
      ? [
          {
            groupVersion: "monitoring.coreos.com/v1",
            setting: "scraping service-monitor",
            program: "the Prometheus operator",
          },
        ]
      : []),
  ];
}

/** Objects of the namespace that settings name and nobody here makes. */
export function namedObjects(
  props: Pick<ClusterInferenceProps, "imagePullSecret" | "embed" | "model">,
): ClusterRequirements["objects"] {
  const { imagePullSecret, embed, model } = props;
  return [
    { kind: "secret", name: imagePullSecret, setting: "imagePullSecret" },
    { kind: "secret", name: embed.keySecret, setting: "embed.keySecret" },
    {
      kind: "persistentvolumeclaim",
      name: model.weights === "pvc" ? model.claim : undefined,
      setting: "model.claim",
    },
  ].filter((it) => it.name !== undefined) as ClusterRequirements["objects"];
}
