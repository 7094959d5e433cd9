import type { ClusterRequirements } from "../../constructs/kubernetes/cluster-requirements.ts";
import { gpuResource } from "../../contract/gpus.ts";
import { podSecurity } from "../../contract/pods.ts";
import { type HostVerdict, merged, noFindings, note, problem } from "../shared/host-verdict.ts";
import type { Problem } from "../shared/problem.ts";
import { isOlder } from "../shared/versions.ts";
import type {
  ClusterFacts,
  ClusterNode,
  LabelSelector,
  PrometheusObject,
} from "./cluster-facts.ts";

type GpuNeeds = NonNullable<ClusterRequirements["gpu"]>;

/** Oldest Kubernetes version that has all APIs of the chart, as `kubeVersion` in Chart.yaml. */
const oldestKubernetes = "1.27";

/** Memory of one GPU in MiB, a label of NVIDIA's GPU feature discovery. */
const memoryLabel = "nvidia.com/gpu.memory";

/** Compares a cluster with the requirements of an environment. */
export function judgeCluster(needs: ClusterRequirements, facts: ClusterFacts): HostVerdict {
  return merged(
    judgeVersion(facts),
    judgeNamespace(needs, facts),
    judgeApis(needs, facts),
    judgeClaims(needs, facts),
    judgeMonitoring(needs, facts),
    needs.gpu === undefined ? noFindings : judgeGpus(needs.gpu, facts),
  );
}

function judgeVersion({ version }: ClusterFacts): HostVerdict {
  if (!isOlder(version, oldestKubernetes)) return noFindings;
  return problem({
    code: "cluster-version",
    message: `Kubernetes must be ${oldestKubernetes} or newer, got ${version}`,
    fix: "upgrade the cluster, or set cluster.context to another one",
  });
}

function judgeNamespace(needs: ClusterRequirements, facts: ClusterFacts): HostVerdict {
  const { namespace, createNamespace, environment } = needs;
  const problems: Problem[] = [];
  const notes: string[] = [];
  if (facts.namespace === undefined) {
    notes.push(`the namespace '${namespace}' was not checked: this context may not read it`);
  }
  if (!createNamespace && facts.namespace === false) {
    problems.push({
      code: "namespace",
      message: `the namespace '${namespace}' must exist, because createNamespace is false`,
      fix: `run 'kubectl create namespace ${namespace}', or set createNamespace to true`,
    });
  }
  if (createNamespace && facts.namespace) {
    notes.push(
      `the namespace '${namespace}' already exists; unless this environment created it, the deployment fails and createNamespace must be false`,
    );
  }
  if (facts.namespace !== false) {
    for (const [at, { kind, name, setting }] of needs.objects.entries()) {
      if (facts.objects[at] === undefined) {
        notes.push(
          `the ${kind} '${name}' (${setting}) was not checked: this context may not read it`,
        );
      }
      if (facts.objects[at] !== false) continue;
      problems.push({
        code: "object",
        message: `the ${kind} '${name}' (${setting}) must exist in the namespace '${namespace}'`,
        fix:
          kind === "secret"
            ? `run 'kubectl create secret … ${name} --namespace ${namespace}' (docs/kubernetes.md)`
            : "create it, with the weights on its volume",
      });
    }
  }
  if (facts.forbidden.length > 0) {
    problems.push({
      code: "permission",
      message: `the user of the context must be allowed to create ${facts.forbidden.join(", ")} in '${namespace}'`,
      fix: `request a role for ${environment}; 'kubectl auth can-i --list --namespace ${namespace}' lists the current permissions`,
    });
  }
  if (facts.unanswered.length > 0) {
    notes.push(
      `permission to create ${facts.unanswered.join(", ")} in '${namespace}' was not checked: the access review failed`,
    );
  }
  return { problems, notes };
}

function judgeApis({ apis }: ClusterRequirements, facts: ClusterFacts): HostVerdict {
  const problems = apis
    .filter(({ groupVersion }) => !facts.apis.includes(groupVersion))
    .map(
      ({ groupVersion, setting, program }): Problem => ({
        code: "cluster-api",
        message: `the cluster must serve ${groupVersion} for ${setting}`,
        fix: `install ${program}, or change the setting`,
      }),
    );
  return { problems, notes: [] };
}

/** Checks that the access modes of a volume allow all pods to mount it. */
function judgeClaims({ objects }: ClusterRequirements, { claims }: ClusterFacts): HostVerdict {
  const verdicts = objects.map(({ name, setting, mountedBy }): HostVerdict => {
    const modes = claims[name];
    if (modes === undefined || modes.length === 0 || mountedBy === undefined) return noFindings;
    if (modes.some((mode) => mode === "ReadWriteMany" || mode === "ReadOnlyMany"))
      return noFindings;
    const { pods, nodes } = mountedBy;
    const claim = `the persistentvolumeclaim '${name}' (${setting}) is ${modes.join(", ")}`;
    const fix =
      "create a claim with ReadWriteMany or ReadOnlyMany, or set model.weights to image or init";
    const onePod = !modes.includes("ReadWriteOnce");
    if (onePod ? pods > 1 : nodes > 1) {
      const needed = onePod
        ? `only one pod can mount it, got up to ${pods}`
        : `only pods of one node can mount it, got ${pods} pods on ${nodes} nodes`;
      return problem({ code: "claim", message: `${claim}: ${needed}`, fix });
    }
    const pending = `${claim}: of its ${pods} pods, those on another node stay pending`;
    return pods > 1 ? note(pending) : noFindings;
  });
  return merged(...verdicts);
}

/** Checks that a Prometheus reads the ServiceMonitors; otherwise the autoscaler would never have a metric. */
function judgeMonitoring(needs: ClusterRequirements, facts: ClusterFacts): HostVerdict {
  // a missing operator is reported by judgeApis
  if (needs.serviceMonitor === undefined || !facts.apis.includes(monitoringApi)) return noFindings;
  const { labels } = needs.serviceMonitor;
  if (facts.prometheuses === undefined) {
    return note("ServiceMonitors were not checked: this context may not list Prometheus objects");
  }
  if (facts.prometheuses.length === 0) {
    return note(
      "the cluster has no Prometheus object: another program must read the ServiceMonitors of this environment",
    );
  }
  const ignoring = facts.prometheuses.map((it) => ignoredReason(it, labels, needs, facts));
  if (ignoring.includes(undefined)) return noFindings;
  return problem({
    code: "service-monitor",
    message: `a Prometheus must read the ServiceMonitors of this environment, got ${ignoring.join("; ")}`,
    fix: "set serviceMonitor.labels to match a serviceMonitorSelector, or set scraping to annotations or none",
  });
}

const monitoringApi = "monitoring.coreos.com/v1";

/** Reason why a Prometheus ignores the ServiceMonitors; undefined if it reads them or this is unknown. */
function ignoredReason(
  { namespace, name, monitors, namespaces }: PrometheusObject,
  labels: Readonly<Record<string, string>>,
  needs: ClusterRequirements,
  facts: ClusterFacts,
): string | undefined {
  const subject = `${namespace}/${name}`;
  if (monitors === undefined) return `${subject} selects none`;
  if (!selects(monitors, labels)) return `${subject} selects ${selectorText(monitors)}`;
  const elsewhere = `${subject} does not select the namespace '${needs.namespace}'`;
  if (namespaces === undefined) return namespace === needs.namespace ? undefined : elsewhere;
  const own = facts.namespaceLabels ?? createdNamespaceLabels(needs, facts);
  return own === undefined || selects(namespaces, own) ? undefined : elsewhere;
}

function createdNamespaceLabels(
  { createNamespace, namespace }: ClusterRequirements,
  facts: ClusterFacts,
) {
  if (!createNamespace || facts.namespace !== false) return undefined;
  return { "kubernetes.io/metadata.name": namespace, [podSecurity.label]: podSecurity.level };
}

/** Returns whether a selector matches labels; an empty selector matches everything. */
function selects(
  { matchLabels = {}, matchExpressions = [] }: LabelSelector,
  labels: Readonly<Record<string, string>>,
): boolean {
  return (
    Object.entries(matchLabels).every(([key, value]) => labels[key] === value) &&
    matchExpressions.every((expression) => fits(expression, labels[expression.key]))
  );
}

function fits(
  { operator, values = [] }: NonNullable<LabelSelector["matchExpressions"]>[number],
  value: string | undefined,
): boolean {
  const isSet = value !== undefined;
  switch (operator) {
    case "In":
      return isSet && values.includes(value);
    case "NotIn":
      return !isSet || !values.includes(value);
    case "Exists":
      return isSet;
    default:
      return !isSet; // DoesNotExist
  }
}

/** `release=monitoring, team In (a, b)` */
function selectorText({ matchLabels = {}, matchExpressions = [] }: LabelSelector): string {
  return [
    ...Object.entries(matchLabels).map(([key, value]) => `${key}=${value}`),
    ...matchExpressions.map(({ key, operator, values = [] }) =>
      values.length === 0 ? `${key} ${operator}` : `${key} ${operator} (${values.join(", ")})`,
    ),
  ].join(", ");
}

function judgeGpus(needs: GpuNeeds, facts: ClusterFacts): HostVerdict {
  const problems: Problem[] = [];
  const notes: string[] = [];
  if (facts.runtimeClass === false) {
    problems.push({
      code: "runtime-class",
      message: `the RuntimeClass '${needs.runtimeClass}' (nodePool.runtimeClass) must exist`,
      fix: "install NVIDIA's GPU operator, or set nodePool.runtimeClass to none if the nodes' default runtime is NVIDIA's",
    });
  }
  for (const { name, hard } of facts.gpuQuotas.filter((quota) => quota.hard < needs.gpus)) {
    problems.push({
      code: "quota",
      message: `the ResourceQuota '${name}' must admit the ${needs.gpus} GPUs of all pods, got ${hard}`,
      fix: "raise the quota, or lower triton.autoscaler.maxReplicas",
    });
  }
  if (facts.nodes === undefined) {
    notes.push("GPUs were not checked: this context may not list nodes");
    return { problems, notes };
  }
  return merged({ problems, notes }, judgeNodes(needs, facts.nodes));
}

function judgeNodes(needs: GpuNeeds, nodes: readonly ClusterNode[]): HostVerdict {
  const problems: Problem[] = [];
  const notes: string[] = [];
  const pool = nodes.filter((node) => isSelected(node, needs) && isTolerated(node, needs));
  const ready = pool.filter((node) => node.ready && node.gpus >= needs.gpusPerNode);
  const gpus = ready.reduce((total, node) => total + node.gpus, 0);
  const gpuNodes = nodes
    .filter((node) => node.gpus > 0)
    .map((node) => `${node.name} has ${node.gpus}${unusableReason(node, needs)}`);
  const declared = `nodePool must have ${needs.nodes} ready nodes with ${needs.gpusPerNode} GPUs, got ${ready.length} (${gpuNodes.join("; ") || `no node offers ${needs.resourceName ?? gpuResource}`})`;
  if (gpus < needs.gpusAtLeast) {
    problems.push({
      code: "gpu-nodes",
      message: `${declared}; the minimum number of pods needs ${needs.gpusAtLeast} GPUs`,
      fix:
        gpuNodes.length === 0
          ? "install NVIDIA's GPU operator or device plugin, or add GPU nodes"
          : "add nodes, or set nodePool (nodes, gpusPerNode, selector, tolerations) to match the cluster",
    });
  } else if (ready.length < needs.nodes) {
    notes.push(`${declared}; further pods stay pending`);
  }
  // the label is that of the whole GPU or of its partition
  for (const node of needs.resourceName === undefined ? ready : []) {
    const memory = Number(node.labels[memoryLabel]);
    if (Number.isFinite(memory) && memory < needs.vramMiB * 0.9) {
      problems.push({
        code: "gpu-memory",
        message: `the GPUs of ${node.name} must have the ${needs.vramMiB} MiB of ${needs.label} (nodePool.gpu), got ${memory}`,
        fix: "set nodePool.gpu to the model of the GPUs",
      });
    }
  }
  return { problems, notes };
}

function isSelected({ labels }: ClusterNode, { selector }: GpuNeeds): boolean {
  return Object.entries(selector).every(([key, value]) => labels[key] === value);
}

/** Returns whether pods can be scheduled despite the taints; PreferNoSchedule does not prevent it. */
function isTolerated({ taints }: ClusterNode, { tolerations }: GpuNeeds): boolean {
  return taints
    .filter(({ effect }) => effect !== "PreferNoSchedule")
    .every((taint) =>
      tolerations.some(
        ({ key, operator, value, effect }) =>
          key === taint.key &&
          (effect === undefined || effect === taint.effect) &&
          (operator === "Exists" || (value ?? "") === (taint.value ?? "")),
      ),
    );
}

function unusableReason(node: ClusterNode, needs: GpuNeeds): string {
  if (!node.ready) return " and is not ready";
  if (!isSelected(node, needs)) return " without the labels of nodePool.selector";
  if (!isTolerated(node, needs)) return " and a taint that nodePool.tolerations does not tolerate";
  return "";
}
