import type { Path } from "./change.ts";
import { baseType } from "./resource-types.ts";

/**
 * Which attributes make a provider replace a resource, for what has no plan. `terraform providers schema` does not say it; the
 * tables are from the providers' sources: attributes with `ForceNew` (RequiresReplace for helm) in kreuzwerker/docker 4.5
 * (internal/provider/resource_docker_*.go), hashicorp/kubernetes 2.38 (kubernetes/resource_kubernetes_*.go, schema_*.go),
 * hashicorp/helm 3.1 (helm/resource_helm_release.go), and terraform_data of Terraform 1.11.
 */
interface Replacing {
  /** Every attribute replaces but these, or none but these. */
  readonly all: boolean;
  /** Paths without indexes: `spec.selector`. */
  readonly but: readonly string[];
}

const replacedButFor = (...but: readonly string[]): Replacing => ({ all: true, but });
const updatedButFor = (...but: readonly string[]): Replacing => ({ all: false, but });

/** Name and namespace of any Kubernetes object. */
const identity = ["metadata.name", "metadata.namespace", "metadata.generate_name"] as const;

const replacing: Readonly<Record<string, Replacing>> = {
  docker_container: replacedButFor(
    ...["rm", "start", "wait", "wait_timeout", "attach", "logs", "must_run", "restart", "tmpfs"],
    ...["max_retry_count", "remove_volumes", "destroy_grace_seconds", "memory", "memory_swap"],
    ...["memory_reservation", "cpu_shares", "cpu_set", "cpu_period", "cpu_quota", "init"],
    ...["container_read_refresh_timeout_milliseconds", "device_read_bps", "device_read_iops"],
    ...["device_write_bps", "device_write_iops", "timeouts"],
  ),
  docker_image: replacedButFor("keep_locally", "force_remove", "timeouts"),
  docker_network: replacedButFor(),
  docker_volume: replacedButFor(),
  docker_secret: replacedButFor(),
  docker_config: replacedButFor(),
  docker_tag: replacedButFor(),
  docker_registry_image: updatedButFor("name", "triggers"),
  terraform_data: updatedButFor("triggers_replace"),
  null_resource: updatedButFor("triggers"),
  helm_release: updatedButFor("name", "namespace"),
  kubernetes_deployment: updatedButFor(...identity, "spec.selector"),
  kubernetes_daemon_set: updatedButFor(...identity, "spec.selector"),
  kubernetes_stateful_set: updatedButFor(
    ...[...identity, "spec.selector", "spec.service_name", "spec.pod_management_policy"],
    "spec.volume_claim_template",
  ),
  kubernetes_service: updatedButFor(
    ...[...identity, "spec.cluster_ip", "spec.cluster_ips", "spec.load_balancer_class"],
    ...["spec.health_check_node_port", "spec.allocate_load_balancer_node_ports"],
  ),
  kubernetes_pod_disruption_budget: updatedButFor(
    ...[...identity, "spec.max_unavailable", "spec.min_available", "spec.selector"],
  ),
  kubernetes_resource_quota: updatedButFor(...identity, "spec.scopes"),
  kubernetes_secret: updatedButFor(...identity, "type", "immutable"),
  kubernetes_config_map: updatedButFor(...identity, "immutable"),
  kubernetes_persistent_volume_claim: updatedButFor(
    ...[...identity, "spec.access_modes", "spec.storage_class_name", "spec.volume_name"],
    ...["spec.selector", "spec.volume_mode"],
  ),
  kubernetes_cluster_role_binding: updatedButFor(...identity, "role_ref"),
  kubernetes_role_binding: updatedButFor(...identity, "role_ref"),
  kubernetes_storage_class: replacedButFor("metadata.labels", "metadata.annotations"),
  kubernetes_runtime_class: updatedButFor(...identity, "handler"),
  kubernetes_priority_class: updatedButFor(...identity, "value", "preemption_policy"),
};

/** Of the changed places those that make the provider replace the resource. */
export function forcingPaths(type: string, changed: readonly Path[]): readonly Path[] {
  const base = baseType(type);
  const known =
    (Object.hasOwn(replacing, base) ? replacing[base] : undefined) ??
    (base.startsWith("kubernetes_") ? updatedButFor(...identity) : undefined);
  if (known === undefined) return [];
  return changed.filter((path) => {
    const words = path.filter((step) => typeof step === "string").join(".");
    const named = known.but.some((it) => words === it || words.startsWith(`${it}.`));
    return named !== known.all;
  });
}
