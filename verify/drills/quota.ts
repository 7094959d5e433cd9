import { isDeepStrictEqual } from "node:util";
import type {
  ClusterLimitRange,
  ClusterPod,
  ClusterQuota,
} from "../../artefact/cluster-objects.ts";
import { quantity } from "../../contract/quantity.ts";
import { UserError } from "../../contract/user-error.ts";
import { ApiRejection } from "../cluster/cluster-api.ts";
import type { ClusterDrill, ClusterRun } from "./cluster-run.ts";

/** Label of the pods of this drill. None of them is ever started. */
const drillLabel = "clipstack.dev/drill";

/** Quota resources that a single pod can exceed, with the container field that counts. */
const quotaResources = {
  "requests.cpu": { resource: "cpu", field: "requests" },
  "requests.memory": { resource: "memory", field: "requests" },
  "limits.cpu": { resource: "cpu", field: "limits" },
  "limits.memory": { resource: "memory", field: "limits" },
} as const;

/** Resource and field of a container that a quota counts; GPUs have the name of their device plugin's resource. */
function countedBy(name: string) {
  const gpu = /^requests\.(nvidia\.com\/.+)$/.exec(name)?.[1];
  return gpu === undefined
    ? quotaResources[name as keyof typeof quotaResources]
    : { resource: gpu, field: "requests" as const };
}

/** Requests and limits of a minimal container, within any reasonable LimitRange. */
const small = { cpu: 0.01, memory: 16 * 2 ** 20 } as const;

/** Pods that exceed the rest of the ResourceQuota are rejected, and a pod that fits is accepted. */
export const quotaDrill: ClusterDrill = {
  name: "quota",
  question: "Does the API server reject pods that exceed the ResourceQuota?",
  help: `Creates pods that exceed the CPU, memory or GPUs left in the ResourceQuota. No such pod is ever started.`,

  async prepare(run) {
    if ((await quotaOf(run)) !== undefined) return;
    throw new UserError(
      `namespace '${run.target.namespace}' must have a ResourceQuota on CPU, memory or GPUs, got none`,
    );
  },

  phases: [{ name: "quota", act: createPods }],

  async restore(run) {
    const created = await run.api.list<ClusterPod>(
      `${run.path("v1", "pods")}?labelSelector=${encodeURIComponent(drillLabel)}`,
    );
    for (const { metadata } of created) {
      await run.api.delete(`${run.path("v1", "pods", metadata.name)}?gracePeriodSeconds=0`);
      run.step(`deleted ${metadata.name}`);
    }
  },
};

async function createPods(run: ClusterRun): Promise<void> {
  const pods = await podIds(run);
  const quota = await quotaOf(run);
  if (quota === undefined) return;
  const { hard = {}, used = {} } = quota.status ?? {};
  for (const name of Object.keys(hard)) {
    run.step(`quota '${quota.metadata.name}': ${name} ${used[name] ?? 0} of ${hard[name]} used`);
  }
  const max = await largestContainer(run);
  await createFittingPod(run);
  for (const name of namesOf(quota)) {
    const available = quantity(hard[name] ?? "0") - quantity(used[name] ?? "0");
    await createExcessivePod(run, name, available, max);
  }
  const after = await quotaOf(run);
  if (!isDeepStrictEqual(await podIds(run), pods)) {
    run.step("quota usage is not compared, because pods were created or deleted in the meantime");
    return;
  }
  const same = JSON.stringify(after?.status?.used) === JSON.stringify(used);
  run.check(
    "rejected pods do not use the quota",
    same,
    Object.entries(after?.status?.used ?? {})
      .map(([name, value]) => `${name} ${value}`)
      .join(", "),
  );
}

/** Sorted uids of the pods that the quota counts; an autoscaler may change them at any time. */
async function podIds(run: ClusterRun): Promise<readonly string[]> {
  const pods = await run.api.list<ClusterPod>(run.path("v1", "pods"));
  return pods.map(({ metadata }) => metadata.uid).sort();
}

function namesOf({ status }: ClusterQuota): readonly string[] {
  return Object.keys(status?.hard ?? {}).filter((name) => countedBy(name) !== undefined);
}

async function quotaOf(run: ClusterRun): Promise<ClusterQuota | undefined> {
  const quotas = await run.api.list<ClusterQuota>(run.path("v1", "resourcequotas"));
  return quotas.find((quota) => namesOf(quota).length > 0);
}

/** Maximum of each resource per container, from the LimitRanges of the namespace. */
async function largestContainer(run: ClusterRun): Promise<Readonly<Record<string, number>>> {
  const ranges = await run.api.list<ClusterLimitRange>(run.path("v1", "limitranges"));
  const max: Record<string, number> = {};
  for (const { type, max: maximum } of ranges.flatMap(({ spec }) => spec.limits)) {
    if (type !== "Container") continue;
    for (const [name, value] of Object.entries(maximum ?? {})) {
      max[name] = Math.min(max[name] ?? Number.POSITIVE_INFINITY, quantity(value));
    }
  }
  return max;
}

/** Checks, as a dry run, that a small pod is accepted, so that the other pods are rejected for their size only. */
async function createFittingPod(run: ClusterRun): Promise<void> {
  try {
    await run.post(
      `${run.path("v1", "pods")}?dryRun=All`,
      podOf(run, "fits", [container(0, {}, {})]),
    );
    run.check("a pod that fits is accepted", true, "accepted (dry run)");
  } catch (error) {
    if (!(error instanceof ApiRejection)) throw error;
    run.check("a pod that fits is accepted", false, `status ${error.status}: ${error.message}`);
  }
}

async function createExcessivePod(
  run: ClusterRun,
  name: string,
  available: number,
  max: Readonly<Record<string, number>>,
): Promise<void> {
  const { resource, field } = countedBy(name)!;
  const claim = `a pod over ${name} is rejected`;
  run.signal.throwIfAborted();
  try {
    await run.post(
      run.path("v1", "pods"),
      podOf(run, name.replaceAll(/[^a-z]+/g, "-"), containersFor(resource, field, available, max)),
    );
    run.check(claim, false, "the pod was accepted");
  } catch (error) {
    if (!(error instanceof ApiRejection)) throw error;
    run.recordRejection(
      `a pod over ${name}, of which ${quantityText(resource, available)} are available`,
      error,
    );
    const byQuota = error.status === 403 && error.message.includes("exceeded quota");
    run.check(
      claim,
      byQuota && error.message.includes(name),
      `status ${error.status}: ${error.message}`,
    );
  }
}

/** Containers that together exceed the available amount, each within the maximum per container. */
export function containersFor(
  resource: string,
  field: "requests" | "limits",
  available: number,
  max: Readonly<Record<string, number>>,
): readonly object[] {
  const unit = resource === "cpu" ? 0.01 : resource === "memory" ? 2 ** 20 : 1;
  const over = Math.max(available, 0) + unit;
  const each = Math.min(over, max[resource] ?? over);
  const count = Math.ceil(over / each);
  return Array.from({ length: count }, (_, index) => {
    const amount = { [resource]: each };
    // the limit is always set, because a request must not exceed it and GPUs need both
    return container(index, field === "requests" ? amount : {}, amount);
  });
}

function container(
  index: number,
  requests: Readonly<Record<string, number>>,
  limits: Readonly<Record<string, number>>,
): object {
  return {
    name: `drill-${index}`,
    image: "clipstack.invalid/drill:none",
    imagePullPolicy: "Never",
    resources: {
      requests: quantities({ ...small, ...requests }),
      limits: quantities({ ...small, ...limits }),
    },
    securityContext: {
      allowPrivilegeEscalation: false,
      readOnlyRootFilesystem: true,
      capabilities: { drop: ["ALL"] },
    },
  };
}

/** Pod that every Pod Security Standard allows and no scheduler starts. */
function podOf(run: ClusterRun, name: string, containers: readonly object[]): object {
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: {
      name: `clipstack-drill-${name}`,
      namespace: run.target.namespace,
      labels: { [drillLabel]: "quota" },
    },
    spec: {
      // no scheduler has this name, so that an accepted pod would not run
      schedulerName: "clipstack-drill-none",
      automountServiceAccountToken: false,
      restartPolicy: "Never",
      securityContext: {
        runAsNonRoot: true,
        runAsUser: 65_534,
        seccompProfile: { type: "RuntimeDefault" },
      },
      containers,
    },
  };
}

function quantities(values: Readonly<Record<string, number>>): Readonly<Record<string, string>> {
  return Object.fromEntries(
    Object.entries(values).map(([name, value]) => [name, quantityText(name, value)]),
  );
}

/** Quantity in the notation of Kubernetes: millicores, MiB, or a number. */
export function quantityText(resource: string, value: number): string {
  if (resource === "cpu") return `${Math.ceil(Math.round(value * 1e6) / 1e3)}m`;
  if (resource === "memory") return `${Math.ceil(value / 2 ** 20)}Mi`;
  return String(Math.ceil(value));
}
