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

/** A selector of Kubernetes: all of it must be so. */
export type LabelSelector = Wire<V1LabelSelector>;

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

/** What is read of an object of the Prometheus operator. */
interface Prometheus {
  readonly metadata: { readonly name: string; readonly namespace: string };
  readonly spec: {
    readonly serviceMonitorSelector?: LabelSelector;
    readonly serviceMonitorNamespaceSelector?: LabelSelector;
  };
}

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
 * Reads what `requirements` need of the cluster. It changes nothing.
 *
 * @throws {UserError} in one line if there is no such context, or the cluster does not answer.
 */
export async function readClusterFacts(requirements: ClusterRequirements): Promise<ClusterFacts> {
  const { kubeconfig, context, namespace, gpu, objects, createNamespace, serviceMonitor } =
    requirements;
  const api = await openCluster({ kubeconfig, context });
  // what this user may not see holds nothing up: the deployment may not need it
  const try_ = async <T>(read: Promise<T>): Promise<T | "unknown"> => {
    try {
      return await read;
    } catch (error) {
      if (error instanceof ApiRejection || error instanceof ClusterUnreachable) return "unknown";
      throw error;
    }
  };
  const mayCreate = async (resource: string): Promise<boolean | undefined> => {
    const [plural, ...group] = resource.split(".");
    const review = await try_(
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
    try_(
      api.get<Stored<V1PersistentVolumeClaim>>(namespacedPath(namespace, "v1", `${kind}s`, name)),
    );
  try {
    const version = await api.get<VersionInfo>("/version");
    const wanted = [...created, ...(createNamespace ? ["namespaces"] : [])];
    const [nodes, runtimeClass, groups, namespaceObject, found, prometheuses, quotas, allowed] =
      await Promise.all([
        gpu && try_(api.list<NodeObject>("/api/v1/nodes")),
        gpu?.runtimeClass &&
          try_(api.get(`/apis/node.k8s.io/v1/runtimeclasses/${gpu.runtimeClass}`)),
        api.get<V1APIGroupList>("/apis"),
        try_(
          api.get<Stored<{ metadata?: object; spec?: object }>>(`/api/v1/namespaces/${namespace}`),
        ),
        Promise.all(objects.map(objectOf)),
        serviceMonitor &&
          try_(
            api.get<{ readonly items: readonly Prometheus[] }>(
              "/apis/monitoring.coreos.com/v1/prometheuses",
            ),
          ),
        gpu && try_(api.list<ClusterQuota>(namespacedPath(namespace, "v1", "resourcequotas"))),
        Promise.all(wanted.map(mayCreate)),
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
      forbidden: wanted.filter((_, at) => allowed[at] === false),
      unanswered: wanted.filter((_, at) => allowed[at] === undefined),
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

/** The chart's own carries its label, and changes with the deployment. */
function gpuQuotasIn(quotas: readonly ClusterQuota[]): ClusterFacts["gpuQuotas"] {
  return quotas.flatMap(({ metadata, spec }) => {
    const hard = spec.hard?.[`requests.${gpuResource}`];
    const own = metadata.labels?.["app.kubernetes.io/name"] === "clipstack";
    return hard === undefined || own ? [] : [{ name: metadata.name, hard: Number(hard) }];
  });
}
