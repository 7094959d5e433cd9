import type { ClusterRequirements } from "../../constructs/kubernetes/cluster-requirements.ts";
import { podSecurity } from "../../contract/pods.ts";
import { type HostVerdict, merged, note, nothing, problem } from "../host/host-findings.ts";
import type { Problem } from "../problem.ts";
import { isOlder } from "../versions.ts";
import type {
  ClusterFacts,
  ClusterNode,
  LabelSelector,
  PrometheusObject,
} from "./cluster-facts.ts";

type GpuNeeds = NonNullable<ClusterRequirements["gpu"]>;

/** First Kubernetes with all that the chart makes; `kubeVersion` of its Chart.yaml. */
const oldestKubernetes = "1.27";

/** Label of NVIDIA's GPU feature discovery: MiB of one GPU. */
const memoryLabel = "nvidia.com/gpu.memory";

/** Compare a cluster with what an environment needs of it. */
export function judgeCluster(needs: ClusterRequirements, facts: ClusterFacts): HostVerdict {
  return merged(
    judgeVersion(facts),
    judgeNamespace(needs, facts),
    judgeApis(needs, facts),
    judgeClaims(needs, facts),
    judgeMonitoring(needs, facts),
    needs.gpu === undefined ? nothing : judgeGpus(needs.gpu, facts),
  );
}

function judgeVersion({ version }: ClusterFacts): HostVerdict {
  if (!isOlder(version, oldestKubernetes)) return nothing;
  return problem({
    code: "cluster-version",
    message: `Kubernetes must be ${oldestKubernetes} or newer, it is ${version}`,
    fix: "upgrade the cluster, or set cluster.context to another one",
  });
}

function judgeNamespace(needs: ClusterRequirements, facts: ClusterFacts): HostVerdict {
  const { namespace, createNamespace, environment } = needs;
  const problems: Problem[] = [];
  const notes: string[] = [];
  if (facts.namespace === undefined) {
    notes.push(
      `the namespace '${namespace}' cannot be looked at with this context: whether it is there is not known`,
    );
  }
  if (!createNamespace && facts.namespace === false) {
    problems.push({
      code: "namespace",
      message: `there is no namespace '${namespace}', and createNamespace is false`,
      fix: `make it: 'kubectl create namespace ${namespace}', or set createNamespace to true`,
    });
  }
  if (createNamespace && facts.namespace) {
    notes.push(
      `the namespace '${namespace}' is there already: the one that this environment deployed goes on; of any other the deployment says that it exists, and createNamespace must be false`,
    );
  }
  if (facts.namespace !== false) {
    for (const [at, { kind, name, setting }] of needs.objects.entries()) {
      if (facts.objects[at] === undefined) {
        notes.push(
          `the ${kind} '${name}' (${setting}) cannot be looked at with this context: whether it is there is not known`,
        );
      }
      if (facts.objects[at] !== false) continue;
      problems.push({
        code: "object",
        message: `there is no ${kind} '${name}' (${setting}) in the namespace '${namespace}'`,
        fix:
          kind === "secret"
            ? `make it: 'kubectl create secret … ${name} --namespace ${namespace}' (docs/kubernetes.md)`
            : "make it, with the weights on its volume",
      });
    }
  }
  if (facts.forbidden.length > 0) {
    problems.push({
      code: "permission",
      message: `the user of the context may not create ${facts.forbidden.join(", ")} in '${namespace}'`,
      fix: `ask for a role in it that may: 'kubectl auth can-i --list --namespace ${namespace}' shows what ${environment} has`,
    });
  }
  if (facts.unanswered.length > 0) {
    notes.push(
      `whether the user of the context may create ${facts.unanswered.join(", ")} in '${namespace}' is not known: 'kubectl auth can-i' gave no answer`,
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
        message: `the cluster does not serve ${groupVersion}, which ${setting} needs`,
        fix: `install ${program}, or change the setting`,
      }),
    );
  return { problems, notes: [] };
}

/** A volume that one node mounts, or one pod, and pods that cannot all be there. */
function judgeClaims({ objects }: ClusterRequirements, { claims }: ClusterFacts): HostVerdict {
  const verdicts = objects.map(({ name, setting, mountedBy }): HostVerdict => {
    const modes = claims[name];
    if (modes === undefined || modes.length === 0 || mountedBy === undefined) return nothing;
    if (modes.some((mode) => mode === "ReadWriteMany" || mode === "ReadOnlyMany")) return nothing;
    const { pods, nodes } = mountedBy;
    const claim = `the persistentvolumeclaim '${name}' (${setting}) is ${modes.join(", ")}`;
    const fix =
      "make a claim that is ReadWriteMany or ReadOnlyMany, or set model.weights to image or init";
    const onePod = !modes.includes("ReadWriteOnce");
    if (onePod ? pods > 1 : nodes > 1) {
      const needed = onePod
        ? `one pod mounts it, and there are up to ${pods}`
        : `the pods of one node mount it, and ${pods} of them need ${nodes} nodes`;
      return problem({ code: "claim", message: `${claim}: ${needed}`, fix });
    }
    const waiting = `${claim}: those of its ${pods} pods that come to another node wait for it`;
    return pods > 1 ? note(waiting) : nothing;
  });
  return merged(...verdicts);
}

/** ServiceMonitors that no Prometheus reads: an autoscaler would wait for the metric for ever. */
function judgeMonitoring(needs: ClusterRequirements, facts: ClusterFacts): HostVerdict {
  // an operator that is not there is a problem already
  if (needs.serviceMonitor === undefined || !facts.apis.includes(monitoringApi)) return nothing;
  const { labels } = needs.serviceMonitor;
  if (facts.prometheuses === undefined) {
    return note(
      "the Prometheus objects cannot be listed with this context: whether one of them reads the ServiceMonitors of this environment was not looked at",
    );
  }
  if (facts.prometheuses.length === 0) {
    return note(
      "there is no Prometheus object in the cluster: something else must read the ServiceMonitors of this environment",
    );
  }
  const ignoring = facts.prometheuses.map((it) => whyIgnored(it, labels, needs, facts));
  if (ignoring.includes(undefined)) return nothing;
  return problem({
    code: "service-monitor",
    message: `no Prometheus reads the ServiceMonitors of this environment (${ignoring.join("; ")})`,
    fix: "set serviceMonitor.labels to what a serviceMonitorSelector asks for, or scraping to annotations or none",
  });
}

const monitoringApi = "monitoring.coreos.com/v1";

/** Nothing where it reads them, or where that cannot be known. */
function whyIgnored(
  { namespace, name, monitors, namespaces }: PrometheusObject,
  labels: Readonly<Record<string, string>>,
  needs: ClusterRequirements,
  facts: ClusterFacts,
): string | undefined {
  const subject = `${namespace}/${name}`;
  if (monitors === undefined) return `${subject} reads none`;
  if (!selects(monitors, labels)) return `${subject} wants ${selectorText(monitors)}`;
  const elsewhere = `${subject} does not look into the namespace '${needs.namespace}'`;
  if (namespaces === undefined) return namespace === needs.namespace ? undefined : elsewhere;
  const own = facts.namespaceLabels ?? madeLabels(needs, facts);
  return own === undefined || selects(namespaces, own) ? undefined : elsewhere;
}

/** Labels of a namespace that the environment makes. */
function madeLabels({ createNamespace, namespace }: ClusterRequirements, facts: ClusterFacts) {
  if (!createNamespace || facts.namespace !== false) return undefined;
  return { "kubernetes.io/metadata.name": namespace, [podSecurity.label]: podSecurity.level };
}

/** As Kubernetes has it: an empty selector selects everything. */
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
  const isThere = value !== undefined;
  switch (operator) {
    case "In":
      return isThere && values.includes(value);
    case "NotIn":
      return !isThere || !values.includes(value);
    case "Exists":
      return isThere;
    default:
      return !isThere; // DoesNotExist
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
      message: `there is no RuntimeClass '${needs.runtimeClass}' (nodePool.runtimeClass)`,
      fix: "install NVIDIA's GPU operator, or set nodePool.runtimeClass to none where the nodes' default runtime is NVIDIA's",
    });
  }
  for (const { name, hard } of facts.gpuQuotas.filter((quota) => quota.hard < needs.gpus)) {
    problems.push({
      code: "quota",
      message: `the ResourceQuota '${name}' of the namespace admits ${hard} GPUs, and the pods have ${needs.gpus} at their maximum`,
      fix: "have it raised, or lower triton.autoscaler.maxReplicas",
    });
  }
  if (facts.nodes === undefined) {
    notes.push("the nodes cannot be listed with this context: their GPUs were not looked at");
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
  const seen = nodes
    .filter((node) => node.gpus > 0)
    .map((node) => `${node.name} has ${node.gpus}${whyNot(node, needs)}`);
  const declared = `nodePool says ${needs.nodes} × ${needs.gpusPerNode} GPUs, and ${ready.length} such nodes are ready for these pods (${seen.join("; ") || "no node offers nvidia.com/gpu"})`;
  if (gpus < needs.gpusAtLeast) {
    problems.push({
      code: "gpu-nodes",
      message: `${declared}; the fewest pods need ${needs.gpusAtLeast} GPUs`,
      fix:
        seen.length === 0
          ? "install NVIDIA's GPU operator or device plugin, or add GPU nodes"
          : "add nodes, or set nodePool (nodes, gpusPerNode, selector, tolerations) to what is there",
    });
  } else if (ready.length < needs.nodes) {
    notes.push(`${declared}: pods beyond them wait until there are more`);
  }
  for (const node of ready) {
    const memory = Number(node.labels[memoryLabel]);
    if (Number.isFinite(memory) && memory < needs.vramMiB * 0.9) {
      problems.push({
        code: "gpu-memory",
        message: `the GPUs of ${node.name} have ${memory} MiB each, and nodePool.gpu says ${needs.label} with ${needs.vramMiB}`,
        fix: "set nodePool.gpu to the kind of GPU that is there",
      });
    }
  }
  return { problems, notes };
}

function isSelected({ labels }: ClusterNode, { selector }: GpuNeeds): boolean {
  return Object.entries(selector).every(([key, value]) => labels[key] === value);
}

/** Taints with PreferNoSchedule keep nobody away. */
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

function whyNot(node: ClusterNode, needs: GpuNeeds): string {
  if (!node.ready) return ", and is not ready";
  if (!isSelected(node, needs)) return ", and not the labels of nodePool.selector";
  if (!isTolerated(node, needs)) return ", and a taint that nodePool.tolerations does not accept";
  return "";
}
