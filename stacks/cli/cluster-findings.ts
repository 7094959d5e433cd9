import type { ClusterRequirements } from "../../constructs/cluster-requirements.ts";
import type { ClusterFacts, ClusterNode } from "./cluster-facts.ts";
import type { HostVerdict } from "./host-findings.ts";
import type { Problem } from "./problem.ts";

type GpuNeeds = NonNullable<ClusterRequirements["gpu"]>;

/** First Kubernetes with all that the chart makes; `kubeVersion` of its Chart.yaml. */
const oldestMinor = 27;

/** Label of NVIDIA's GPU feature discovery: MiB of one GPU. */
const memoryLabel = "nvidia.com/gpu.memory";

/** Compare a cluster with what an environment needs of it. */
export function judgeCluster(needs: ClusterRequirements, facts: ClusterFacts): HostVerdict {
  const parts = [
    judgeVersion(facts),
    judgeNamespace(needs, facts),
    judgeApis(needs, facts),
    needs.gpu === undefined ? nothing : judgeGpus(needs.gpu, facts),
  ];
  return {
    problems: parts.flatMap(({ problems }) => problems),
    notes: parts.flatMap(({ notes }) => notes),
  };
}

const nothing: HostVerdict = { problems: [], notes: [] };

function judgeVersion({ version }: ClusterFacts): HostVerdict {
  const [, major, minor] = /^v(\d+)\.(\d+)/.exec(version) ?? [];
  if (Number(major) !== 1 || Number(minor) >= oldestMinor) return nothing;
  return {
    problems: [
      {
        code: "cluster-version",
        message: `Kubernetes must be 1.${oldestMinor} or newer, it is ${version}`,
        fix: "upgrade the cluster, or set cluster.context to another one",
      },
    ],
    notes: [],
  };
}

function judgeNamespace(needs: ClusterRequirements, facts: ClusterFacts): HostVerdict {
  const { namespace, createNamespace, environment } = needs;
  const problems: Problem[] = [];
  const notes: string[] = [];
  if (!createNamespace && !facts.namespace) {
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
  if (facts.namespace) {
    for (const [at, { kind, name, setting }] of needs.objects.entries()) {
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

function merged(a: HostVerdict, b: HostVerdict): HostVerdict {
  return { problems: [...a.problems, ...b.problems], notes: [...a.notes, ...b.notes] };
}
