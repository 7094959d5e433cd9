import { selects } from "../../artefact/cluster-objects.ts";
import type { ResourceChange, Values } from "../input/change.ts";
import { objectName, type StackFacts } from "../input/stack-facts.ts";
import { blockOf, isObject, sameValue } from "../input/value-paths.ts";
import {
  type Impact,
  lessCapacity,
  noOutage,
  outage,
  type StackComparison,
} from "./impact-kinds.ts";

export function workloadImpact(
  resource: ResourceChange,
  stack: StackComparison,
): Impact | undefined {
  const { address, action, before, after } = resource;
  const deployedService = stack.before.services.get(address) ?? stack.after.services.get(address);
  const { name } = objectName(after ?? before);
  const service = deployedService?.name ?? name;
  const unavailable = [service];
  if (action === "delete") return outage(`${service} is deleted.`, unavailable);
  if (action === "replace") {
    const text = `All pods of ${service} are deleted; it is unavailable until new pods are ready.`;
    return outage(text, unavailable);
  }
  if (action !== "update") return undefined;
  const [oldSpec, newSpec] = [blockOf(before, "spec"), blockOf(after, "spec")];
  const [oldPods, newPods] = [numberOfPods(oldSpec.replicas), numberOfPods(newSpec.replicas)];
  if (newPods === 0 && oldPods !== 0) {
    return { ...outage(`${service} is scaled to zero pods.`, unavailable), permanent: true };
  }
  const rollout = rolloutImpact(resource, service, stack);
  if (oldPods === undefined || newPods === undefined || newPods >= oldPods) return rollout;
  const budget = budgetOf(after, stack.after, newPods);
  const below =
    budget !== undefined && newPods < budget
      ? `, fewer than the ${budget} required by its PodDisruptionBudget`
      : "";
  const share = Math.round((newPods / oldPods) * 100);
  const reduction = `${podsText(newPods)} instead of ${oldPods}, ${share} % of the capacity${below}.`;
  return { ...rollout, text: `${reduction} ${rollout.text}`, degrades: "capacity" };
}

function podsText(count: number): string {
  return `${count} ${count === 1 ? "pod" : "pods"}`;
}

/** Impact of an update on the running pods. */
function rolloutImpact(
  { type, before, after }: ResourceChange,
  service: string,
  stack: StackComparison,
): Impact {
  const unavailable = [service];
  const [oldSpec, newSpec] = [blockOf(before, "spec"), blockOf(after, "spec")];
  if (sameValue(oldSpec.template, newSpec.template)) return noOutage("No pod is restarted.");
  const pods = replicasOf(objectName(after), stack.after, newSpec);
  if (["update_strategy", "strategy"].some((name) => blockOf(newSpec, name).type === "OnDelete")) {
    return noOutage("Its pods keep the old version until they are deleted manually (OnDelete).");
  }
  if (/daemon_?set/.test(type)) {
    return noOutage("Its pods are replaced node by node; each node has no ready pod in between.");
  }
  if (/stateful_set/.test(type)) {
    const text = "Its pods are replaced one at a time, in reverse ordinal order";
    return pods === 1
      ? outage(`${text}: its only pod is unavailable in between.`, unavailable)
      : noOutage(`${text}: each is unavailable in between.`);
  }
  if (blockOf(newSpec, "strategy").type === "Recreate") {
    return outage(
      `All pods of ${service} are stopped before new ones start (Recreate).`,
      unavailable,
    );
  }
  const { max_unavailable: maxUnavailable = "25%", max_surge: maxSurge = "25%" } = blockOf(
    newSpec,
    "strategy",
    "rolling_update",
  );
  const unavailablePods = podCount(maxUnavailable, pods ?? 1, Math.floor);
  const rollout = `Rolling update with max surge ${maxSurge} and max unavailable ${maxUnavailable}.`;
  if (pods === undefined) return noOutage(rollout);
  const readyPods = pods - unavailablePods;
  const budget = budgetOf(after, stack.after, pods);
  if (budget !== undefined && readyPods < budget) {
    const text = `${rollout} With ${podsText(pods)}, ${readyPods} remain ready, fewer than the ${budget} required by its PodDisruptionBudget.`;
    return { ...outage(text, readyPods === 0 ? unavailable : []), degrades: "capacity" };
  }
  return readyPods === 0
    ? outage(`${rollout} With ${podsText(pods)}, none remains ready.`, unavailable)
    : noOutage(rollout);
}

function numberOfPods(replicas: unknown): number | undefined {
  const count = Number((replicas ?? "") === "" ? Number.NaN : replicas);
  return Number.isFinite(count) ? count : undefined;
}

/** `1`, `"1"` or `"25%"` of the pods. */
function podCount(value: unknown, pods: number, round: (count: number) => number): number {
  const text = String(value);
  if (text.endsWith("%")) return round((Number.parseFloat(text) / 100) * pods);
  const count = Number(text);
  return Number.isFinite(count) ? count : 0;
}

type ObjectName = ReturnType<typeof objectName>;
/** Minimum replicas of the autoscaler, or replicas of the workload. */
export function replicasOf(
  { name }: ObjectName,
  facts: StackFacts,
  spec: Readonly<Record<string, unknown>>,
): number | undefined {
  for (const { type, values } of facts.values.values()) {
    if (!type.startsWith("kubernetes_horizontal_pod_autoscaler")) continue;
    const scaler = blockOf(values, "spec");
    if (blockOf(scaler, "scale_target_ref").name === name) {
      return podCount(scaler.min_replicas ?? 1, 1, Math.round);
    }
  }
  const { replicas = null } = spec;
  return replicas === null ? undefined : podCount(replicas, 1, Math.round);
}

/** Minimum available pods required by the workload's PodDisruptionBudget. */
function budgetOf(
  workload: Values | undefined,
  facts: StackFacts,
  pods: number,
): number | undefined {
  const { namespace } = objectName(workload);
  const { labels } = blockOf(workload, "spec", "template", "metadata");
  for (const { type, values } of facts.values.values()) {
    if (!type.startsWith("kubernetes_pod_disruption_budget")) continue;
    const { match_labels: selector } = blockOf(values, "spec", "selector");
    const isSelected = isObject(selector) && isObject(labels) && selects(selector, labels);
    if (!isSelected || objectName(values).namespace !== namespace) continue;
    const spec = blockOf(values, "spec");
    const minAvailable = spec.min_available ?? "";
    if (minAvailable !== "") return podCount(minAvailable, pods, Math.ceil);
    return pods - podCount(spec.max_unavailable ?? 0, pods, Math.ceil);
  }
  return undefined;
}

export function autoscalerImpact({ action, before, after }: ResourceChange): Impact | undefined {
  if (action === "delete") return noOutage("The replica count stays at its current value.");
  if (action !== "update") return undefined;
  const [oldBounds, newBounds] = [before, after].map((values) => {
    const { min_replicas: min, max_replicas: max } = blockOf(values, "spec");
    return { min: numberOfPods(min) ?? 1, max: numberOfPods(max) ?? 1 };
  });
  if (oldBounds === undefined || newBounds === undefined) return undefined;
  const bounds = `${newBounds.min} to ${newBounds.max} pods instead of ${oldBounds.min} to ${oldBounds.max}.`;
  if (newBounds.min < oldBounds.min || newBounds.max < oldBounds.max) return lessCapacity(bounds);
  return newBounds.min > oldBounds.min || newBounds.max > oldBounds.max
    ? noOutage(bounds)
    : undefined;
}
