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
import {
  ApiRejection,
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
  /** Existence of each required object, in order; undefined if it could not be read. */
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
  /** Selector of ServiceMonitors; absent: none. */
  readonly monitors?: LabelSelector;
  /** Selector of their namespaces; absent: its own. */
  readonly namespaces?: LabelSelector;
}

/** Label selector of Kubernetes; all parts must match. */
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

/** Resource of NVIDIA's device plugin. */
const gpuResource = "nvidia.com/gpu";

/** Prometheus object as stored. */
interface Prometheus {
  readonly metadata: { readonly name: string; readonly namespace: string };
  readonly spec: {
    readonly serviceMonitorSelector?: LabelSelector;
    readonly serviceMonitorNamespaceSelector?: LabelSelector;
  };
}

/** Resources that a deployment creates; Helm stores releases in Secrets. */
const created = [
  "deployments.apps",
  "services",
  "secrets",
  "resourcequotas",
  "networkpolicies.networking.k8s.io",
  "poddisruptionbudgets.policy",
];

/**
 * Reads the facts of a cluster that `requirements` concern, without changing anything.
 *
 * @throws {UserError} one line, if the context does not exist or the cluster does not respond.
 */
export async function readClusterFacts(requirements: ClusterRequirements): Promise<ClusterFacts> {
  const { kubeconfig, context, namespace, gpu, objects, createNamespace, serviceMonitor } =
    requirements;
  const api = await openCluster({ kubeconfig, context });
  // unreadable facts are no error, because the deployment may not need them
  const orUnknown = async <T>(read: Promise<T>): Promise<T | "unknown"> => {
    try {
      return await read;
    } catch (error) {
      if (error instanceof ApiRejection || error instanceof ClusterUnreachable) return "unknown";
      throw error;
    }
  };
  const mayCreate = async (resource: string): Promise<boolean | undefined> => {
    const [plural, ...group] = resource.split(".");
    const review = await orUnknown(
      api.post<V1SelfSubjectAccessReview>(
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        {
          apiVersion: "authorization.k8s.io/v1",
          kind: "SelfSubjectAccessReview",
          spec: {
            resourceAttributes: {
              ...{ verb: "create", group: group.join("."), resource: plural },
              ...(resource !== "namespaces" && { namespace }),
            },
          },
        },
      ),
    );
    return review === "unknown" ? undefined : review.status?.allowed;
  };
  const objectOf = ({ kind, name }: ClusterRequirements["objects"][number]) =>
    orUnknown(
      api.get<Stored<V1PersistentVolumeClaim>>(namespacedPath(namespace, "v1", `${kind}s`, name)),
    );
  try {
    const version = await api.get<VersionInfo>("/version");
    const resources = [...created, ...(createNamespace ? ["namespaces"] : [])];
    const [nodes, runtimeClass, groups, namespaceObject, found, prometheuses, quotas, allowed] =
      await Promise.all([
        gpu && orUnknown(api.list<NodeObject>("/api/v1/nodes")),
        gpu?.runtimeClass &&
          orUnknown(api.get(`/apis/node.k8s.io/v1/runtimeclasses/${gpu.runtimeClass}`)),
        api.get<V1APIGroupList>("/apis"),
        orUnknown(
          api.get<Stored<{ metadata?: object; spec?: object }>>(`/api/v1/namespaces/${namespace}`),
        ),
        Promise.all(objects.map(objectOf)),
        serviceMonitor &&
          orUnknown(
            api.get<{ readonly items: readonly Prometheus[] }>(
              "/apis/monitoring.coreos.com/v1/prometheuses",
            ),
          ),
        gpu && orUnknown(api.list<ClusterQuota>(namespacedPath(namespace, "v1", "resourcequotas"))),
        Promise.all(resources.map(mayCreate)),
      ]);
    return {
      version: version?.gitVersion ?? "unknown",
      ...(nodes && nodes !== "unknown" && { nodes: nodesIn(nodes) }),
      ...(gpu?.runtimeClass &&
        runtimeClass !== "unknown" && { runtimeClass: runtimeClass !== undefined }),
      apis: [
        "v1",
        ...(groups?.groups ?? []).flatMap(({ versions }) => versions.map((it) => it.groupVersion)),
      ],
      ...(namespaceObject !== "unknown" && { namespace: namespaceObject !== undefined }),
      ...(namespaceObject !== undefined &&
        namespaceObject !== "unknown" && {
          namespaceLabels: namespaceObject.metadata.labels ?? {},
        }),
      objects: found.map((it) => (it === "unknown" ? undefined : it !== undefined)),
      claims: Object.fromEntries(
        objects.flatMap(({ kind, name }, at) => {
          const claim = found[at];
          if (kind === "secret" || claim === undefined || claim === "unknown") return [];
          return [[name, claim.spec.accessModes ?? []]];
        }),
      ),
      ...(prometheuses &&
        prometheuses !== "unknown" && { prometheuses: prometheuses.items.map(prometheusOf) }),
      gpuQuotas: quotas === undefined || quotas === "unknown" ? [] : gpuQuotasIn(quotas),
      forbidden: resources.filter((_, at) => allowed[at] === false),
      unanswered: resources.filter((_, at) => allowed[at] === undefined),
    };
  } finally {
    await api.close();
  }
}

function nodesIn(nodes: readonly NodeObject[]): readonly ClusterNode[] {
  return nodes.map(({ metadata, spec, status }) => ({
    name: metadata.name,
    ready:
      !spec.unschedulable &&
      (status?.conditions ?? []).some((it) => it.type === "Ready" && it.status === "True"),
    gpus: Number(status?.allocatable?.[gpuResource] ?? 0),
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

/** Quotas on GPUs, without that of the chart, which changes with the deployment. */
function gpuQuotasIn(quotas: readonly ClusterQuota[]): ClusterFacts["gpuQuotas"] {
  return quotas.flatMap(({ metadata, spec }) => {
    const hard = spec.hard?.[`requests.${gpuResource}`];
    const own = metadata.labels?.["app.kubernetes.io/name"] === "clipstack";
    return hard === undefined || own ? [] : [{ name: metadata.name, hard: Number(hard) }];
  });
}
