import { z } from "zod";
import type { ClusterRequirements } from "../../constructs/cluster-requirements.ts";
import { accessArgs, answerMs, kubectl } from "./kubectl.ts";
import { runProgram } from "./run-program.ts";
import { UserError } from "./user-error.ts";

/** A cluster, as its API server describes it, with the eyes of the user of the kubeconfig. */
export interface ClusterFacts {
  /** `v1.33.13` */
  readonly version: string;
  /** Absent where the user may not list them. */
  readonly nodes?: readonly ClusterNode[];
  /** Whether the RuntimeClass is there. Absent where the user may not look, or none is needed. */
  readonly runtimeClass?: boolean;
  /** Groups and versions that are served, like `metrics.k8s.io/v1beta1`. */
  readonly apis: readonly string[];
  /** Absent where the user may not look, or nobody answered. */
  readonly namespace?: boolean;
  /** Of the namespace. Absent where it is not there, or the user may not look. */
  readonly namespaceLabels?: Readonly<Record<string, string>>;
  /** Of the objects that are needed, in their order. Absent where the user may not look. */
  readonly objects: readonly (boolean | undefined)[];
  /** Access modes of the claims that are needed, by name. A claim that could not be read is not among them. */
  readonly claims: Readonly<Record<string, readonly string[]>>;
  /** Those of the Prometheus operator, in all namespaces. Absent where the user may not list them, or none is needed. */
  readonly prometheuses?: readonly PrometheusObject[];
  /** Quotas on GPUs that the namespace has and the environment does not make. */
  readonly gpuQuotas: readonly { readonly name: string; readonly hard: number }[];
  /** What the user may not create there, of what is created. */
  readonly forbidden: readonly string[];
  /** Of which nobody answered whether the user may create it. */
  readonly unanswered: readonly string[];
}

/** What the operator makes a Prometheus of. */
export interface PrometheusObject {
  readonly namespace: string;
  readonly name: string;
  /** ServiceMonitors that it reads; absent: none. */
  readonly monitors?: LabelSelector;
  /** Namespaces in which it looks for them; absent: its own. */
  readonly namespaces?: LabelSelector;
}

const labelSelector = z.object({
  matchLabels: z.record(z.string(), z.string()).default({}),
  matchExpressions: z
    .array(
      z.object({
        key: z.string(),
        operator: z.enum(["In", "NotIn", "Exists", "DoesNotExist"]),
        values: z.array(z.string()).default([]),
      }),
    )
    .default([]),
});
/** A selector of Kubernetes: all of it must be so. */
export type LabelSelector = z.infer<typeof labelSelector>;

export interface ClusterNode {
  readonly name: string;
  readonly ready: boolean;
  /** GPUs that pods may have. */
  readonly gpus: number;
  readonly labels: Readonly<Record<string, string>>;
  readonly taints: readonly {
    readonly key: string;
    readonly value?: string;
    readonly effect: string;
  }[];
}

/** Resource that NVIDIA's device plugin offers. */
const gpuResource = "nvidia.com/gpu";

const nodeList = z.object({
  items: z.array(
    z.object({
      metadata: z.object({
        name: z.string(),
        labels: z.record(z.string(), z.string()).default({}),
      }),
      spec: z
        .object({
          unschedulable: z.boolean().default(false),
          taints: z
            .array(z.object({ key: z.string(), value: z.string().optional(), effect: z.string() }))
            .default([]),
        })
        .prefault({}),
      status: z.object({
        allocatable: z.record(z.string(), z.string()).default({}),
        conditions: z.array(z.object({ type: z.string(), status: z.string() })).default([]),
      }),
    }),
  ),
});
const quotaList = z.object({
  items: z.array(
    z.object({
      metadata: z.object({
        name: z.string(),
        labels: z.record(z.string(), z.string()).default({}),
      }),
      spec: z.object({ hard: z.record(z.string(), z.string()).default({}) }),
    }),
  ),
});

const namespaceObject = z.object({
  metadata: z.object({ labels: z.record(z.string(), z.string()).default({}) }),
});
const claimObject = z.object({
  spec: z.object({ accessModes: z.array(z.string()).default([]) }),
});
const prometheusList = z.object({
  items: z.array(
    z.object({
      metadata: z.object({ name: z.string(), namespace: z.string() }),
      spec: z.object({
        serviceMonitorSelector: labelSelector.optional(),
        serviceMonitorNamespaceSelector: labelSelector.optional(),
      }),
    }),
  ),
});

/** What a deployment creates; a Helm release is kept in Secrets. */
const created = [
  "deployments.apps",
  "services",
  "secrets",
  "resourcequotas",
  "networkpolicies.networking.k8s.io",
  "poddisruptionbudgets.policy",
];

/**
 * Look at the cluster that `requirements` are for. It changes nothing.
 *
 * @throws {UserError} in one line where there is no kubectl, no such context, or nobody answers.
 */
export async function readClusterFacts(requirements: ClusterRequirements): Promise<ClusterFacts> {
  const { kubeconfig, context, namespace, gpu, objects, createNamespace, serviceMonitor } =
    requirements;
  const ask = (...args: readonly string[]) => kubectl({ kubeconfig, context }, args);
  // what this user may not see holds nothing up: the deployment may not need it
  const try_ = async (...args: readonly string[]): Promise<string | undefined> => {
    try {
      return await ask(...args);
    } catch (error) {
      if (error instanceof UserError) return undefined;
      throw error;
    }
  };
  const version = z
    .object({ gitVersion: z.string() })
    .parse(JSON.parse(await ask("get", "--raw", "/version"))).gitVersion;
  const exists = async (kind: string, name: string, ...where: readonly string[]) => {
    const text = await try_("get", kind, name, "--ignore-not-found", "--output=name", ...where);
    return text === undefined ? undefined : text.trim() !== "";
  };
  const inNamespace = [`--namespace=${namespace}`];
  const mayCreate = async (resource: string): Promise<boolean | undefined> => {
    const args = ["auth", "can-i", "create", resource, ...inNamespace];
    // it exits with 1 where the answer is no, and where there is none
    const { stdout } = await runProgram(
      "kubectl",
      [...accessArgs({ kubeconfig, context }), ...args],
      { timeoutMs: answerMs },
    );
    return /^yes\b/.test(stdout) ? true : /^no\b/.test(stdout) ? false : undefined;
  };
  /** Nothing where it is not there; undefined where nobody may look. */
  const read = (kind: string, name: string, ...where: readonly string[]) =>
    try_("get", kind, name, "--ignore-not-found", "--output=json", ...where);
  const wanted = [...created, ...(createNamespace ? ["namespaces"] : [])];
  const [nodes, runtimeClass, apis, namespaceText, found, prometheuses, quotas, allowed] =
    await Promise.all([
      gpu === undefined ? undefined : try_("get", "nodes", "--output=json"),
      gpu?.runtimeClass === undefined ? undefined : exists("runtimeclass", gpu.runtimeClass),
      ask("api-versions"),
      read("namespace", namespace),
      Promise.all(
        objects.map(({ kind, name }) =>
          // of a Secret only whether it is there
          kind === "secret" ? exists(kind, name, ...inNamespace) : read(kind, name, ...inNamespace),
        ),
      ),
      serviceMonitor === undefined
        ? undefined
        : try_("get", "prometheuses.monitoring.coreos.com", "--all-namespaces", "--output=json"),
      gpu === undefined
        ? undefined
        : try_("get", "resourcequotas", "--output=json", ...inNamespace),
      Promise.all(wanted.map(mayCreate)),
    ]);
  return {
    version,
    ...(nodes !== undefined && { nodes: nodesIn(nodes) }),
    ...(runtimeClass !== undefined && { runtimeClass }),
    apis: apis.split("\n").filter((line) => line !== ""),
    ...(namespaceText !== undefined && { namespace: namespaceText.trim() !== "" }),
    ...(namespaceText?.trim() && {
      namespaceLabels: namespaceObject.parse(JSON.parse(namespaceText)).metadata.labels,
    }),
    objects: found.map((it) => (typeof it === "string" ? it.trim() !== "" : it)),
    claims: Object.fromEntries(
      objects.flatMap(({ name }, at) => {
        const text = found[at];
        if (typeof text !== "string" || text.trim() === "") return [];
        return [[name, claimObject.parse(JSON.parse(text)).spec.accessModes]];
      }),
    ),
    ...(prometheuses !== undefined && { prometheuses: prometheusesIn(prometheuses) }),
    gpuQuotas: quotas === undefined ? [] : gpuQuotasIn(quotas),
    forbidden: wanted.filter((_, at) => allowed[at] === false),
    unanswered: wanted.filter((_, at) => allowed[at] === undefined),
  };
}

function nodesIn(json: string): readonly ClusterNode[] {
  return nodeList.parse(JSON.parse(json)).items.map(({ metadata, spec, status }) => ({
    name: metadata.name,
    ready:
      !spec.unschedulable &&
      status.conditions.some(({ type, status: state }) => type === "Ready" && state === "True"),
    gpus: Number(status.allocatable[gpuResource] ?? 0),
    labels: metadata.labels,
    taints: spec.taints,
  }));
}

function prometheusesIn(json: string): readonly PrometheusObject[] {
  return prometheusList.parse(JSON.parse(json)).items.map(({ metadata, spec }) => ({
    namespace: metadata.namespace,
    name: metadata.name,
    ...(spec.serviceMonitorSelector !== undefined && { monitors: spec.serviceMonitorSelector }),
    ...(spec.serviceMonitorNamespaceSelector !== undefined && {
      namespaces: spec.serviceMonitorNamespaceSelector,
    }),
  }));
}

/** The chart's own carries its label, and changes with the deployment. */
function gpuQuotasIn(json: string): ClusterFacts["gpuQuotas"] {
  return quotaList.parse(JSON.parse(json)).items.flatMap(({ metadata, spec }) => {
    const hard = spec.hard[`requests.${gpuResource}`];
    const own = metadata.labels["app.kubernetes.io/name"] === "clipstack";
    return hard === undefined || own ? [] : [{ name: metadata.name, hard: Number(hard) }];
  });
}
