import type {
  V1APIGroupList,
  V1LabelSelector,
  V1PersistentVolumeClaim,
  V1SelfSubjectAccessReview,
  VersionInfo,
} from "@kubernetes/client-node";
import type {
  ClusterQuota,
  ClusterNode as NodeObject,
  Stored,
  Wire,
} from "../../artefact/cluster-objects.ts";
import type { ClusterRequirements } from "../../constructs/kubernetes/cluster-requirements.ts";
import { gpuResource } from "../../contract/gpus.ts";
import {
  ApiRejection,
  type ClusterApi,
  ClusterUnreachable,
  namespacedPath,
  openCluster,
} from "../../verify/cluster/cluster-api.ts";

/** Facts of a cluster that the user of the kubeconfig may read. */
export interface ClusterFacts {
  /** `v1.33.13` */
  readonly version: string;
  /** Absent if the user may not list them. */
  readonly nodes?: readonly ClusterNode[];
  /** Whether the RuntimeClass exists. Absent if the user may not read it, or none is required. */
  readonly runtimeClass?: boolean;
  /** Served groups and versions, such as `metrics.k8s.io/v1beta1`. */
  readonly apis: readonly string[];
  /** Whether the namespace exists. Absent if it could not be read. */
  readonly namespace?: boolean;
  /** Labels of the namespace. Absent if it does not exist or could not be read. */
  readonly namespaceLabels?: Readonly<Record<string, string>>;
  /** Whether each required object exists, in the order of the requirements; undefined if the object could not be read. */
  readonly objects: readonly (boolean | undefined)[];
  /** Access modes of the required claims by name, without unreadable claims. */
  readonly claims: Readonly<Record<string, readonly string[]>>;
  /** Prometheus objects of the operator in all namespaces. Absent if the user may not list them, or none is required. */
  readonly prometheuses?: readonly PrometheusObject[];
  /** GPU quotas of the namespace that the environment does not create. */
  readonly gpuQuotas: readonly { readonly name: string; readonly hard: number }[];
  /** Resources of a deployment that the user may not create. */
  readonly forbidden: readonly string[];
  /** Resources whose permission could not be checked. */
  readonly unanswered: readonly string[];
}

/** Prometheus object of the operator. */
export interface PrometheusObject {
  readonly namespace: string;
  readonly name: string;
  /** Selector of the ServiceMonitors that this Prometheus reads; if absent, it reads none. */
  readonly monitors?: LabelSelector;
  /** Selector of the namespaces with those ServiceMonitors; if absent, only the namespace of this Prometheus. */
  readonly namespaces?: LabelSelector;
}

/** Label selector of Kubernetes. An object matches if all conditions hold. */
export type LabelSelector = Wire<V1LabelSelector>;

export interface ClusterNode {
  readonly name: string;
  readonly ready: boolean;
  /** Allocatable GPUs. */
  readonly gpus: number;
  readonly labels: Readonly<Record<string, string>>;
  readonly taints: readonly {
    readonly key: string;
    readonly value?: string;
    readonly effect: string;
  }[];
}

interface Prometheus {
  readonly metadata: { readonly name: string; readonly namespace: string };
  readonly spec: {
    readonly serviceMonitorSelector?: LabelSelector;
    readonly serviceMonitorNamespaceSelector?: LabelSelector;
  };
}

/** Resources that a deployment creates; Helm stores releases in Secrets. */
const createdResources = [
  "deployments.apps",
  "services",
  "secrets",
  "resourcequotas",
  "networkpolicies.networking.k8s.io",
  "poddisruptionbudgets.policy",
];

/** Reads the facts of a cluster that `requirements` concern, without changing anything. */
export async function readClusterFacts(requirements: ClusterRequirements): Promise<ClusterFacts> {
  const { kubeconfig, context, serviceMonitor } = requirements;
  const api = await openCluster({ kubeconfig, context });
  try {
    const version = await api.get<VersionInfo>("/version");
    const [groups, gpu, namespace, objects, prometheuses, permissions] = await Promise.all([
      api.get<V1APIGroupList>("/apis"),
      readGpuFacts(api, requirements),
      readNamespace(api, requirements),
      readObjects(api, requirements),
      serviceMonitor ? readPrometheuses(api) : undefined,
      readPermissions(api, requirements),
    ]);
    return {
      version: version?.gitVersion ?? "unknown",
      apis: [
        "v1",
        ...(groups?.groups ?? []).flatMap(({ versions }) => versions.map((it) => it.groupVersion)),
      ],
      ...gpu,
      ...namespace,
      ...objects,
      ...(prometheuses && { prometheuses }),
      ...permissions,
    };
  } finally {
    await api.close();
  }
}

/** Awaits a read. Unreadable facts are no error, because the deployment may not need them. */
async function orUnknown<T>(read: Promise<T>): Promise<T | "unknown"> {
  try {
    return await read;
  } catch (error) {
    if (error instanceof ApiRejection || error instanceof ClusterUnreachable) return "unknown";
    throw error;
  }
}

async function readGpuFacts(
  api: ClusterApi,
  { gpu, namespace }: ClusterRequirements,
): Promise<Pick<ClusterFacts, "nodes" | "runtimeClass" | "gpuQuotas">> {
  if (gpu === undefined) return { gpuQuotas: [] };
  const [nodes, runtimeClass, quotas] = await Promise.all([
    orUnknown(api.list<NodeObject>("/api/v1/nodes")),
    gpu.runtimeClass === undefined
      ? "unknown"
      : orUnknown(api.get(`/apis/node.k8s.io/v1/runtimeclasses/${gpu.runtimeClass}`)),
    orUnknown(api.list<ClusterQuota>(namespacedPath(namespace, "v1", "resourcequotas"))),
  ]);
  return {
    ...(nodes !== "unknown" && { nodes: nodesIn(nodes, gpu.resourceName) }),
    ...(runtimeClass !== "unknown" && { runtimeClass: runtimeClass !== undefined }),
    gpuQuotas: quotas === "unknown" ? [] : gpuQuotasIn(quotas, gpu.resourceName),
  };
}

async function readNamespace(
  api: ClusterApi,
  { namespace }: ClusterRequirements,
): Promise<Pick<ClusterFacts, "namespace" | "namespaceLabels">> {
  const path = `/api/v1/namespaces/${namespace}`;
  const found = await orUnknown(api.get<Stored<{ metadata?: object; spec?: object }>>(path));
  if (found === "unknown") return {};
  if (found === undefined) return { namespace: false };
  return { namespace: true, namespaceLabels: found.metadata.labels ?? {} };
}

async function readObjects(
  api: ClusterApi,
  { namespace, objects }: ClusterRequirements,
): Promise<Pick<ClusterFacts, "objects" | "claims">> {
  const found = await Promise.all(
    objects.map(({ kind, name }) =>
      orUnknown(
        api.get<Stored<V1PersistentVolumeClaim>>(namespacedPath(namespace, "v1", `${kind}s`, name)),
      ),
    ),
  );
  const claims = objects.flatMap(({ kind, name }, index) => {
    const claim = found[index];
    if (kind === "secret" || claim === undefined || claim === "unknown") return [];
    return [[name, claim.spec.accessModes ?? []] as const];
  });
  return {
    objects: found.map((object) => (object === "unknown" ? undefined : object !== undefined)),
    claims: Object.fromEntries(claims),
  };
}

async function readPrometheuses(api: ClusterApi): Promise<ClusterFacts["prometheuses"]> {
  const path = "/apis/monitoring.coreos.com/v1/prometheuses";
  const found = await orUnknown(api.get<{ readonly items: readonly Prometheus[] }>(path));
  return found === "unknown" ? undefined : found?.items.map(prometheusOf);
}

async function readPermissions(
  api: ClusterApi,
  { namespace, createNamespace }: ClusterRequirements,
): Promise<Pick<ClusterFacts, "forbidden" | "unanswered">> {
  const mayCreate = async (resource: string): Promise<boolean | undefined> => {
    const [plural, ...group] = resource.split(".");
    const resourceAttributes = {
      ...{ verb: "create", group: group.join("."), resource: plural },
      ...(resource !== "namespaces" && { namespace }),
    };
    const review = await orUnknown(
      api.post<V1SelfSubjectAccessReview>(
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        {
          apiVersion: "authorization.k8s.io/v1",
          kind: "SelfSubjectAccessReview",
          spec: { resourceAttributes },
        },
      ),
    );
    return review === "unknown" ? undefined : review.status?.allowed;
  };
  const resources = [...createdResources, ...(createNamespace ? ["namespaces"] : [])];
  const allowed = await Promise.all(resources.map(mayCreate));
  return {
    forbidden: resources.filter((_, index) => allowed[index] === false),
    unanswered: resources.filter((_, index) => allowed[index] === undefined),
  };
}

function nodesIn(nodes: readonly NodeObject[], resourceName = gpuResource): readonly ClusterNode[] {
  return nodes.map(({ metadata, spec, status }) => ({
    name: metadata.name,
    ready:
      !spec.unschedulable &&
      (status?.conditions ?? []).some((it) => it.type === "Ready" && it.status === "True"),
    gpus: Number(status?.allocatable?.[resourceName] ?? 0),
    labels: metadata.labels ?? {},
    taints: spec.taints ?? [],
  }));
}

function prometheusOf({ metadata, spec }: Prometheus): PrometheusObject {
  return {
    namespace: metadata.namespace,
    name: metadata.name,
    ...(spec.serviceMonitorSelector !== undefined && { monitors: spec.serviceMonitorSelector }),
    ...(spec.serviceMonitorNamespaceSelector !== undefined && {
      namespaces: spec.serviceMonitorNamespaceSelector,
    }),
  };
}

/** Returns the quotas on GPUs, except the quota of the chart, because the deployment changes it. */
function gpuQuotasIn(
  quotas: readonly ClusterQuota[],
  resourceName = gpuResource,
): ClusterFacts["gpuQuotas"] {
  return quotas.flatMap(({ metadata, spec }) => {
    const hard = spec.hard?.[`requests.${resourceName}`];
    const own = metadata.labels?.["app.kubernetes.io/name"] === "clipstack";
    return hard === undefined || own ? [] : [{ name: metadata.name, hard: Number(hard) }];
  });
}
