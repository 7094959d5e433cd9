import type { ResourceChange } from "../input/change.ts";
import { baseType, type ExaminedType } from "../input/resource-types.ts";
import { isForgotten, objectName, type StackFacts } from "../input/stack-facts.ts";
import { holdsData } from "../input/stored-data.ts";
import { blockOf, sameValue } from "../input/value-paths.ts";
import { containerImpact, volumeImpact } from "./docker-impact.ts";
import {
  asTypedChange,
  dataLoss,
  type Impact,
  interruption,
  moreAccess,
  noOutage,
  outage,
  removals,
  type StackComparison,
} from "./impact-kinds.ts";
import { releaseImpact } from "./release-impact.ts";
import { autoscalerImpact, workloadImpact } from "./workload-impact.ts";

/** Impact of a change; `undefined` if the action alone is sufficient. */
export function impactOf(
  resourceChange: ResourceChange,
  stack: StackComparison,
): Impact | undefined {
  const resource = asTypedChange(resourceChange);
  const { type, action } = resource;
  if (action === "no-op" || action === "read") return undefined;
  if (isForgotten(resource)) {
    const text =
      action === "replace"
        ? "A new one is created; the old one is not destroyed: it continues to exist, unmanaged, with its name and ports."
        : "Terraform removes it from the state without destroying it: it continues to exist, unmanaged.";
    return { ...noOutage(text), isForgotten: true };
  }
  if (resource.deposed !== undefined) {
    return noOutage(
      "Left over from an earlier replacement; the current object at this address is kept.",
    );
  }
  const base = baseType(type);
  // irrelevant if the whole environment is destroyed
  const isEnvironmentDestroyed = action === "delete" && stack.after.environment === undefined;
  if (isEnvironmentDestroyed && podCompanions.has(base)) return undefined;
  const findImpact = Object.hasOwn(byType, base) ? byType[base as ExaminedType] : undefined;
  return findImpact === undefined ? unknownTypeImpact(resource, base) : findImpact(resource, stack);
}

/** Resource types that generate values. */
const generatedTypes = /^(random|tls)_/;

/** Impact for types that this project does not use. */
function unknownTypeImpact(resource: ResourceChange, type: string): Impact | undefined {
  const { action } = resource;
  if (action !== "delete" && action !== "replace") return undefined;
  if (generatedTypes.test(type)) {
    return dataLoss(
      action === "replace"
        ? "Its value changes: clients with the old value are rejected."
        : "Its value is lost.",
    );
  }
  const text =
    action === "replace"
      ? "It is destroyed and recreated: unavailable in between."
      : "It is destroyed and becomes unavailable.";
  return holdsData(resource) ? dataLoss(`${text} Its content is lost.`) : interruption(text);
}

type ImpactFinder = (resource: ResourceChange, stack: StackComparison) => Impact | undefined;

/** Types of objects that have an effect only while the pods to which they belong exist. */
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
      ? noOutage("Every container of this stack on it is recreated; see each for its downtime.")
      : undefined,
  docker_image: ({ action }) => {
    if (action === "delete") return noOutage("Removed from the host unless keep_locally is set.");
    if (action === "update") return undefined;
    return noOutage("Pulled or built before any service is changed.");
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
  kubernetes_daemon_set: workloadImpact,
  kubernetes_replication_controller: workloadImpact,
  kubernetes_service: ({ address, action, before, after }, { before: facts }) => {
    if (action === "update") {
      const [oldSpec, newSpec] = [before, after].map((values) => blockOf(values, "spec"));
      const same = (name: string) => sameValue(oldSpec?.[name], newSpec?.[name]);
      return ["selector", "port", "type"].every(same)
        ? undefined
        : interruption("Its ports or the pods it selects change.");
    }
    if (!removals.has(action)) return undefined;
    const service = facts.services.get(address);
    const back =
      action === "replace"
        ? "Its pods are unreachable until it is recreated, and its address may change."
        : "Its pods become unreachable through it.";
    return outage(back, [service?.name ?? objectName(before).name]);
  },
  kubernetes_persistent_volume: ({ action }) =>
    removals.has(action)
      ? dataLoss("Data on the volume is lost unless its reclaim policy is Retain.")
      : undefined,
  kubernetes_persistent_volume_claim: ({ action }) =>
    removals.has(action)
      ? dataLoss("Data on the volume is lost unless its storage class retains it.")
      : undefined,
  kubernetes_secret: ({ action }) =>
    removals.has(action)
      ? interruption("Pods that start before it is recreated wait for it.")
      : noOutage(keptUntilRestart),
  kubernetes_config_map: ({ action }) =>
    action === "create" ? undefined : noOutage(keptUntilRestart),
  kubernetes_service_account: (resource) =>
    resource.action === "update"
      ? moreAccess("The permissions of its pods may change.")
      : unknownTypeImpact(resource, "kubernetes_service_account"),
  kubernetes_pod_disruption_budget: ({ action }) =>
    removals.has(action)
      ? noOutage(
          action === "delete"
            ? "A node drain may evict every pod at once."
            : "Until it is recreated, a node drain may evict every pod at once.",
        )
      : undefined,
  kubernetes_horizontal_pod_autoscaler: autoscalerImpact,
  kubernetes_network_policy: ({ action }) => {
    if (action === "update") return moreAccess("Network access to or from its pods changes.");
    return removals.has(action)
      ? interruption("Until it is recreated, every pod of the cluster can connect to its pods.")
      : undefined;
  },
  kubernetes_role: rbacImpact,
  kubernetes_cluster_role: rbacImpact,
  kubernetes_role_binding: rbacImpact,
  kubernetes_cluster_role_binding: rbacImpact,
  kubernetes_ingress: ({ action }) => {
    if (action === "update")
      return moreAccess("Hosts or routes reachable from outside the cluster change.");
    return removals.has(action)
      ? interruption("Its backends are unreachable from outside the cluster.")
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
  const again = action === "replace" ? " and recreated, with everything in it" : "";
  return dataLoss(`The kind cluster is deleted${again}.`, servicesOf(stack.before));
}

/** Roles and role bindings. */
function rbacImpact({ action }: ResourceChange): Impact | undefined {
  // strong new permissions are reported as exposure
  if (action === "update" || action === "replace") {
    return moreAccess("Permissions in the cluster change.");
  }
  return action === "delete" ? interruption("Its subjects lose these permissions.") : undefined;
}
