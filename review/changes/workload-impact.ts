import type { ResourceChange, Values } from "../input/change.ts";
import { objectName, type StackFacts, selects } from "../input/stack-facts.ts";
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
  const service = stack.before.services.get(address) ?? stack.after.services.get(address);
  const { name } = objectName(after ?? before);
  const who = service?.name ?? name;
  const down = [who];
  if (action === "delete") return outage(`${who} is gone.`, down);
  if (action === "replace") {
    const text = `All pods of ${who} are deleted; it is unavailable until new pods are ready.`;
    return outage(text, down);
  }
  if (action !== "update") return undefined;
  const [was, is] = [blockOf(before, "spec"), blockOf(after, "spec")];
  const [had, has] = [numberOfPods(was.replicas), numberOfPods(is.replicas)];
  if (has === 0 && had !== 0) {
    return { ...outage(`${who} is scaled to zero pods.`, down), permanent: true };
  }
  const rolled = rolloutImpact(resource, who, stack);
  if (had === undefined || has === undefined || has >= had) return rolled;
  const budget = budgetOf(after, stack.after, has);
  const below =
    budget !== undefined && has < budget
      ? `, fewer than the ${budget} required by its PodDisruptionBudget`
      : "";
  const share = Math.round((has / had) * 100);
  const less = `${podsText(has)} instead of ${had}, ${share} % of the capacity${below}.`;
  return { ...rolled, text: `${less} ${rolled.text}`, degrades: "capacity" };
}

function podsText(count: number): string {
  return `${count} ${count === 1 ? "pod" : "pods"}`;
}

/** Impact of an update on the running pods. */
function rolloutImpact(
  { type, before, after }: ResourceChange,
  who: string,
  stack: StackComparison,
): Impact {
  const down = [who];
  const [was, is] = [blockOf(before, "spec"), blockOf(after, "spec")];
  if (sameValue(was.template, is.template)) return noOutage("No pod is restarted.");
  const pods = replicasOf(objectName(after), stack.after, is);
  if (["update_strategy", "strategy"].some((name) => blockOf(is, name).type === "OnDelete")) {
    return noOutage("Its pods keep the old version until they are deleted manually (OnDelete).");
  }
  if (/daemon_?set/.test(type)) {
    return noOutage("Its pods are replaced node by node; each node has no ready pod in between.");
  }
  if (/stateful_set/.test(type)) {
    const text = "Its pods are replaced one at a time, in reverse ordinal order";
    return pods === 1
      ? outage(`${text}: its only pod is unavailable in between.`, down)
      : noOutage(`${text}: each is unavailable in between.`);
  }
  if (blockOf(is, "strategy").type === "Recreate") {
    return outage(`All pods of ${who} are stopped before new ones start (Recreate).`, down);
  }
  const { max_unavailable: away = "25%", max_surge: surge = "25%" } = blockOf(
    is,
    "strategy",
    "rolling_update",
  );
  const missing = podCount(away, pods ?? 1, Math.floor);
  const rolled = `Rolling update with max surge ${surge} and max unavailable ${away}.`;
  if (pods === undefined) return noOutage(rolled);
  const least = pods - missing;
  const budget = budgetOf(after, stack.after, pods);
  if (budget !== undefined && least < budget) {
    const text = `${rolled} With ${podsText(pods)}, ${least} remain ready, fewer than the ${budget} required by its PodDisruptionBudget.`;
    return { ...outage(text, least === 0 ? down : []), degrades: "capacity" };
  }
  return least === 0
    ? outage(`${rolled} With ${podsText(pods)}, none remains ready.`, down)
    : noOutage(rolled);
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
    const { match_labels: wanted } = blockOf(values, "spec", "selector");
    const isIts = isObject(wanted) && isObject(labels) && selects(wanted, labels);
    if (!isIts || objectName(values).namespace !== namespace) continue;
    const spec = blockOf(values, "spec");
    const least = spec.min_available ?? "";
    if (least !== "") return podCount(least, pods, Math.ceil);
    return pods - podCount(spec.max_unavailable ?? 0, pods, Math.ceil);
  }
  return undefined;
}

export function autoscalerImpact({ action, before, after }: ResourceChange): Impact | undefined {
  if (action === "delete") return noOutage("The replica count stays at its current value.");
  if (action !== "update") return undefined;
  const [was, is] = [before, after].map((values) => {
    const { min_replicas: min, max_replicas: max } = blockOf(values, "spec");
    return { min: numberOfPods(min) ?? 1, max: numberOfPods(max) ?? 1 };
  });
  if (was === undefined || is === undefined) return undefined;
  const bounds = `${is.min} to ${is.max} pods instead of ${was.min} to ${was.max}.`;
  if (is.min < was.min || is.max < was.max) return lessCapacity(bounds);
  return is.min > was.min || is.max > was.max ? noOutage(bounds) : undefined;
}
