import type { Service } from "../../contract/environment.ts";
import { engineCacheMount } from "../../contract/model-config.ts";
import { type ResourceChange, type StackChange, unchanged, type Values } from "../input/change.ts";
import { asTyped, baseType, type ExaminedType } from "../input/resource-types.ts";
import {
  durationText,
  factsOf,
  isOneShot,
  labelOf,
  objectName,
  type StackFacts,
  secondsOf,
  selects,
  volumeAt,
} from "../input/stack-facts.ts";
import { blockOf, blocksOf, isObject, sameValue } from "../input/value-paths.ts";
import { chartDocuments } from "./chart-values.ts";

/** What a change of a resource means for those who use the environment. */
export interface Consequence {
  /** A sentence, or a few. */
  readonly text: string;
  /** Services that do not answer meanwhile, or never again. */
  readonly down: readonly string[];
  /** Something is lost that has to be made, or paid for, again. */
  readonly lost: boolean;
  /** It does not come back with the change. */
  readonly forGood?: true;
  /** What is worse afterwards: fewer pods answer, or somebody may do or reach more. */
  readonly worse?: "capacity" | "access";
  /** Somebody may have to wait or do without, and nothing says who. */
  readonly waits?: true;
}

const stops = (text: string, down: readonly string[]): Consequence => ({ text, down, lost: false });
const harmless = (text: string): Consequence => stops(text, []);
const loses = (text: string, down: readonly string[] = []): Consequence => ({
  ...stops(text, down),
  lost: true,
});
const waits = (text: string): Consequence => ({ ...harmless(text), waits: true });
const fewer = (text: string): Consequence => ({ ...harmless(text), worse: "capacity" });
const opens = (text: string): Consequence => ({ ...harmless(text), worse: "access" });

export interface StackMoments {
  readonly change: StackChange;
  readonly before: StackFacts;
  readonly after: StackFacts;
}

export function momentsOf(change: StackChange): StackMoments {
  return { change, before: factsOf(unchanged(change)), after: factsOf(change) };
}

/** What `resource` means, or nothing where its action says it all. */
export function consequenceOf(given: ResourceChange, stack: StackMoments): Consequence | undefined {
  const resource = typedChange(given);
  const { type, action } = resource;
  if (action === "no-op" || action === "read") return undefined;
  if (action === "forget") {
    return harmless("Terraform forgets it: it stays as it is, and nobody manages it.");
  }
  if (resource.deposed !== undefined) {
    return harmless("It is what an earlier replacement left: what is at the address now stays.");
  }
  const base = baseType(type);
  // where nothing stays, nobody asks what pods do without their budget
  const allGone = action === "delete" && stack.after.environment === undefined;
  if (allGone && companions.has(base)) return undefined;
  const tell = Object.hasOwn(byType, base) ? byType[base as ExaminedType] : undefined;
  return tell === undefined ? unknownType(resource, base) : tell(resource, stack);
}

/** A manifest of an examined kind as the resource of that kind. */
export function typedChange(resource: ResourceChange): ResourceChange {
  const [before, after] = [resource.before, resource.after].map(
    (values) => values && asTyped(resource.type, values),
  );
  const type = (after ?? before)?.type ?? resource.type;
  return type === resource.type
    ? resource
    : { ...resource, type, before: before?.values, after: after?.values };
}

/** What keeps something that is not in its values, by the words of its type. */
const keeping =
  /(^|_)(db|database|rds|sql|bucket|disk|volume|filesystem|file_system|table|queue|topic|cluster|registry|vault)(_|$)/;
/** What makes up a value that others were given. */
const madeUp = /^(random|tls)_/;

/** Of what this project does not use: nobody here knows who does. */
function unknownType({ action }: ResourceChange, type: string): Consequence | undefined {
  if (action !== "delete" && action !== "replace") return undefined;
  if (madeUp.test(type)) {
    return loses(
      action === "replace"
        ? "Its value is another: whoever has the old one is refused."
        : "Its value is lost.",
    );
  }
  const text =
    action === "replace"
      ? "It is destroyed and made again: whoever uses it waits."
      : "It is destroyed: whoever uses it does without it.";
  return keeping.test(type) ? loses(`${text} What is in it is lost.`) : waits(text);
}

type Tell = (resource: ResourceChange, stack: StackMoments) => Consequence | undefined;

/** What only matters beside pods. */
const companions = new Set([
  "kubernetes_horizontal_pod_autoscaler",
  "kubernetes_pod_disruption_budget",
  "kubernetes_network_policy",
  "kubernetes_secret",
  "kubernetes_config_map",
]);

const gone = new Set(["delete", "replace"]);

const keptUntilRestart =
  "Running pods keep the old values in their environment until they restart; mounted files follow within minutes.";

const byType: Readonly<Partial<Record<ExaminedType, Tell>>> = {
  docker_container: container,
  docker_volume: volume,
  docker_network: ({ action }) =>
    action === "replace"
      ? harmless(
          "Every container of this stack on it is recreated, and each states its own downtime.",
        )
      : undefined,
  docker_image: ({ action }) => {
    if (action === "delete") return harmless("It is removed from the host, unless it is kept.");
    if (action === "update") return undefined;
    return harmless("It is pulled or built before a service is touched.");
  },
  terraform_data: terraformData,
  kubernetes_namespace: ({ action, before }, { before: facts }) =>
    gone.has(action)
      ? loses(
          `Everything in namespace ${objectName(before).name} is deleted with it.`,
          servicesOf(facts),
        )
      : undefined,
  kubernetes_deployment: deployment,
  kubernetes_stateful_set: deployment,
  kubernetes_daemonset: deployment,
  kubernetes_daemon_set: deployment,
  kubernetes_replication_controller: deployment,
  kubernetes_service: ({ address, action, before, after }, { before: facts }) => {
    if (action === "update") {
      const [was, is] = [before, after].map((values) => blockOf(values, "spec"));
      const same = (name: string) => sameValue(was?.[name], is?.[name]);
      return ["selector", "port", "type"].every(same)
        ? undefined
        : waits("Its ports, or the pods behind it, are others.");
    }
    if (!gone.has(action)) return undefined;
    const service = facts.services.get(address);
    const back =
      action === "replace"
        ? "Nobody reaches the pods behind it until it is made again, and its address may be another."
        : "Nobody reaches the pods behind it any more.";
    return stops(back, [service?.name ?? objectName(before).name]);
  },
  kubernetes_persistent_volume: ({ action }) =>
    gone.has(action) ? loses("What is on the volume is lost, unless it is retained.") : undefined,
  kubernetes_persistent_volume_claim: ({ action }) =>
    gone.has(action)
      ? loses("What is on the volume is lost, unless its class keeps it.")
      : undefined,
  kubernetes_secret: ({ action }) =>
    gone.has(action)
      ? waits("Pods that start meanwhile do not find it, and wait.")
      : harmless(keptUntilRestart),
  kubernetes_config_map: ({ action }) =>
    action === "create" ? undefined : harmless(keptUntilRestart),
  kubernetes_service_account: (resource) =>
    resource.action === "update"
      ? opens("The rights of its pods may be others.")
      : unknownType(resource, "kubernetes_service_account"),
  kubernetes_pod_disruption_budget: ({ action }) =>
    gone.has(action)
      ? harmless(
          action === "delete"
            ? "A drain of nodes may take every pod at once."
            : "Until it is made again, a drain of nodes may take every pod at once.",
        )
      : undefined,
  kubernetes_horizontal_pod_autoscaler: autoscaler,
  kubernetes_network_policy: ({ action }) => {
    if (action === "update") return opens("Who reaches the pods, or whom they reach, is another.");
    return gone.has(action)
      ? waits("Any pod of the cluster reaches the pods meanwhile.")
      : undefined;
  },
  kubernetes_role: rights,
  kubernetes_cluster_role: rights,
  kubernetes_role_binding: rights,
  kubernetes_cluster_role_binding: rights,
  kubernetes_ingress: ({ action }) => {
    if (action === "update")
      return opens("What is reached from outside, or by which name, is another.");
    return gone.has(action)
      ? waits("Nobody reaches what is behind it from outside meanwhile.")
      : undefined;
  },
  helm_release: release,
};

function servicesOf({ environment }: StackFacts): readonly string[] {
  return (environment?.services ?? []).map(({ name }) => name);
}

function container(resource: ResourceChange, stack: StackMoments): Consequence | undefined {
  const { address, action, before, after } = resource;
  const service = stack.before.services.get(address) ?? stack.after.services.get(address);
  const values = after ?? before;
  if (service === undefined) {
    if (isOneShot(values)) return oneShot(resource);
    if (!gone.has(action)) return undefined;
    const name = String(before?.name ?? "");
    return waits(
      action === "delete" ? `Container ${name} ends.` : `Container ${name} is started anew.`,
    );
  }
  if (action === "create") return harmless(`${service.name} is new: ${endpointsText(service)}.`);
  if (action === "update") return harmless(`${service.name} is changed while it runs.`);
  const grace = numberOf(before?.destroy_grace_seconds) ?? numberOf(before?.stop_timeout);
  const stop = grace === undefined ? "" : ` (accepted requests have ${durationText(grace)})`;
  const who = `${service.name} (${endpointsText(service)})`;
  if (action === "delete") return stops(`${who} is gone${stop}.`, [service.name]);
  const allowed = secondsOf(blockOf(after, "healthcheck").start_period);
  const start =
    allowed === undefined || allowed === 0
      ? "until it is ready again"
      : `until it is ready again, for which it has ${durationText(allowed)}`;
  const engines = rebuildsEngines(resource, stack)
    ? " TensorRT engines are built anew before it is ready, which takes minutes for each instance."
    : volumeAt(after, engineCacheMount) === undefined
      ? ""
      : " Its TensorRT engines are still there.";
  return stops(`${who} does not answer from its stop${stop} ${start}.${engines}`, [service.name]);
}

function endpointsText({ endpoints }: Service): string {
  const own = endpoints.filter(({ protocol }) => protocol !== "metrics");
  return (own.length > 0 ? own : endpoints)
    .map(({ url, name }) => (name === undefined ? url : `${name} ${url}`))
    .join(", ");
}

function oneShot({ action, after }: ResourceChange): Consequence | undefined {
  if (action === "delete") return harmless("It ended long ago: nothing runs in it.");
  const service = labelOf(after, "clipstack.service");
  const what = service === undefined ? "It" : `${service}: it`;
  return harmless(`${what} runs once, and ends before a service is touched.`);
}

function numberOf(value: unknown): number | undefined {
  return typeof value === "number" ? value : undefined;
}

/** Whether a container finds no engines of its own any more. */
function rebuildsEngines({ before, after }: ResourceChange, { change }: StackMoments): boolean {
  const [was, is] = [volumeAt(before, engineCacheMount), volumeAt(after, engineCacheMount)];
  if (is === undefined && after?.volumes !== undefined) return false;
  if (was !== is) return was !== undefined;
  const volumes = change.resources.filter(
    ({ type, action }) => type === "docker_volume" && gone.has(action),
  );
  return volumes.some(({ before: values }) => values?.name === was);
}

/** Whether this project's constructs declare a container: what its mounts hold is known then. */
function isOwn(container: Values): boolean {
  return labelOf(container, "clipstack.service") !== undefined;
}

function volume({ action, before }: ResourceChange, stack: StackMoments): Consequence | undefined {
  if (!gone.has(action)) return undefined;
  const name = before?.name;
  const mounts = [...stack.before.values.values()]
    .filter(({ type, values }) => type === "docker_container" && isOwn(values))
    .flatMap(({ values }) => blocksOf(values.volumes).filter((it) => it.volume_name === name))
    .map(({ container_path: place }) => String(place));
  if (mounts.includes(engineCacheMount)) {
    const isBuilt = [...stack.after.values.values()].some(
      ({ type, values }) =>
        type === "docker_container" && volumeAt(values, engineCacheMount) !== undefined,
    );
    const again = ": the next start builds them again, which takes minutes for each instance";
    return loses(`The TensorRT engines in it are lost${isBuilt ? again : ""}.`);
  }
  if (mounts.some((place) => /^\/(weights|models\/[^/]+\/1)$/.test(place))) {
    return harmless("The weights in it are a copy, which a deployment makes.");
  }
  if (mounts.some((place) => place === "/configs" || /\/configs$/.test(place))) {
    return harmless("The model configuration in it is derived: a deployment writes it.");
  }
  return loses("What is in the volume is lost.");
}

function terraformData(resource: ResourceChange, stack: StackMoments): Consequence | undefined {
  const { address, action } = resource;
  const isCluster = [...stack.before.services, ...stack.after.services].some(
    ([key, { resources }]) => key === address && resources.cluster === address,
  );
  if (!isCluster || !gone.has(action)) return undefined;
  const again = action === "replace" ? " and made again, with all that is in it" : "";
  return loses(`The kind cluster is deleted${again}.`, servicesOf(stack.before));
}

function deployment(resource: ResourceChange, stack: StackMoments): Consequence | undefined {
  const { address, action, before, after } = resource;
  const service = stack.before.services.get(address) ?? stack.after.services.get(address);
  const { name } = objectName(after ?? before);
  const who = service?.name ?? name;
  const down = [who];
  if (action === "delete") return stops(`${who} is gone.`, down);
  if (action === "replace") {
    const text = `All pods of ${who} are deleted, and it does not answer until new ones are ready.`;
    return stops(text, down);
  }
  if (action !== "update") return undefined;
  const [was, is] = [blockOf(before, "spec"), blockOf(after, "spec")];
  const [had, has] = [numberOfPods(was.replicas), numberOfPods(is.replicas)];
  if (has === 0 && had !== 0) {
    return { ...stops(`${who} has no pod any more.`, down), forGood: true };
  }
  const rolled = rollout(resource, who, stack);
  if (had === undefined || has === undefined || has >= had) return rolled;
  const budget = budgetOf(after, stack.after, has);
  const below =
    budget !== undefined && has < budget ? `, below the ${budget} of the disruption budget` : "";
  const share = Math.round((has / had) * 100);
  const less = `${podsText(has)} in place of ${had} answer${has === 1 ? "s" : ""}, ${share} % of the capacity${below}.`;
  return { ...rolled, text: `${less} ${rolled.text}`, worse: "capacity" };
}

function podsText(count: number): string {
  return `${count} ${count === 1 ? "pod" : "pods"}`;
}

/** What an update does with the pods that are there. */
function rollout(
  { type, before, after }: ResourceChange,
  who: string,
  stack: StackMoments,
): Consequence {
  const down = [who];
  const [was, is] = [blockOf(before, "spec"), blockOf(after, "spec")];
  if (sameValue(was.template, is.template)) return harmless("No pod is started anew.");
  const pods = replicasOf(objectName(after), stack.after, is);
  if (["update_strategy", "strategy"].some((name) => blockOf(is, name).type === "OnDelete")) {
    return harmless("Its pods stay as they are until somebody deletes them.");
  }
  if (/daemon_?set/.test(type)) {
    return harmless(
      "Its pods are replaced node by node: each is away until its next one is ready.",
    );
  }
  if (/stateful_set/.test(type)) {
    const text = "Its pods are replaced one at a time, the last one first";
    return pods === 1
      ? stops(`${text}: it has one, and none answers meanwhile.`, down)
      : harmless(`${text}: each is away until its next one is ready.`);
  }
  if (blockOf(is, "strategy").type === "Recreate") {
    return stops(`All pods of ${who} end before new ones start.`, down);
  }
  const { max_unavailable: away = "25%", max_surge: surge = "25%" } = blockOf(
    is,
    "strategy",
    "rolling_update",
  );
  const missing = countOf(away, pods ?? 1, Math.floor);
  const rolled = `Its pods are replaced one after the other: ${surge} more and ${away} fewer at a time.`;
  if (pods === undefined) return harmless(rolled);
  const least = pods - missing;
  const budget = budgetOf(after, stack.after, pods);
  if (budget !== undefined && least < budget) {
    const text = `${rolled} With ${podsText(pods)}, ${least} answer meanwhile, below the ${budget} of the disruption budget.`;
    return { ...stops(text, least === 0 ? down : []), worse: "capacity" };
  }
  return least === 0
    ? stops(`${rolled} With ${podsText(pods)}, none answers meanwhile.`, down)
    : harmless(rolled);
}

function numberOfPods(replicas: unknown): number | undefined {
  const count = Number((replicas ?? "") === "" ? Number.NaN : replicas);
  return Number.isFinite(count) ? count : undefined;
}

/** `1`, `"1"` or `"25%"` of the pods. */
function countOf(value: unknown, pods: number, round: (count: number) => number): number {
  const text = String(value);
  if (text.endsWith("%")) return round((Number.parseFloat(text) / 100) * pods);
  const count = Number(text);
  return Number.isFinite(count) ? count : 0;
}

type ObjectName = ReturnType<typeof objectName>;

/** Fewest pods: those of the autoscaler, or of the Deployment. */
export function replicasOf(
  { name }: ObjectName,
  facts: StackFacts,
  spec: Readonly<Record<string, unknown>>,
): number | undefined {
  for (const { type, values } of facts.values.values()) {
    if (!type.startsWith("kubernetes_horizontal_pod_autoscaler")) continue;
    const scaler = blockOf(values, "spec");
    if (blockOf(scaler, "scale_target_ref").name === name) {
      return countOf(scaler.min_replicas ?? 1, 1, Math.round);
    }
  }
  const { replicas = null } = spec;
  return replicas === null ? undefined : countOf(replicas, 1, Math.round);
}

/** Pods that the disruption budget which selects those of a workload asks for. */
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
    if (least !== "") return countOf(least, pods, Math.ceil);
    return pods - countOf(spec.max_unavailable ?? 0, pods, Math.ceil);
  }
  return undefined;
}

function autoscaler({ action, before, after }: ResourceChange): Consequence | undefined {
  if (action === "delete") return harmless("The number of pods stays what it is now.");
  if (action !== "update") return undefined;
  const [was, is] = [before, after].map((values) => {
    const { min_replicas: min, max_replicas: max } = blockOf(values, "spec");
    return { min: numberOfPods(min) ?? 1, max: numberOfPods(max) ?? 1 };
  });
  if (was === undefined || is === undefined) return undefined;
  const bounds = `${is.min} to ${is.max} pods in place of ${was.min} to ${was.max}.`;
  if (is.min < was.min || is.max < was.max) return fewer(bounds);
  return is.min > was.min || is.max > was.max ? harmless(bounds) : undefined;
}

/** Roles, and who has them. */
function rights({ action }: ResourceChange): Consequence | undefined {
  // what is strong of new rights is an exposure
  if (action === "update" || action === "replace") {
    return opens("Who may do what in the cluster is another.");
  }
  return action === "delete" ? waits("Who had these rights has them no more.") : undefined;
}

function release(resource: ResourceChange, stack: StackMoments): Consequence | undefined {
  const { address, action, before, after } = resource;
  const own = (facts: StackFacts) =>
    (facts.environment?.services ?? [])
      .filter(({ resources }) => resources.release === address)
      .map(({ name }) => name);
  const name = String((after ?? before)?.name ?? "");
  const served = own(stack.before);
  if (action === "delete") return stops(`Every object of release ${name} is deleted.`, served);
  if (action === "replace") {
    const text = `Every object of release ${name} is deleted, and made again.`;
    return stops(text, served.length === 0 ? [name] : served);
  }
  if (action !== "update") return undefined;
  const [was, is] = [before, after].map((values) => chartDocuments(values?.values) ?? {});
  const of = (facts: StackFacts, part: string) => own(facts).filter((it) => it.startsWith(part));
  const stopped = ["embed", "triton"].filter(
    (part) => hasPods(was?.[part]) && isObject(is?.[part]) && !hasPods(is[part]),
  );
  if (stopped.length > 0) {
    const down = stopped.flatMap((part) => of(stack.before, part));
    return { ...stops(`Nothing of ${stopped.join(" and ")} runs any more.`, down), forGood: true };
  }
  if (["chart", "repository"].some((name) => !sameValue(before?.[name], after?.[name]))) {
    return waits(
      "It is another chart: Helm makes what that one says, and deletes what it leaves out.",
    );
  }
  if (after?.recreate_pods === true) {
    return stops("Helm ends all its pods at once.", own(stack.after));
  }
  if (after?.force_update === true || after?.replace === true) {
    return waits("Helm deletes objects that differ, and makes them again.");
  }
  const isOpened = isOn(was?.networkPolicy) && !isOn(is?.networkPolicy);
  if (isOpened) return opens("Any pod of the cluster reaches its pods from now on.");
  const isOtherInside = chartFiles(before) !== chartFiles(after);
  if (!isOtherInside && rollsNothing(before, after)) return harmless("No pod is started anew.");
  const text =
    "Helm changes the objects that differ, and their Deployments replace pods one after the other.";
  return withoutSpare(before, after)
    ? stops(
        `${text} Triton has one pod and no spare GPU: nothing answers while it is replaced.`,
        of(stack.after, "triton"),
      )
    : isOtherInside
      ? waits(`Files of its chart are others: helm template says what they make. ${text}`)
      : harmless(text);
}

/** What a release of this project's chart says of the files of the chart: a hash, or the expression that computes it. */
function chartFiles(values: Values | undefined): unknown {
  const { description } = values ?? {};
  return typeof description === "string" && description.startsWith("chart ")
    ? description
    : undefined;
}

/** Whether a part of this project's chart is on: it is where nobody says otherwise. */
function isOn(part: unknown): boolean {
  return !isObject(part) || part.enabled !== false;
}

/** Whether a part of this project's chart has a pod. */
function hasPods(part: unknown): boolean {
  if (!isObject(part) || part.enabled === false) return false;
  const isScaled = isObject(part.autoscaling) && part.autoscaling.enabled === true;
  return isScaled || part.replicas !== 0;
}

/** Parts of this project's chart that no pod has. */
const besidePods = new Set(
  "autoscaling replicas budget quota serviceMonitor networkPolicy".split(" "),
);

/** Whether of a release of this project's chart only that is another which no pod has. */
function rollsNothing(before: Values | undefined, after: Values | undefined): boolean {
  const pods = (values: unknown): unknown =>
    isObject(values)
      ? Object.fromEntries(
          Object.entries(values)
            .filter(([name]) => !besidePods.has(name))
            .map(([name, part]) => [name, pods(part)]),
        )
      : values;
  const [was, is] = [before, after].map((values) => chartDocuments(values?.values));
  if (!isObject(was?.triton) || !isObject(is?.triton) || sameValue(was, is)) return false;
  const same = (name: string) => sameValue(before?.[name], after?.[name]);
  return sameValue(pods(was), pods(is)) && ["chart", "version", "set", "repository"].every(same);
}

/** Whether the only Triton of this project's chart is stopped before the next one has its GPU. */
function withoutSpare(before: Values | undefined, after: Values | undefined): boolean {
  const [was, is] = [before, after].map((values) => chartDocuments(values?.values)?.triton);
  if (!isObject(was) || !isObject(is) || is.enabled === false || is.spareGpu === true) return false;
  if (typeof is.gpus !== "number" || is.gpus === 0) return false;
  const { autoscaling: _was, budget: _old, replicas: _had, ...podsBefore } = was;
  const { autoscaling, budget: _new, replicas, ...podsAfter } = is;
  const isScaled = isObject(autoscaling) && autoscaling.enabled === true;
  const least = isScaled ? autoscaling.minReplicas : replicas;
  return !sameValue(podsBefore, podsAfter) && Number(least ?? 1) <= 1;
}
