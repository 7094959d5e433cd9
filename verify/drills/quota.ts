import { isDeepStrictEqual } from "node:util";
import type {
  ClusterLimitRange,
  ClusterPod,
  ClusterQuota,
} from "../../artefact/cluster-objects.ts";
import { quantity } from "../../contract/quantity.ts";
import { UserError } from "../../contract/user-error.ts";
import { ApiRejection } from "../cluster/cluster-api.ts";
import type { Drill, DrillRun } from "./drill.ts";

/** Label of the pods of this exercise: none of them is ever started. */
const exerciseLabel = "clipstack.dev/exercise";

/** Resources of a quota that one pod can ask too much of, and how a container asks. */
const quotaResources = {
  "requests.cpu": { resource: "cpu", ask: "requests" },
  "requests.memory": { resource: "memory", ask: "requests" },
  "limits.cpu": { resource: "cpu", ask: "limits" },
  "limits.memory": { resource: "memory", ask: "limits" },
  "requests.nvidia.com/gpu": { resource: "nvidia.com/gpu", ask: "requests" },
} as const;
type QuotaResource = keyof typeof quotaResources;

/** Of a container that only has to be there: within every range that a namespace may sensibly have. */
const small = { cpu: 0.01, memory: 16 * 2 ** 20 } as const;

/** Pods that ask for more than the quota has left are refused, and one that fits is not. */
export const quotaDrill: Drill = {
  name: "quota",

  async prepare(run) {
    if ((await quotaOf(run)) !== undefined) return;
    throw new UserError(
      `namespace '${run.target.namespace}' has no quota on CPU, memory or GPUs of pods`,
    );
  },

  phases: [{ name: "quota", act: askForPods }],

  async restore(run) {
    const left = await run.api.list<ClusterPod>(
      `${run.path("v1", "pods")}?labelSelector=${encodeURIComponent(exerciseLabel)}`,
    );
    for (const { metadata } of left) {
      await run.api.delete(`${run.path("v1", "pods", metadata.name)}?gracePeriodSeconds=0`);
      run.step(`${metadata.name} is deleted`);
    }
  },
};

async function askForPods(run: DrillRun): Promise<void> {
  const pods = await podsOf(run);
  const quota = await quotaOf(run);
  if (quota === undefined) return;
  const { hard = {}, used = {} } = quota.status ?? {};
  for (const name of Object.keys(hard)) {
    run.step(`quota '${quota.metadata.name}': ${name} ${used[name] ?? 0} of ${hard[name]} used`);
  }
  const max = await largestContainer(run);
  await fits(run);
  for (const name of namesOf(quota)) {
    const left = quantity(hard[name] ?? "0") - quantity(used[name] ?? "0");
    await tooMuch(run, name, left, max);
  }
  const after = await quotaOf(run);
  if (!isDeepStrictEqual(await podsOf(run), pods)) {
    run.step("pods have come or gone meanwhile: what the quota has used is not compared");
    return;
  }
  const same = JSON.stringify(after?.status?.used) === JSON.stringify(used);
  run.check(
    "what is refused uses nothing of the quota",
    same,
    Object.entries(after?.status?.used ?? {})
      .map(([name, value]) => `${name} ${value}`)
      .join(", "),
  );
}

/** What the quota counts; an autoscaler may change it at any time. */
async function podsOf(run: DrillRun): Promise<readonly string[]> {
  const pods = await run.api.list<ClusterPod>(run.path("v1", "pods"));
  return pods.map(({ metadata }) => metadata.uid).sort();
}

function namesOf({ status }: ClusterQuota): readonly QuotaResource[] {
  return (Object.keys(quotaResources) as QuotaResource[]).filter(
    (name) => status?.hard?.[name] !== undefined,
  );
}

async function quotaOf(run: DrillRun): Promise<ClusterQuota | undefined> {
  const quotas = await run.api.list<ClusterQuota>(run.path("v1", "resourcequotas"));
  return quotas.find((quota) => namesOf(quota).length > 0);
}

/** The most that one container may ask for, where a range says so. */
async function largestContainer(run: DrillRun): Promise<Readonly<Record<string, number>>> {
  const ranges = await run.api.list<ClusterLimitRange>(run.path("v1", "limitranges"));
  const max: Record<string, number> = {};
  for (const { type, max: most } of ranges.flatMap(({ spec }) => spec.limits)) {
    if (type !== "Container") continue;
    for (const [name, value] of Object.entries(most ?? {})) {
      max[name] = Math.min(max[name] ?? Number.POSITIVE_INFINITY, quantity(value));
    }
  }
  return max;
}

/** That pods of this form are refused for nothing else: a small one is accepted, if only on trial. */
async function fits(run: DrillRun): Promise<void> {
  try {
    await run.post(
      `${run.path("v1", "pods")}?dryRun=All`,
      podOf(run, "fits", [container(0, {}, {})]),
    );
    run.check("a pod that fits is accepted", true, "on trial (dry run): none is started");
  } catch (error) {
    if (!(error instanceof ApiRejection)) throw error;
    run.check("a pod that fits is accepted", false, `status ${error.status}: ${error.message}`);
  }
}

async function tooMuch(
  run: DrillRun,
  name: QuotaResource,
  left: number,
  max: Readonly<Record<string, number>>,
): Promise<void> {
  const { resource, ask } = quotaResources[name];
  const claim = `a pod over ${name} is refused`;
  run.signal.throwIfAborted();
  try {
    await run.post(
      run.path("v1", "pods"),
      podOf(run, name.replaceAll(/[^a-z]+/g, "-"), containersFor(resource, ask, left, max)),
    );
    run.check(claim, false, "it was accepted");
  } catch (error) {
    if (!(error instanceof ApiRejection)) throw error;
    run.reject(
      `a pod with more ${name} than the ${quantityText(resource, left)} that are left`,
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

/** Containers that together ask for more than what is left, and none for more than one may. */
export function containersFor(
  resource: string,
  ask: "requests" | "limits",
  left: number,
  max: Readonly<Record<string, number>>,
): readonly object[] {
  const unit = resource === "cpu" ? 0.01 : resource === "memory" ? 2 ** 20 : 1;
  const over = Math.max(left, 0) + unit;
  const each = Math.min(over, max[resource] ?? over);
  const count = Math.ceil(over / each);
  return Array.from({ length: count }, (_, index) => {
    const much = { [resource]: each };
    // a request beyond the limit is wrong, and GPUs are asked for with both
    return container(index, ask === "requests" ? much : {}, much);
  });
}

function container(
  index: number,
  requests: Readonly<Record<string, number>>,
  limits: Readonly<Record<string, number>>,
): object {
  return {
    name: `exercise-${index}`,
    image: "clipstack.invalid/exercise:none",
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

/** A pod that every Pod Security Standard allows, and that is never started. */
function podOf(run: DrillRun, name: string, containers: readonly object[]): object {
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: {
      name: `clipstack-exercise-${name}`,
      namespace: run.target.namespace,
      labels: { [exerciseLabel]: "quota" },
    },
    spec: {
      // no scheduler has this name: were it accepted, it would not run
      schedulerName: "clipstack-exercise-none",
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

/** As Kubernetes writes it: millicores, MiB, or a number. */
export function quantityText(resource: string, value: number): string {
  if (resource === "cpu") return `${Math.ceil(Math.round(value * 1e6) / 1e3)}m`;
  if (resource === "memory") return `${Math.ceil(value / 2 ** 20)}Mi`;
  return String(Math.ceil(value));
}
