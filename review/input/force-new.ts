import type { Path } from "./change.ts";
import { baseType } from "./resource-types.ts";

/**
 * Attributes that make a provider replace a resource, for a change without a plan. `terraform providers schema` does not list them;
 * they are from the providers' sources: attributes with `ForceNew` (RequiresReplace in helm) in kreuzwerker/docker 4.5
 * (internal/provider/resource_docker_*.go), hashicorp/kubernetes 2.38 (kubernetes/resource_kubernetes_*.go, schema_*.go),
 * hashicorp/helm 3.1 (helm/resource_helm_release.go), and terraform_data of Terraform 1.11.
 */
interface ForceNew {
  /** Whether the resource is replaced for the listed attributes only, or for all except them. */
  readonly listed: "only" | "except";
  /** Paths without indices: `spec.selector`. */
  readonly attributes: readonly string[];
}

const replacedFor = (...attributes: readonly string[]): ForceNew => ({
  listed: "only",
  attributes,
});
const replacedExceptFor = (...attributes: readonly string[]): ForceNew => ({
  listed: "except",
  attributes,
});

const identity = ["metadata.name", "metadata.namespace", "metadata.generate_name"] as const;

const forceNew: Readonly<Record<string, ForceNew>> = {
  docker_container: replacedExceptFor(
    ...["rm", "start", "wait", "wait_timeout", "attach", "logs", "must_run", "restart", "tmpfs"],
    ...["max_retry_count", "remove_volumes", "destroy_grace_seconds", "memory", "memory_swap"],
    ...["memory_reservation", "cpu_shares", "cpu_set", "cpu_period", "cpu_quota", "init"],
    ...["container_read_refresh_timeout_milliseconds", "device_read_bps", "device_read_iops"],
    ...["device_write_bps", "device_write_iops", "timeouts"],
  ),
  docker_image: replacedExceptFor("keep_locally", "force_remove", "timeouts"),
  docker_network: replacedExceptFor(),
  docker_volume: replacedExceptFor(),
  docker_secret: replacedExceptFor(),
  docker_config: replacedExceptFor(),
  docker_tag: replacedExceptFor(),
  docker_registry_image: replacedFor("name", "triggers"),
  terraform_data: replacedFor("triggers_replace"),
  null_resource: replacedFor("triggers"),
  helm_release: replacedFor("name", "namespace"),
  kubernetes_deployment: replacedFor(...identity, "spec.selector"),
  kubernetes_daemon_set: replacedFor(...identity, "spec.selector"),
  kubernetes_stateful_set: replacedFor(
    ...[...identity, "spec.selector", "spec.service_name", "spec.pod_management_policy"],
    "spec.volume_claim_template",
  ),
  kubernetes_service: replacedFor(
    ...[...identity, "spec.cluster_ip", "spec.cluster_ips", "spec.load_balancer_class"],
    ...["spec.health_check_node_port", "spec.allocate_load_balancer_node_ports"],
  ),
  kubernetes_pod_disruption_budget: replacedFor(
    ...[...identity, "spec.max_unavailable", "spec.min_available", "spec.selector"],
  ),
  kubernetes_resource_quota: replacedFor(...identity, "spec.scopes"),
  kubernetes_secret: replacedFor(...identity, "type", "immutable"),
  kubernetes_config_map: replacedFor(...identity, "immutable"),
  kubernetes_persistent_volume_claim: replacedFor(
    ...[...identity, "spec.access_modes", "spec.storage_class_name", "spec.volume_name"],
    ...["spec.selector", "spec.volume_mode"],
  ),
  kubernetes_cluster_role_binding: replacedFor(...identity, "role_ref"),
  kubernetes_role_binding: replacedFor(...identity, "role_ref"),
  kubernetes_storage_class: replacedExceptFor("metadata.labels", "metadata.annotations"),
  kubernetes_runtime_class: replacedFor(...identity, "handler"),
  kubernetes_priority_class: replacedFor(...identity, "value", "preemption_policy"),
};

/** Changed paths that make the provider replace the resource. */
export function forcingPaths(type: string, changed: readonly Path[]): readonly Path[] {
  const base = baseType(type);
  const known =
    (Object.hasOwn(forceNew, base) ? forceNew[base] : undefined) ??
    (base.startsWith("kubernetes_") ? replacedFor(...identity) : undefined);
  if (known === undefined) return [];
  return changed.filter((path) => {
    const attribute = path.filter((step) => typeof step === "string").join(".");
    const isListed = known.attributes.some(
      (it) => attribute === it || attribute.startsWith(`${it}.`),
    );
    return isListed === (known.listed === "only");
  });
}
