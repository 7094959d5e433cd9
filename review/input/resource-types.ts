import type { Values } from "./change.ts";
import { isObject } from "./value-paths.ts";

/** Resource types that are examined for impact, exposure, capacity and cost, without API version. */
const examinedTypes = [
  ...["docker_container", "docker_image", "docker_network", "docker_volume"],
  ...["terraform_data", "null_resource", "helm_release"],
  ...["kubernetes_deployment", "kubernetes_stateful_set", "kubernetes_daemonset"],
  ...["kubernetes_daemon_set", "kubernetes_replication_controller", "kubernetes_job"],
  ...["kubernetes_cron_job", "kubernetes_pod", "kubernetes_service", "kubernetes_ingress"],
  ...["kubernetes_gateway", "kubernetes_httproute", "kubernetes_grpcroute"],
  ...["kubernetes_tcproute", "kubernetes_tlsroute", "kubernetes_udproute"],
  ...["kubernetes_ingress_route", "kubernetes_ingress_routetcp", "kubernetes_ingress_routeudp"],
  ...["kubernetes_role", "kubernetes_cluster_role", "kubernetes_role_binding"],
  ...["kubernetes_cluster_role_binding", "kubernetes_service_account", "kubernetes_namespace"],
  ...["kubernetes_network_policy", "kubernetes_secret", "kubernetes_config_map"],
  ...["kubernetes_horizontal_pod_autoscaler", "kubernetes_pod_disruption_budget"],
  ...["kubernetes_resource_quota", "kubernetes_limit_range", "kubernetes_persistent_volume"],
  ...["kubernetes_persistent_volume_claim", "kubernetes_storage_class"],
  ...["kubernetes_priority_class", "kubernetes_runtime_class"],
] as const;
export type ExaminedType = (typeof examinedTypes)[number];

const examined: ReadonlySet<string> = new Set(examinedTypes);

export function isExaminedType(base: string): base is ExaminedType {
  return examined.has(base);
}

/** Type without API version: `kubernetes_deployment` for `kubernetes_deployment_v1`. */
export function baseType(type: string): string {
  return type.replace(/_v\d\w*$/, "");
}

interface TypedResource {
  readonly type: string;
  readonly values: Values;
}

/** Converts a `kubernetes_manifest` of an examined kind to that kind's typed resource; returns others unchanged. */
export function asTyped(type: string, values: Values): TypedResource {
  if (type !== "kubernetes_manifest" || !isObject(values.manifest)) return { type, values };
  const kind = `kubernetes_${snakeCase(String(values.manifest.kind))}`;
  if (!isExaminedType(kind)) return { type, values };
  return { type: kind, values: asBlocks(values.manifest) as Values };
}

/** Provider's names of Kubernetes lists. */
const blockNames: Readonly<Record<string, string>> = {
  containers: "container",
  init_containers: "init_container",
  volumes: "volume",
  ports: "port",
  rules: "rule",
  subjects: "subject",
};

/** Maps with user-defined keys. */
const userMaps = new Set(
  "labels annotations matchLabels limits requests data stringData nodeSelector".split(" "),
);

function asBlocks(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(asBlocks);
  if (!isObject(value)) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, inner]) => {
      const name = snakeCase(key);
      return [blockNames[name] ?? name, userMaps.has(key) ? inner : asBlocks(inner)];
    }),
  );
}

function snakeCase(name: string): string {
  return name.replaceAll(/([a-z0-9])([A-Z])/g, "$1_$2").toLowerCase();
}
