import { type Environment, environment } from "../../contract/environment.ts";
import { type GpuSpec, gpuResource, gpuSpecOf } from "../../contract/gpus.ts";
import type { ResourceChange, StackChange, Values } from "../input/change.ts";
import { asTyped, baseType } from "../input/resource-types.ts";
import { isOwnChart } from "../input/stack-facts.ts";
import { cached } from "./cached.ts";
import { releaseValues } from "./chart-documents.ts";
import { at, block, blocks, cpuMillicores, map, memoryMiB, number, text } from "./values.ts";

/** Data of a stack after the change, shared by several rules. */

/** Managed resources after the change, by type without API version. */
const byType = cached(({ resources }: StackChange): ReadonlyMap<string, ResourceChange[]> => {
  const types = new Map<string, ResourceChange[]>();
  for (const resource of resources) {
    if (resource.mode !== "managed" || resource.after === undefined) continue;
    const type = baseType(resource.type);
    const same = types.get(type);
    if (same === undefined) types.set(type, [resource]);
    else same.push(resource);
  }
  return types;
});

/** Resources of a type after the change, in all API versions: `kubernetes_deployment` includes `kubernetes_deployment_v1`. */
export function resourcesOf(change: StackChange, type: string): readonly ResourceChange[] {
  return byType(change).get(type) ?? [];
}

/** Managed resources of every type after the change. */
export function managedResources({ resources }: StackChange): readonly ResourceChange[] {
  return resources.filter(({ mode, after }) => mode === "managed" && after !== undefined);
}

/** {@link resourcesOf}, with those declared as `kubernetes_manifest`. */
export function objectsOf(change: StackChange, type: string): readonly ResourceChange[] {
  const manifests = resourcesOf(change, "kubernetes_manifest").flatMap((resource) => {
    const typed = asTyped(resource.type, resource.after ?? {});
    return typed.type === type ? [{ ...resource, after: typed.values }] : [];
  });
  return [...resourcesOf(change, type), ...manifests];
}

/** {@link resourcesOf} as an argument of {@link each}. */
export function ofType(type: string) {
  return (change: StackChange) => resourcesOf(change, type);
}

/** Output `environment` after the change; `undefined` if absent or invalid. */
export const environmentOf = cached(
  ({ environmentAfter }: StackChange): Environment | undefined =>
    environment.safeParse(environmentAfter).data,
);

/** Specs of the models that a service serves, or of all if the service is unknown. */
export function servedSpecs(
  { models }: Environment,
  service: { readonly name: string; readonly models: readonly string[] } | undefined,
): Environment["models"] {
  return service === undefined
    ? models
    : models.filter(({ name }) => service.models.includes(name));
}

/** Output `environment` before the change. */
export const environmentBefore = cached(
  (change: StackChange): Environment | undefined =>
    environment.safeParse(change.environmentBefore).data,
);

/** Facts of the environment's GPU. */
export function gpuOf(change: StackChange): GpuSpec | undefined {
  const gpu = environmentOf(change)?.gpu;
  return gpu && gpuSpecOf(gpu);
}

/** Kubernetes quantities by resource: `memory: 1Gi`. */
type Quantities = Readonly<Record<string, string>>;

export interface ContainerResources {
  readonly name: string;
  /** Includes limits without a request, which Kubernetes uses as requests. */
  readonly requests: Quantities;
  readonly limits: Quantities;
}

/** Deployment, typed or from the chart values. */
export interface Workload {
  readonly address: string;
  /** Name of the Deployment, or of the chart's component. */
  readonly name: string;
  readonly resource: ResourceChange;
  /** Pod spec; absent for the chart. */
  readonly pod?: Values;
  readonly labels: Readonly<Record<string, string>>;
  readonly kind: "embed" | "triton" | "other";
  /** Minimum and maximum of the autoscaler; a fixed replica count is both. Absent if unknown. */
  readonly replicas?: { readonly minReplicas: number; readonly maxReplicas: number };
  /** Additional pods during a rolling update. */
  readonly surge: number;
  /** Requests of the whole pod, with the defaults of the stack's LimitRanges. */
  readonly requests: Quantities;
  readonly limits: Quantities;
  /** Containers other than init containers, without LimitRange defaults. */
  readonly containers: readonly ContainerResources[];
  /** GPUs per pod. */
  readonly gpus: number;
}

export function metadataOf(resource: ResourceChange): Values {
  return block(resource.after?.metadata) ?? {};
}

export function specOf(resource: ResourceChange): Values {
  return block(resource.after?.spec) ?? {};
}

export function podContainers(pod: Values | undefined): readonly Values[] {
  return blocks(pod?.container);
}

/** Returns whether a value is the name of a Deployment, literally or by an expression. */
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

/** Resources with a template of long-running pods. */
export function podOwnersOf(change: StackChange): readonly ResourceChange[] {
  const kinds = ["deployment", "stateful_set", "daemon_set", "replication_controller"];
  return kinds.flatMap((kind) => resourcesOf(change, `kubernetes_${kind}`));
}

/** Returns whether releases, manifests or unmanaged pods may provide pods that the review cannot examine. */
export function mayHaveOtherPods(change: StackChange): boolean {
  const others = ["helm_release", "kubernetes_manifest", "kubernetes_pod"];
  return (
    podOwnersOf(change).length === 0 || others.some((type) => resourcesOf(change, type).length > 0)
  );
}

/** Labels and spec of a Deployment's pods. */
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

/** Additional pods during a rolling update, rounded up as in Kubernetes. */
function surgeOf(spec: Values, pods: number): number {
  if (at(spec, "strategy", "type") === "Recreate") return 0;
  const surge = text(at(spec, "strategy", "rolling_update", "max_surge")) ?? "25%";
  const count = Number.parseFloat(surge);
  if (Number.isNaN(count)) return 1;
  return surge.endsWith("%") ? Math.ceil((count / 100) * pods) : count;
}

function containerResources(container: Values): ContainerResources {
  const limits = map(at(container.resources, "limits"));
  const requests = { ...limits, ...map(at(container.resources, "requests")) };
  return { name: text(container.name) ?? "container", requests, limits };
}

/** Requests and limits from the stack's LimitRanges for containers that set none. */
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

/** Resources of a pod, as Kubernetes computes them: the sum of its containers, or of the largest init container if that is more. */
function podTotal(pod: Values, side: "requests" | "limits", defaults: Quantities): Quantities {
  const quantitiesOf = (all: readonly Values[]) =>
    all.map((container) => ({ ...defaults, ...containerResources(container)[side] }));
  const initContainers = blocks(pod.init_container);
  // sidecars: init containers that keep running
  const running = quantitiesOf([
    ...podContainers(pod),
    ...initContainers.filter(({ restart_policy }) => restart_policy === "Always"),
  ]);
  const each = [...running, ...quantitiesOf(initContainers)];
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

/** Releases of this project's chart, with their merged values. */
export const releasesOf = cached(
  (
    change: StackChange,
  ): readonly {
    readonly address: string;
    readonly resource: ResourceChange;
    readonly values: Values;
  }[] =>
    resourcesOf(change, "helm_release")
      .filter(({ after }) => isOwnChart(after))
      .map((resource) => ({
        address: resource.address,
        resource,
        values: releaseValues(resource.after),
      })),
);

/** Workloads in the chart values; defaults of the chart are not examined. */
function chartWorkloads(change: StackChange): readonly Workload[] {
  return releasesOf(change).flatMap(({ resource, values }) =>
    (["embed", "triton"] as const).flatMap((component): Workload[] => {
      const part = block(values[component]);
      if (part === undefined || part.enabled === false) return [];
      const autoscaling = block(part.autoscaling);
      const gpus =
        component === "triton" ? Number(text(part.gpus) ?? 1) : part.accelerator === "gpu" ? 1 : 0;
      const gpu: Quantities = gpus > 0 ? { [gpuResource]: String(gpus) } : {};
      const own = containerResources({ name: component, resources: part.resources });
      const requests = { ...own.requests, ...gpu };
      const limits = { ...own.limits, ...gpu };
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
              : { minReplicas: part.replicas, maxReplicas: part.replicas },
          ),
          surge: gpus > 0 && part.spareGpu !== true ? 0 : 1,
          requests,
          limits,
          containers: [{ name: component, requests, limits }],
          gpus,
        },
      ];
    }),
  );
}

/** Deployments of the stack, typed and from chart values. */
export const workloadsOf = cached((change: StackChange): readonly Workload[] => [
  ...typedWorkloads(change),
  ...chartWorkloads(change),
]);

/** ResourceQuotas, typed and from chart values. */
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
