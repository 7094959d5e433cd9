import type { ResourceChange, Values } from "../input/change.ts";
import type { StackFacts } from "../input/stack-facts.ts";
import { isObject, sameValue } from "../input/value-paths.ts";
import { chartDocuments } from "./chart-values.ts";
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
  const own = (facts: StackFacts) =>
    (facts.environment?.services ?? [])
      .filter(({ resources }) => resources.release === address)
      .map(({ name }) => name);
  const name = String((after ?? before)?.name ?? "");
  const served = own(stack.before);
  if (action === "delete") return outage(`Every object of release ${name} is deleted.`, served);
  if (action === "replace") {
    const text = `Every object of release ${name} is deleted and recreated.`;
    return outage(text, served.length === 0 ? [name] : served);
  }
  if (action !== "update") return undefined;
  const [was, is] = [before, after].map((values) => chartDocuments(values?.values) ?? {});
  const of = (facts: StackFacts, part: string) => own(facts).filter((it) => it.startsWith(part));
  const stopped = ["embed", "triton"].filter(
    (part) => runsPods(was?.[part]) && isObject(is?.[part]) && !runsPods(is[part]),
  );
  if (stopped.length > 0) {
    const down = stopped.flatMap((part) => of(stack.before, part));
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
    return outage("Helm stops all its pods at once (recreate_pods).", own(stack.after));
  }
  if (after?.force_update === true || after?.replace === true) {
    return interruption("Helm deletes and recreates the objects that differ.");
  }
  const isOpened = isEnabled(was?.networkPolicy) && !isEnabled(is?.networkPolicy);
  if (isOpened) return moreAccess("Every pod of the cluster can connect to its pods from now on.");
  const isOtherInside = chartFiles(before) !== chartFiles(after);
  if (!isOtherInside && keepsPods(before, after)) return noOutage("No pod is restarted.");
  const text =
    "Helm updates the objects that differ; changed Deployments perform a rolling update.";
  return lacksSpareGpu(before, after)
    ? outage(
        `${text} Triton has one pod and no spare GPU, so it is unavailable while that pod is replaced.`,
        of(stack.after, "triton"),
      )
    : isOtherInside
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

/** Whether a component of this project's chart is enabled (default: true). */
function isEnabled(part: unknown): boolean {
  return !isObject(part) || part.enabled !== false;
}

/** Whether a component of this project's chart runs pods. */
function runsPods(part: unknown): boolean {
  if (!isObject(part) || part.enabled === false) return false;
  const isScaled = isObject(part.autoscaling) && part.autoscaling.enabled === true;
  return isScaled || part.replicas !== 0;
}

/** Chart values that do not affect pods. */
const podIndependentValues = new Set(
  "autoscaling replicas budget quota serviceMonitor networkPolicy".split(" "),
);

/** Whether an update changes only chart values that do not affect pods. */
function keepsPods(before: Values | undefined, after: Values | undefined): boolean {
  const pods = (values: unknown): unknown =>
    isObject(values)
      ? Object.fromEntries(
          Object.entries(values)
            .filter(([name]) => !podIndependentValues.has(name))
            .map(([name, part]) => [name, pods(part)]),
        )
      : values;
  const [was, is] = [before, after].map((values) => chartDocuments(values?.values));
  if (!isObject(was?.triton) || !isObject(is?.triton) || sameValue(was, is)) return false;
  const same = (name: string) => sameValue(before?.[name], after?.[name]);
  return sameValue(pods(was), pods(is)) && ["chart", "version", "set", "repository"].every(same);
}

/** Whether the only Triton pod must stop before its replacement gets a GPU. */
function lacksSpareGpu(before: Values | undefined, after: Values | undefined): boolean {
  const [was, is] = [before, after].map((values) => chartDocuments(values?.values)?.triton);
  if (!isObject(was) || !isObject(is) || is.enabled === false || is.spareGpu === true) return false;
  if (typeof is.gpus !== "number" || is.gpus === 0) return false;
  const { autoscaling: _was, budget: _old, replicas: _had, ...podsBefore } = was;
  const { autoscaling, budget: _new, replicas, ...podsAfter } = is;
  const isScaled = isObject(autoscaling) && autoscaling.enabled === true;
  const least = isScaled ? autoscaling.minReplicas : replicas;
  return !sameValue(podsBefore, podsAfter) && Number(least ?? 1) <= 1;
}
