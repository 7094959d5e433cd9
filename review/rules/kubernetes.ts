import { selects } from "../../artefact/cluster-objects.ts";
import type { Quantities } from "../../constructs/checks/kubernetes.ts";
import {
  metricSourceFindings,
  type Pods,
  sharedQuotaFindings,
} from "../../constructs/checks/scaling.ts";
import { gpuResource } from "../../contract/gpus.ts";
import { at, block, cpuMillicores, isSet, map, memoryMiB, number, text } from "../facts/values.ts";
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
} from "../facts/workloads.ts";
import type { StackChange } from "../input/change.ts";
import { each, type ReviewRule, rule } from "./rule.ts";

/** Kubernetes objects that must agree with each other. */
export const kubernetesRules: readonly ReviewRule[] = [
  rule({
    id: "autoscaler-metric-source",
    severity: "error",
    fix: "set triton.autoscaler.prometheus, and scraping to service-monitor or annotations",
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
      );
    }),
  }),
  rule({
    id: "autoscaler-owns-replicas",
    severity: "warning",
    fix: "remove replicas from the Deployment",
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
    fix: "set the selector to the labels of the pods",
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
    fix: "raise the quota, or lower autoscaler.maxReplicas",
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
          yield { address, message: finding };
        }
      }
    },
  }),
  rule({
    id: "gpu-quota-admits-pods",
    severity: "error",
    fix: "raise quota.gpus, or lower triton.autoscaler.maxReplicas",
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
    fix: "raise nodePool.nodes, lower triton.autoscaler.maxReplicas, or set triton.spareGpu to false",
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
    fix: "set both to the same number",
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

/** Returns a quota in which every missing quantity is infinite. */
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
