import type { ResourceChange } from "../input/change.ts";
import { baseType, type ExaminedType } from "../input/resource-types.ts";
import { objectName, type StackFacts } from "../input/stack-facts.ts";
import { blockOf, sameValue } from "../input/value-paths.ts";
import { containerImpact, volumeImpact } from "./docker-impact.ts";
import {
  dataLoss,
  type Impact,
  interruption,
  moreAccess,
  noOutage,
  outage,
  removals,
  type StackComparison,
  typedChange,
} from "./impact-kinds.ts";
import { releaseImpact } from "./release-impact.ts";
import { autoscalerImpact, workloadImpact } from "./workload-impact.ts";

/** What `resource` means, or nothing where its action says it all. */
export function impactOf(given: ResourceChange, stack: StackComparison): Impact | undefined {
  const resource = typedChange(given);
  const { type, action } = resource;
  if (action === "no-op" || action === "read") return undefined;
  if (action === "forget") {
    return noOutage("Terraform forgets it: it stays as it is, and nobody manages it.");
  }
  if (resource.deposed !== undefined) {
    return noOutage("It is what an earlier replacement left: what is at the address now stays.");
  }
  const base = baseType(type);
  // where nothing stays, nobody asks what pods do without their budget
  const allGone = action === "delete" && stack.after.environment === undefined;
  if (allGone && podCompanions.has(base)) return undefined;
  const tell = Object.hasOwn(byType, base) ? byType[base as ExaminedType] : undefined;
  return tell === undefined ? unknownTypeImpact(resource, base) : tell(resource, stack);
}

/** What keeps something that is not in its values, by the words of its type. */
const storageTypes =
  /(^|_)(db|database|rds|sql|bucket|disk|volume|filesystem|file_system|table|queue|topic|cluster|registry|vault)(_|$)/;
/** What makes up a value that others were given. */
const generatedTypes = /^(random|tls)_/;

/** Of what this project does not use: nobody here knows who does. */
function unknownTypeImpact({ action }: ResourceChange, type: string): Impact | undefined {
  if (action !== "delete" && action !== "replace") return undefined;
  if (generatedTypes.test(type)) {
    return dataLoss(
      action === "replace"
        ? "Its value is another: whoever has the old one is refused."
        : "Its value is lost.",
    );
  }
  const text =
    action === "replace"
      ? "It is destroyed and made again: whoever uses it waits."
      : "It is destroyed: whoever uses it does without it.";
  return storageTypes.test(type) ? dataLoss(`${text} What is in it is lost.`) : interruption(text);
}

type ImpactFinder = (resource: ResourceChange, stack: StackComparison) => Impact | undefined;

/** What only matters beside pods. */
const podCompanions = new Set([
  "kubernetes_horizontal_pod_autoscaler",
  "kubernetes_pod_disruption_budget",
  "kubernetes_network_policy",
  "kubernetes_secret",
  "kubernetes_config_map",
]);

const keptUntilRestart =
  "Running pods keep the old values in their environment until they restart; mounted files follow within minutes.";

const byType: Readonly<Partial<Record<ExaminedType, ImpactFinder>>> = {
  docker_container: containerImpact,
  docker_volume: volumeImpact,
  docker_network: ({ action }) =>
    action === "replace"
      ? noOutage(
          "Every container of this stack on it is recreated, and each states its own downtime.",
        )
      : undefined,
  docker_image: ({ action }) => {
    if (action === "delete") return noOutage("It is removed from the host, unless it is kept.");
    if (action === "update") return undefined;
    return noOutage("It is pulled or built before a service is touched.");
  },
  terraform_data: terraformDataImpact,
  kubernetes_namespace: ({ action, before }, { before: facts }) =>
    removals.has(action)
      ? dataLoss(
          `Everything in namespace ${objectName(before).name} is deleted with it.`,
          servicesOf(facts),
        )
      : undefined,
  kubernetes_deployment: workloadImpact,
  kubernetes_stateful_set: workloadImpact,
  kubernetes_daemonset: workloadImpact,
  kubernetes_daemon_set: workloadImpact,
  kubernetes_replication_controller: workloadImpact,
  kubernetes_service: ({ address, action, before, after }, { before: facts }) => {
    if (action === "update") {
      const [was, is] = [before, after].map((values) => blockOf(values, "spec"));
      const same = (name: string) => sameValue(was?.[name], is?.[name]);
      return ["selector", "port", "type"].every(same)
        ? undefined
        : interruption("Its ports, or the pods behind it, are others.");
    }
    if (!removals.has(action)) return undefined;
    const service = facts.services.get(address);
    const back =
      action === "replace"
        ? "Nobody reaches the pods behind it until it is made again, and its address may be another."
        : "Nobody reaches the pods behind it any more.";
    return outage(back, [service?.name ?? objectName(before).name]);
  },
  kubernetes_persistent_volume: ({ action }) =>
    removals.has(action)
      ? dataLoss("What is on the volume is lost, unless it is retained.")
      : undefined,
  kubernetes_persistent_volume_claim: ({ action }) =>
    removals.has(action)
      ? dataLoss("What is on the volume is lost, unless its class keeps it.")
      : undefined,
  kubernetes_secret: ({ action }) =>
    removals.has(action)
      ? interruption("Pods that start meanwhile do not find it, and wait.")
      : noOutage(keptUntilRestart),
  kubernetes_config_map: ({ action }) =>
    action === "create" ? undefined : noOutage(keptUntilRestart),
  kubernetes_service_account: (resource) =>
    resource.action === "update"
      ? moreAccess("The rights of its pods may be others.")
      : unknownTypeImpact(resource, "kubernetes_service_account"),
  kubernetes_pod_disruption_budget: ({ action }) =>
    removals.has(action)
      ? noOutage(
          action === "delete"
            ? "A drain of nodes may take every pod at once."
            : "Until it is made again, a drain of nodes may take every pod at once.",
        )
      : undefined,
  kubernetes_horizontal_pod_autoscaler: autoscalerImpact,
  kubernetes_network_policy: ({ action }) => {
    if (action === "update")
      return moreAccess("Who reaches the pods, or whom they reach, is another.");
    return removals.has(action)
      ? interruption("Any pod of the cluster reaches the pods meanwhile.")
      : undefined;
  },
  kubernetes_role: rbacImpact,
  kubernetes_cluster_role: rbacImpact,
  kubernetes_role_binding: rbacImpact,
  kubernetes_cluster_role_binding: rbacImpact,
  kubernetes_ingress: ({ action }) => {
    if (action === "update")
      return moreAccess("What is reached from outside, or by which name, is another.");
    return removals.has(action)
      ? interruption("Nobody reaches what is behind it from outside meanwhile.")
      : undefined;
  },
  helm_release: releaseImpact,
};

function servicesOf({ environment }: StackFacts): readonly string[] {
  return (environment?.services ?? []).map(({ name }) => name);
}

function terraformDataImpact(resource: ResourceChange, stack: StackComparison): Impact | undefined {
  const { address, action } = resource;
  const isCluster = [...stack.before.services, ...stack.after.services].some(
    ([key, { resources }]) => key === address && resources.cluster === address,
  );
  if (!isCluster || !removals.has(action)) return undefined;
  const again = action === "replace" ? " and made again, with all that is in it" : "";
  return dataLoss(`The kind cluster is deleted${again}.`, servicesOf(stack.before));
}

/** Roles, and who has them. */
function rbacImpact({ action }: ResourceChange): Impact | undefined {
  // what is strong of new rights is an exposure
  if (action === "update" || action === "replace") {
    return moreAccess("Who may do what in the cluster is another.");
  }
  return action === "delete" ? interruption("Who had these rights has them no more.") : undefined;
}
