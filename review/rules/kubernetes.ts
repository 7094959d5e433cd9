import { renderFinding } from "../../constructs/checks/findings.ts";
import type { Quantities } from "../../constructs/checks/kubernetes.ts";
import {
  metricSourceFindings,
  type Pods,
  sharedQuotaFindings,
} from "../../constructs/checks/scaling.ts";
import { gpuResource } from "../../contract/gpus.ts";
import type { StackChange } from "../input/change.ts";
import { selects } from "../input/stack-facts.ts";
import { chartValuesPath, deploymentPath, podContainerPath } from "./example-paths.ts";
import {
  autoscalersOf,
  deploymentsOf,
  environmentOf,
  mayHaveOtherPods,
  namesDeployment,
  ofType,
  podOf,
  podOwnersOf,
  quotasOf,
  releasesOf,
  specOf,
  type Workload,
  workloadsOf,
} from "./facts.ts";
import { each, type ReviewRule, rule } from "./rule.ts";
import { at, block, cpuMillicores, isSet, map, memoryMiB, number, text } from "./values.ts";

/** Kubernetes objects that must agree with each other. */
export const kubernetesRules: readonly ReviewRule[] = [
  rule({
    id: "autoscaler-metric-source",
    severity: "error",
    title: "The queue time metric is available to the autoscaler.",
    rationale:
      "If KEDA has no Prometheus address, or Prometheus does not scrape Triton, the metric is missing and the autoscaler stays at its minimum regardless of the queue.",
    inputs:
      "`triton.autoscaling`, `serviceMonitor` and `triton.podAnnotations` in the chart values.",
    fix: "set triton.autoscaler.prometheus, and scraping to service-monitor or annotations",
    example: {
      stack: "k8s-gpu",
      message:
        "scraping must be service-monitor or annotations when triton.autoscaler.metric is queue-time: otherwise no metrics are collected, got 'none'",
      edits: [
        {
          path: chartValuesPath,
          failingText: '"serviceMonitor": {\n    "enabled": false',
          passingText: '"serviceMonitor": {\n    "enabled": true',
        },
      ],
    },
    find: each(releasesOf, ({ values }) => {
      const autoscaling = block(at(values, "triton", "autoscaling"));
      if (at(values, "triton", "enabled") !== true || autoscaling?.enabled !== true)
        return undefined;
      if (autoscaling.metric !== "queue-time") return undefined;
      const prometheus = text(at(autoscaling, "prometheus", "url")) || undefined;
      const isAnnotated = at(values, "triton", "podAnnotations", "prometheus.io/scrape") === "true";
      const isMonitored = at(values, "serviceMonitor", "enabled") === true;
      return metricSourceFindings(
        "triton",
        {
          metric: "queue-time",
          source: autoscaling.source === "prometheus-adapter" ? "prometheus-adapter" : "keda",
          ...(prometheus !== undefined && { prometheus }),
        },
        isMonitored ? "service-monitor" : isAnnotated ? "annotations" : "none",
        // the chart renders an autoscaler only for a variable replica count
        { minReplicas: 1, maxReplicas: 2 },
      ).map(renderFinding);
    }),
  }),
  rule({
    id: "autoscaler-owns-replicas",
    severity: "warning",
    title: "Deployments with an autoscaler do not set replicas.",
    rationale:
      "Every apply would reset the replica count, even under the load for which the autoscaler added pods.",
    inputs: "`replicas` of Deployments scaled by a typed autoscaler.",
    fix: "remove replicas from the Deployment",
    example: {
      stack: "kind-local",
      message: "replicas should not be set because the autoscaler owns it, got 2",
      edits: [{ path: deploymentPath("replicas"), failing: 2 }],
    },
    find: each(deploymentsOf, (deployment, change) => {
      // a plan contains the replica count set by the autoscaler
      if (change.source === "plan") return undefined;
      const { replicas } = specOf(deployment);
      const isScaled = autoscalersOf(change).some((scaler) =>
        namesDeployment(at(specOf(scaler), "scale_target_ref", "name"), deployment),
      );
      return isScaled && isSet(replicas)
        ? `replicas should not be set because the autoscaler owns it, got ${String(replicas)}`
        : undefined;
    }),
  }),
  rule({
    id: "budget-selects",
    severity: "error",
    title: "PodDisruptionBudgets select existing pods.",
    rationale: "A PodDisruptionBudget that selects no pods protects nothing, without any error.",
    inputs:
      "`selector` of every typed PodDisruptionBudget, and the labels of the stack's pods. Ignored if a release or manifest may contain the pods.",
    fix: "set the selector to the labels of the pods",
    example: {
      stack: "kind-local",
      message:
        "selector must match pods of the stack, got app.kubernetes.io/component=embedder, app.kubernetes.io/instance=clipstack, app.kubernetes.io/name=clipstack",
      edits: [
        {
          path: [
            ...["resource", "kubernetes_pod_disruption_budget_v1", "embed/budget", "spec"],
            ...["selector", "match_labels", "app.kubernetes.io/component"],
          ],
          failing: "embedder",
          passing: "embed",
        },
      ],
    },
    find: each(ofType("kubernetes_pod_disruption_budget"), (budget, change) => {
      const selector = map(at(specOf(budget), "selector", "match_labels"));
      const selected = podOwnersOf(change).some((it) => selects(selector, podOf(it).labels));
      return selected || mayHaveOtherPods(change) || Object.keys(selector).length === 0
        ? undefined
        : `selector must match pods of the stack, got ${labelsText(selector)}`;
    }),
  }),
  rule({
    id: "quota-admits-pods",
    severity: "error",
    title: "Quotas admit all pods at maximum scale, including the surge of a rolling update.",
    rationale:
      "The API server rejects pods above the quota: the autoscaler requests six and gets four, or a rolling update never completes.",
    inputs:
      "Every ResourceQuota, typed and in the chart values, compared with requests, limits, autoscaler bounds and surge of the Deployments in it.",
    fix: "raise the quota, or lower autoscaler.maxReplicas",
    example: {
      stack: "kind-local",
      message:
        "quota.requests.memoryMiB must be at least 7168 (clipstack-embed 7 × 1024), got 4096",
      edits: [
        {
          path: [
            ...["resource", "kubernetes_resource_quota_v1", "namespace/quota", "spec"],
            ...["hard", "requests.memory"],
          ],
          failing: "4Gi",
          passing: "7Gi",
        },
      ],
    },
    *find(change) {
      const workloads = ownWorkloads(change).flatMap((it): Pods[] =>
        it.replicas === undefined
          ? []
          : [
              {
                service: it.name,
                ...it.replicas,
                surge: it.surge,
                resources: { requests: quantities(it.requests), limits: quantities(it.limits) },
              },
            ],
      );
      for (const { address, hard } of quotasOf(change)) {
        const quota = {
          pods: number(hard.pods) ?? Number.POSITIVE_INFINITY,
          requests: quantities(hard, "requests."),
          limits: quantities(hard, "limits."),
        };
        for (const finding of sharedQuotaFindings(workloads, unlimited(quota))) {
          yield { address, message: renderFinding(finding) };
        }
      }
    },
  }),
  rule({
    id: "gpu-quota-admits-pods",
    severity: "error",
    title: "The GPU quota admits all pods at maximum scale.",
    rationale:
      "Pods above the quota are rejected: scale-up stops although requests are queued and GPUs are idle.",
    inputs: `\`requests.${gpuResource}\` of every ResourceQuota, compared with GPUs, bounds and surge of the pods.`,
    fix: "raise quota.gpus, or lower triton.autoscaler.maxReplicas",
    example: {
      stack: "k8s-gpu",
      message: "requests.nvidia.com/gpu of the quota must be at least 4, got 2",
      edits: [
        {
          path: chartValuesPath,
          failingText: `"requests.${gpuResource}": "2"`,
          passingText: `"requests.${gpuResource}": "4"`,
        },
      ],
    },
    find: each(quotasOf, ({ hard }, change) => {
      const needed = gpusAtMost(ownWorkloads(change));
      const name = Object.keys(hard).find((key) => key.startsWith("requests.nvidia.com/")) ?? "";
      const allowed = number(hard[name]);
      return allowed === undefined || needed <= allowed
        ? undefined
        : `${name} of the quota must be at least ${needed}, got ${allowed}`;
    }),
  }),
  rule({
    id: "gpu-pool-holds-pods",
    severity: "error",
    title:
      "The GPU nodes have room for all pods at maximum scale, including the surge of a rolling update.",
    rationale:
      "GPUs are not shared: a pod without a GPU stays pending, and a rolling update that needs a spare GPU never completes.",
    inputs:
      "GPUs, bounds and surge of the pods, compared with the GPUs in the output `environment`.",
    fix: "raise nodePool.nodes, lower triton.autoscaler.maxReplicas, or set triton.spareGpu to false",
    example: {
      stack: "k8s-gpu",
      message: "the cluster must have 5 GPUs for triton (4 + 1) × 1, got 4",
      edits: [
        {
          path: chartValuesPath,
          failingText: '"spareGpu": true',
          passingText: '"spareGpu": false',
        },
      ],
    },
    *find(change) {
      const gpu = environmentOf(change)?.gpu;
      const pods = ownWorkloads(change).filter(({ gpus }) => gpus > 0);
      // pods with parts of GPUs: the number of parts per GPU is unknown here and checked at synth
      if (gpu === undefined || gpu.share !== undefined || pods.length === 0) return;
      const needed = gpusAtMost(pods);
      if (needed <= gpu.count) return;
      const parts = pods.map(
        ({ name, gpus, replicas, surge }) =>
          `${name} (${replicas?.maxReplicas ?? 1} + ${surge}) × ${gpus}`,
      );
      yield {
        address: pods[0]?.address ?? "",
        message: `the cluster must have ${needed} GPUs for ${parts.join(" + ")}, got ${gpu.count}`,
      };
    },
  }),
  rule({
    id: "gpu-limits-equal-requests",
    severity: "error",
    title: "GPU requests equal their limits.",
    rationale:
      "Kubernetes does not overcommit GPUs: it rejects pods with different request and limit.",
    inputs: `\`${gpuResource}\` in requests and limits of the containers of typed Deployments.`,
    fix: "set both to the same number",
    example: {
      stack: "kind-local",
      message: "requests of nvidia.com/gpu must equal its limit (2), got 1",
      edits: [
        {
          path: podContainerPath("resources"),
          failing: {
            requests: { cpu: "250m", memory: "1Gi", [gpuResource]: "1" },
            limits: { cpu: "1", memory: "1536Mi", [gpuResource]: "2" },
          },
          passing: {
            requests: { cpu: "250m", memory: "1Gi", [gpuResource]: "1" },
            limits: { cpu: "1", memory: "1536Mi", [gpuResource]: "1" },
          },
        },
      ],
    },
    find: each(
      (change) => containersOf(workloadsOf(change)),
      ({ requests: { [gpuResource]: request }, limits: { [gpuResource]: limit } }) =>
        request === undefined || request === limit
          ? undefined
          : `requests of ${gpuResource} must equal its limit (${limit ?? "none"}), got ${request}`,
    ),
  }),
];

/** This project's workloads. */
function ownWorkloads(change: StackChange): readonly Workload[] {
  return workloadsOf(change).filter(
    ({ pod, labels }) => pod === undefined || labels["app.kubernetes.io/name"] === "clipstack",
  );
}

/** Containers with the name of their workload, and their own name if the pod has several. */
function containersOf(workloads: readonly Workload[]) {
  return workloads.flatMap(({ address, name, containers }) =>
    containers.map((it) => ({
      ...it,
      address,
      name: containers.length > 1 ? `${name} (${it.name})` : name,
    })),
  );
}

/** GPUs of all pods at maximum scale, including the surge of a rolling update. */
function gpusAtMost(workloads: readonly Workload[]): number {
  return workloads.reduce(
    (sum, { gpus, replicas, surge }) => sum + gpus * ((replicas?.maxReplicas ?? 1) + surge),
    0,
  );
}

function quantities(values: Readonly<Record<string, string>>, prefix = ""): Quantities {
  return {
    cpuMillicores: cpuMillicores(values[`${prefix}cpu`]) ?? 0,
    memoryMiB: memoryMiB(values[`${prefix}memory`]) ?? 0,
  };
}

/** Replaces quantities missing in a quota by infinity. */
function unlimited<Q extends { readonly requests: Quantities; readonly limits: Quantities }>(
  quota: Q,
): Q {
  const open = ({ cpuMillicores: cpu, memoryMiB: memory }: Quantities): Quantities => ({
    cpuMillicores: cpu === 0 ? Number.POSITIVE_INFINITY : cpu,
    memoryMiB: memory === 0 ? Number.POSITIVE_INFINITY : memory,
  });
  return { ...quota, requests: open(quota.requests), limits: open(quota.limits) };
}

function labelsText(labels: Readonly<Record<string, string>>): string {
  return Object.entries(labels)
    .map(([name, value]) => `${name}=${value}`)
    .join(", ");
}
