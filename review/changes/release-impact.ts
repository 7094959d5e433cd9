import { chartDocuments } from "../facts/chart-documents.ts";
import type { ResourceChange, Values } from "../input/change.ts";
import type { StackFacts } from "../input/stack-facts.ts";
import { isObject, sameValue } from "../input/value-paths.ts";
import {
  type Impact,
  interruption,
  moreAccess,
  noOutage,
  outage,
  type StackComparison,
} from "./impact-kinds.ts";

export function releaseImpact(
  resource: ResourceChange,
  stack: StackComparison,
): Impact | undefined {
  const { address, action, before, after } = resource;
  const servicesIn = (facts: StackFacts) =>
    (facts.environment?.services ?? [])
      .filter(({ resources }) => resources.release === address)
      .map(({ name }) => name);
  const name = String((after ?? before)?.name ?? "");
  const oldServices = servicesIn(stack.before);
  if (action === "delete")
    return outage(`Every object of release ${name} is deleted.`, oldServices);
  if (action === "replace") {
    const text = `Every object of release ${name} is deleted and recreated.`;
    return outage(text, oldServices.length === 0 ? [name] : oldServices);
  }
  if (action !== "update") return undefined;
  const [oldValues, newValues] = [before, after].map(
    (values) => chartDocuments(values?.values) ?? {},
  );
  const servicesOf = (facts: StackFacts, part: string) =>
    servicesIn(facts).filter((it) => it.startsWith(part));
  const stopped = ["embed", "triton"].filter(
    (part) =>
      runsPods(oldValues?.[part]) && isObject(newValues?.[part]) && !runsPods(newValues[part]),
  );
  if (stopped.length > 0) {
    const down = stopped.flatMap((part) => servicesOf(stack.before, part));
    return {
      ...outage(
        `${stopped.join(" and ")} ${stopped.length === 1 ? "is" : "are"} scaled to zero or disabled.`,
        down,
      ),
      permanent: true,
    };
  }
  if (["chart", "repository"].some((name) => !sameValue(before?.[name], after?.[name]))) {
    return interruption(
      "The chart or its repository changes: Helm creates the objects of the new chart and deletes all others.",
    );
  }
  if (after?.recreate_pods === true) {
    return outage("Helm stops all its pods at once (recreate_pods).", servicesIn(stack.after));
  }
  if (after?.force_update === true || after?.replace === true) {
    return interruption("Helm deletes and recreates the objects that differ.");
  }
  if (isEnabled(oldValues?.networkPolicy) && !isEnabled(newValues?.networkPolicy)) {
    return moreAccess("Every pod of the cluster can connect to its pods from now on.");
  }
  return rolloutImpact(resource, servicesOf(stack.after, "triton"));
}

/** Impact of a Helm upgrade that recreates no object. */
function rolloutImpact({ before, after }: ResourceChange, tritons: readonly string[]): Impact {
  const hasOtherFiles = chartFiles(before) !== chartFiles(after);
  if (!hasOtherFiles && keepsPods(before, after)) return noOutage("No pod is restarted.");
  const text =
    "Helm updates the objects that differ; changed Deployments perform a rolling update.";
  if (lacksSpareGpu(before, after)) {
    return outage(
      `${text} Triton has one pod and no spare GPU, so it is unavailable while that pod is replaced.`,
      tritons,
    );
  }
  return hasOtherFiles
    ? interruption(
        `Files of its chart change; run helm template to see the resulting objects. ${text}`,
      )
    : noOutage(text);
}

/** Hash of the chart's files in a release's description, or the expression that computes it. */
function chartFiles(values: Values | undefined): unknown {
  const { description } = values ?? {};
  return typeof description === "string" && description.startsWith("chart ")
    ? description
    : undefined;
}

/** Returns whether a component of this project's chart is enabled (default: true). */
function isEnabled(component: unknown): boolean {
  return !isObject(component) || component.enabled !== false;
}

/** Returns whether a component of this project's chart runs pods. */
function runsPods(component: unknown): boolean {
  if (!isObject(component) || component.enabled === false) return false;
  const isScaled = isObject(component.autoscaling) && component.autoscaling.enabled === true;
  return isScaled || component.replicas !== 0;
}

/** Chart values that do not affect pods. */
const podIndependentValues = new Set(
  "autoscaling replicas budget quota serviceMonitor networkPolicy".split(" "),
);

/** Returns whether an update changes only chart values that do not affect pods. */
function keepsPods(before: Values | undefined, after: Values | undefined): boolean {
  const pods = (values: unknown): unknown =>
    isObject(values)
      ? Object.fromEntries(
          Object.entries(values)
            .filter(([name]) => !podIndependentValues.has(name))
            .map(([name, part]) => [name, pods(part)]),
        )
      : values;
  const [oldValues, newValues] = [before, after].map((values) => chartDocuments(values?.values));
  if (
    !isObject(oldValues?.triton) ||
    !isObject(newValues?.triton) ||
    sameValue(oldValues, newValues)
  )
    return false;
  const same = (name: string) => sameValue(before?.[name], after?.[name]);
  return (
    sameValue(pods(oldValues), pods(newValues)) &&
    ["chart", "version", "set", "repository"].every(same)
  );
}

/** Returns whether the only Triton pod must stop before its replacement gets a GPU. */
function lacksSpareGpu(before: Values | undefined, after: Values | undefined): boolean {
  const [oldValues, newValues] = [before, after].map(
    (values) => chartDocuments(values?.values)?.triton,
  );
  if (
    !isObject(oldValues) ||
    !isObject(newValues) ||
    newValues.enabled === false ||
    newValues.spareGpu === true
  )
    return false;
  if (typeof newValues.gpus !== "number" || newValues.gpus === 0) return false;
  const {
    autoscaling: _oldAutoscaling,
    budget: _oldBudget,
    replicas: _oldReplicas,
    ...podsBefore
  } = oldValues;
  const { autoscaling, budget: _newBudget, replicas, ...podsAfter } = newValues;
  const isScaled = isObject(autoscaling) && autoscaling.enabled === true;
  const least = isScaled ? autoscaling.minReplicas : replicas;
  return !sameValue(podsBefore, podsAfter) && Number(least ?? 1) <= 1;
}
