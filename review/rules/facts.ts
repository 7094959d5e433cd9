import { type Environment, environment } from "../../contract/environment.ts";
import { type GpuSpec, gpuCatalogue } from "../../contract/gpus.ts";
import { chartDocuments } from "../changes/chart-values.ts";
import type { ResourceChange, StackChange, Values } from "../input/change.ts";
import { baseType } from "../input/resource-types.ts";
import { isOwnChart } from "../input/stack-facts.ts";
import { cached } from "./cached.ts";
import { at, block, blocks, cpuMillicores, map, memoryMiB, number, text } from "./values.ts";

/** Data of a stack after the change, shared by several rules. */

/** What is there after the change, by type without the version of its API. */
const byType = cached(({ resources }: StackChange): ReadonlyMap<string, ResourceChange[]> => {
  const found = new Map<string, ResourceChange[]>();
  for (const resource of resources) {
    if (resource.mode !== "managed" || resource.after === undefined) continue;
    const type = baseType(resource.type);
    const same = found.get(type);
    if (same === undefined) found.set(type, [resource]);
    else same.push(resource);
  }
  return found;
});

/** Resources of a type that are there after the change. `kubernetes_deployment` is `kubernetes_deployment_v1` too. */
export function resourcesOf(change: StackChange, type: string): readonly ResourceChange[] {
  return byType(change).get(type) ?? [];
}

/** The same as a function of the change, for {@link each}. */
export function ofType(type: string) {
  return (change: StackChange) => resourcesOf(change, type);
}

/** The output `environment` after the change, where it is one. */
export const environmentOf = cached(
  ({ environmentAfter }: StackChange): Environment | undefined =>
    environment.safeParse(environmentAfter).data,
);

/** The same before the change. */
export const environmentBefore = cached(
  (change: StackChange): Environment | undefined =>
    environment.safeParse(change.environmentBefore).data,
);

/** What the catalogue says of the GPUs of an environment. */
export function gpuOf(change: StackChange): GpuSpec | undefined {
  const name = environmentOf(change)?.gpu?.name;
  const catalogue: Readonly<Record<string, GpuSpec>> = gpuCatalogue;
  return name !== undefined && Object.hasOwn(catalogue, name) ? catalogue[name] : undefined;
}

/** Quantities of Kubernetes by resource: `memory: 1Gi`. */
type Quantities = Readonly<Record<string, string>>;

export interface ContainerResources {
  readonly name: string;
  /** Of what is not requested Kubernetes takes the limit. */
  readonly requests: Quantities;
  readonly limits: Quantities;
}

/** A Deployment, or what the values of the chart make one of. */
export interface Workload {
  readonly address: string;
  /** Of the Deployment, or of the component of the chart. */
  readonly name: string;
  readonly resource: ResourceChange;
  /** Of the pods; absent where the chart renders them. */
  readonly pod?: Values;
  readonly labels: Readonly<Record<string, string>>;
  /** Which of the services it is, where that can be seen. */
  readonly kind: "embed" | "triton" | "other";
  /** Bounds of the autoscaler, or twice the fixed number; absent where only the cluster knows. */
  readonly replicas?: { readonly minReplicas: number; readonly maxReplicas: number };
  /** Pods that a rolling update starts before it stops others. */
  readonly surge: number;
  /** Of the whole pod, as the API server takes it: with what a LimitRange of the stack adds. */
  readonly requests: Quantities;
  readonly limits: Quantities;
  /** Containers that run all the time, as the stack gives them. */
  readonly containers: readonly ContainerResources[];
  /** GPUs of one pod. */
  readonly gpus: number;
}

export const gpuResource = "nvidia.com/gpu";

/** What makes an autoscaler, a budget or a Service belong to a Deployment. */
export function metadataOf(resource: ResourceChange): Values {
  return block(resource.after?.metadata) ?? {};
}

export function specOf(resource: ResourceChange): Values {
  return block(resource.after?.spec) ?? {};
}

/** Containers of a pod. */
export function podContainers(pod: Values | undefined): readonly Values[] {
  return blocks(pod?.container);
}

/** Whether a value that names a Deployment names this one. */
export function namesDeployment(value: unknown, deployment: ResourceChange): boolean {
  const name = text(value);
  if (name !== undefined) return name === text(metadataOf(deployment).name);
  return (
    typeof value === "string" && value.includes(`\${${deployment.type}.${deployment.name}.metadata`)
  );
}

export function autoscalersOf(change: StackChange): readonly ResourceChange[] {
  return resourcesOf(change, "kubernetes_horizontal_pod_autoscaler");
}

export function deploymentsOf(change: StackChange): readonly ResourceChange[] {
  return resourcesOf(change, "kubernetes_deployment");
}

/** Everything with a template of pods that go on running. */
export function podOwnersOf(change: StackChange): readonly ResourceChange[] {
  const kinds = ["deployment", "stateful_set", "daemonset", "daemon_set", "replication_controller"];
  return kinds.flatMap((kind) => resourcesOf(change, `kubernetes_${kind}`));
}

/** Whether pods may come from what is not looked into: then nobody can say that there are none. */
export function mayHaveOtherPods(change: StackChange): boolean {
  const others = ["helm_release", "kubernetes_manifest", "kubernetes_pod"];
  return (
    podOwnersOf(change).length === 0 || others.some((type) => resourcesOf(change, type).length > 0)
  );
}

/** Pods of a Deployment: their labels and their spec. */
export const podOf = cached(
  (
    deployment: ResourceChange,
  ): { readonly labels: Readonly<Record<string, string>>; readonly pod: Values } => {
    const spec = specOf(deployment);
    return {
      labels: map(at(spec, "template", "metadata", "labels")),
      pod: block(at(spec, "template", "spec")) ?? {},
    };
  },
);

/** Containers of this project's typed Deployments. */
export function ownPodContainers(
  change: StackChange,
): readonly { readonly address: string; readonly container: Values }[] {
  return deploymentsOf(change).flatMap((deployment) => {
    const { pod, labels } = podOf(deployment);
    if (labels["app.kubernetes.io/name"] !== "clipstack") return [];
    return podContainers(pod).map((container) => ({ address: deployment.address, container }));
  });
}

/** Workloads of typed resources. */
function typedWorkloads(change: StackChange): readonly Workload[] {
  const defaults = containerDefaults(change);
  return deploymentsOf(change).map((resource) => {
    const spec = specOf(resource);
    const { labels, pod } = podOf(resource);
    const limits = podTotal(pod, "limits", defaults.limits);
    const autoscaler = autoscalersOf(change).find((other) =>
      namesDeployment(at(specOf(other), "scale_target_ref", "name"), resource),
    );
    const replicas = replicasOf(
      autoscaler === undefined
        ? { minReplicas: spec.replicas, maxReplicas: spec.replicas }
        : {
            minReplicas: specOf(autoscaler).min_replicas ?? 1,
            maxReplicas: specOf(autoscaler).max_replicas,
          },
    );
    return {
      address: resource.address,
      name: text(metadataOf(resource).name) ?? resource.name,
      resource,
      pod,
      labels,
      kind: kindOf(labels["app.kubernetes.io/component"]),
      replicas,
      surge: surgeOf(spec, replicas?.maxReplicas ?? 1),
      requests: podTotal(pod, "requests", defaults.requests),
      limits,
      containers: podContainers(pod).map(containerResources),
      gpus: Number(limits[gpuResource] ?? 0),
    };
  });
}

function kindOf(component: string | undefined): Workload["kind"] {
  return component === "embed" || component === "triton" ? component : "other";
}

function replicasOf(bounds: { readonly minReplicas: unknown; readonly maxReplicas: unknown }) {
  const [minReplicas, maxReplicas] = [bounds.minReplicas, bounds.maxReplicas].map((value) =>
    Number(text(value) ?? Number.NaN),
  );
  return minReplicas === undefined ||
    maxReplicas === undefined ||
    Number.isNaN(minReplicas + maxReplicas)
    ? undefined
    : { minReplicas, maxReplicas };
}

/** Pods that a rolling update adds; Kubernetes rounds up. */
function surgeOf(spec: Values, pods: number): number {
  if (at(spec, "strategy", "type") === "Recreate") return 0;
  const given = text(at(spec, "strategy", "rolling_update", "max_surge")) ?? "25%";
  const count = Number.parseFloat(given);
  if (Number.isNaN(count)) return 1;
  return given.endsWith("%") ? Math.ceil((count / 100) * pods) : count;
}

function containerResources(container: Values): ContainerResources {
  const limits = map(at(container.resources, "limits"));
  const requests = { ...limits, ...map(at(container.resources, "requests")) };
  return { name: text(container.name) ?? "container", requests, limits };
}

/** What a container has that says nothing itself, as the LimitRanges of the stack give it. */
export function containerDefaults(
  change: StackChange,
): Readonly<Record<"requests" | "limits", Quantities>> {
  const ranges = resourcesOf(change, "kubernetes_limit_range")
    .flatMap((range) => blocks(specOf(range).limit))
    .filter(({ type }) => type === "Container");
  const all = (field: string) => Object.assign({}, ...ranges.map((range) => map(range[field])));
  const limits: Quantities = { ...all("max"), ...all("default") };
  return { limits, requests: { ...limits, ...all("min"), ...all("default_request") } };
}

/** What a pod asks for: its containers together, or more where one of those before them wants more. */
function podTotal(pod: Values, side: "requests" | "limits", defaults: Quantities): Quantities {
  const given = (all: readonly Values[]) =>
    all.map((container) => ({ ...defaults, ...containerResources(container)[side] }));
  const before = blocks(pod.init_container);
  // one that is restarted goes on beside the others
  const running = given([
    ...podContainers(pod),
    ...before.filter(({ restart_policy }) => restart_policy === "Always"),
  ]);
  const each = [...running, ...given(before)];
  return Object.fromEntries(
    [...new Set(each.flatMap((it) => Object.keys(it)))].map((name) => {
      const sum = totalOf(
        name,
        running.flatMap((it) => it[name] ?? []),
      );
      const values = [sum, ...each.flatMap((it) => it[name] ?? [])];
      return [name, values.reduce((a, b) => (sizeOf(name, b) > sizeOf(name, a) ? b : a))];
    }),
  );
}

function sizeOf(name: string, value: string): number {
  const read = name === "cpu" ? cpuMillicores : name === "memory" ? memoryMiB : number;
  return read(value) ?? 0;
}

function totalOf(name: string, values: readonly string[]): string {
  const [only] = values;
  if (only !== undefined && values.length === 1) return only;
  const total = values.reduce((sum, value) => sum + sizeOf(name, value), 0);
  return `${total}${name === "cpu" ? "m" : name === "memory" ? "Mi" : ""}`;
}

/** Releases of this project's chart, with their values in one. */
export const releasesOf = cached(
  (
    change: StackChange,
  ): readonly { readonly resource: ResourceChange; readonly values: Values }[] =>
    resourcesOf(change, "helm_release")
      .filter(({ after }) => isOwnChart(after))
      .map((resource) => ({
        resource,
        values: chartDocuments(resource.after?.values) ?? {},
      })),
);

/** Workloads of the chart, as its values say; what they leave out has the chart's default and is not looked at. */
function chartWorkloads(change: StackChange): readonly Workload[] {
  return releasesOf(change).flatMap(({ resource, values }) =>
    (["embed", "triton"] as const).flatMap((component): Workload[] => {
      const of = block(values[component]);
      if (of === undefined || of.enabled === false) return [];
      const autoscaling = block(of.autoscaling);
      const gpus =
        component === "triton" ? Number(text(of.gpus) ?? 1) : of.accelerator === "gpu" ? 1 : 0;
      const gpu: Quantities = gpus > 0 ? { [gpuResource]: String(gpus) } : {};
      const given = containerResources({ name: component, resources: of.resources });
      const requests = { ...given.requests, ...gpu };
      const limits = { ...given.limits, ...gpu };
      return [
        {
          address: resource.address,
          name: component,
          resource,
          labels: {},
          kind: component,
          replicas: replicasOf(
            autoscaling?.enabled === true
              ? { minReplicas: autoscaling.minReplicas, maxReplicas: autoscaling.maxReplicas }
              : { minReplicas: of.replicas, maxReplicas: of.replicas },
          ),
          surge: gpus > 0 && of.spareGpu !== true ? 0 : 1,
          requests,
          limits,
          containers: [{ name: component, requests, limits }],
          gpus,
        },
      ];
    }),
  );
}

/** Every Deployment of the stack. */
export const workloadsOf = cached((change: StackChange): readonly Workload[] => [
  ...typedWorkloads(change),
  ...chartWorkloads(change),
]);

/** A ResourceQuota: `hard`. */
export function quotasOf(
  change: StackChange,
): readonly { readonly address: string; readonly hard: Readonly<Record<string, string>> }[] {
  const typed = resourcesOf(change, "kubernetes_resource_quota").map((resource) => ({
    address: resource.address,
    hard: map(specOf(resource).hard),
  }));
  const ofChart = releasesOf(change).flatMap(({ resource, values }) =>
    at(values, "quota", "enabled") === true
      ? [{ address: resource.address, hard: map(at(values, "quota", "hard")) }]
      : [],
  );
  return [...typed, ...ofChart];
}
