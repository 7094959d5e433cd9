import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { StackChange } from "./input/change.ts";
import { changeOfPlan } from "./input/plan-json.ts";

/** Saved plan of `single-gpu`, for tests. */
export interface PlanCase {
  /** `plans/<name>.plan.json` */
  readonly name: string;
  /** Whether the environment is deployed with its default settings before the change. */
  readonly deployed: boolean;
  readonly settings: {
    readonly queueDelay?: number;
    readonly trtImage?: "other";
    readonly expose?: "all-interfaces";
    readonly gpu?: "a10";
  };
  readonly destroy?: true;
}

export const planCases: readonly PlanCase[] = [
  { name: "create", deployed: false, settings: {} },
  { name: "nothing-changed", deployed: true, settings: {} },
  { name: "queue-delay-changed", deployed: true, settings: { queueDelay: 2_000 } },
  { name: "image-changed", deployed: true, settings: { trtImage: "other" } },
  { name: "port-exposed", deployed: true, settings: { expose: "all-interfaces" } },
  { name: "gpu-swapped", deployed: true, settings: { gpu: "a10" } },
  { name: "stack-destroyed", deployed: true, settings: {}, destroy: true },
];

export interface ClusterPlanCase {
  /** `plans/<name>.plan.json` */
  readonly name: string;
  readonly environment: "kind-local" | "k8s-gpu";
  /** Whether the environment is deployed with its default settings before the change. */
  readonly deployed: boolean;
  readonly change: {
    readonly namespace?: "clipstack-other";
    readonly deployWith?: "helm";
    readonly memoryMiB?: number;
    readonly maxReplicas?: number;
    readonly gpu?: "a10";
    readonly tritonTag?: "26.07-2";
  };
  readonly destroy?: true;
}

/** Plans of the Kubernetes and Helm providers. */
export const clusterPlanCases: readonly ClusterPlanCase[] = [
  {
    name: "kind-local-updated",
    environment: "kind-local",
    deployed: true,
    change: { memoryMiB: 2_048, maxReplicas: 4 },
  },
  {
    name: "kind-local-replaced",
    environment: "kind-local",
    deployed: true,
    change: { namespace: "clipstack-other" },
  },
  {
    name: "kind-local-to-chart",
    environment: "kind-local",
    deployed: true,
    change: { deployWith: "helm" },
  },
  {
    name: "kind-local-destroyed",
    environment: "kind-local",
    deployed: true,
    change: {},
    destroy: true,
  },
  { name: "k8s-gpu-created", environment: "k8s-gpu", deployed: false, change: {} },
  {
    name: "k8s-gpu-updated",
    environment: "k8s-gpu",
    deployed: true,
    change: { tritonTag: "26.07-2", maxReplicas: 4 },
  },
  {
    name: "k8s-gpu-replaced",
    environment: "k8s-gpu",
    deployed: true,
    change: { namespace: "clipstack-other" },
  },
  { name: "k8s-gpu-destroyed", environment: "k8s-gpu", deployed: true, change: {}, destroy: true },
];

/** API key of the plan `port-exposed`, which contains it in plain text. */
export const plantedKey = "planted-secret-8c1f02d7";

export function planText(name: string): string {
  return readFileSync(
    fileURLToPath(new URL(`./input/plans/${name}.plan.json`, import.meta.url)),
    "utf8",
  );
}

export function savedChange(name: string): StackChange {
  return changeOfPlan({ fileName: `${name}.plan.json`, text: planText(name) });
}

/** Resource of a constructed plan. */
export interface PlannedResource {
  readonly address: string;
  readonly actions?: readonly string[];
  readonly before?: unknown;
  readonly after?: unknown;
  readonly more?: Readonly<Record<string, unknown>>;
}

/** JSON of a constructed plan in Terraform's format. */
export function plannedText(
  resources: readonly PlannedResource[],
  more: Readonly<Record<string, unknown>> = {},
): string {
  return JSON.stringify({
    format_version: "1.2",
    terraform_version: "1.11.4",
    resource_changes: resources.map(
      ({ address, actions = ["update"], before = null, after = null, more: rest = {} }) => ({
        address,
        mode: "managed",
        type: address.split(".")[0],
        name: address.split(".")[1],
        change: {
          actions,
          before,
          after,
          after_unknown: {},
          before_sensitive: {},
          after_sensitive: {},
          ...rest,
        },
      }),
    ),
    ...more,
  });
}

export function plannedChange(
  resources: readonly PlannedResource[],
  more: Readonly<Record<string, unknown>> = {},
): StackChange {
  return changeOfPlan({ fileName: "plan.json", text: plannedText(resources, more), stack: "test" });
}

/** JSON with one line per resource, for readable differences between versions. */
export function planLines(plan: Readonly<Record<string, unknown>>): string {
  const parts = Object.entries(plan).map(([key, value]) => {
    const lines = Array.isArray(value) ? value.map((item) => JSON.stringify(item)) : undefined;
    return `${JSON.stringify(key)}: ${lines === undefined ? JSON.stringify(value) : `[\n${lines.join(",\n")}\n]`}`;
  });
  return `{\n${parts.join(",\n")}\n}\n`;
}

/** Fields of a plan that tests compare. */
export interface SavedPlan {
  readonly resource_changes: readonly {
    readonly address: string;
    readonly change: { readonly actions: readonly string[]; readonly replace_paths?: unknown };
  }[];
}

export function reviewedParts(plan: unknown): SavedPlan {
  const {
    prior_state: _state,
    planned_values: _planned,
    timestamp: _time,
    relevant_attributes: _relevant,
    ...rest
  } = plan as Record<string, unknown>;
  return rest as unknown as SavedPlan;
}

/** Actions on each resource, without instance keys that are content hashes. */
export function actionLines({ resource_changes: changes }: SavedPlan): readonly string[] {
  return changes
    .map(
      ({ address, change }) =>
        `${change.actions.join()} ${address.replace(/\["[0-9a-f]{12}"\]$/, "")} ${JSON.stringify(change.replace_paths ?? [])}`,
    )
    .sort();
}
