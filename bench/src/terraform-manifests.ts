import { BenchError } from "./bench-error.ts";
import { resolveText, type TerraformResources } from "./terraform-text.ts";

/**
 * Typed `kubernetes_*` resources of a synthesized file as Kubernetes manifests, as the provider would send them. Where the
 * provider cannot be had, they are what `kubectl apply --server-side` takes; and they compare with those of a chart.
 */

/** An object of the Kubernetes API. */
export interface Manifest {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: ObjectMetadata;
  readonly [key: string]: unknown;
}

export interface ObjectMetadata {
  readonly name?: string;
  readonly namespace?: string;
  readonly labels?: Readonly<Record<string, string>>;
  readonly annotations?: Readonly<Record<string, string>>;
}

/** One object, and the Terraform resource that declares it. */
export interface DeclaredObject {
  /** `kubernetes_deployment_v1.embed`, or `helm_release.clipstack` of all objects of a release. */
  readonly address: string;
  readonly manifest: Manifest;
}

interface ResourceType {
  readonly apiVersion: string;
  readonly kind: string;
}

/** Types of the provider without their `_v1`, in the order in which their objects are made. */
const resourceTypes: Readonly<Record<string, ResourceType>> = {
  namespace: { apiVersion: "v1", kind: "Namespace" },
  priority_class: { apiVersion: "scheduling.k8s.io/v1", kind: "PriorityClass" },
  runtime_class: { apiVersion: "node.k8s.io/v1", kind: "RuntimeClass" },
  storage_class: { apiVersion: "storage.k8s.io/v1", kind: "StorageClass" },
  resource_quota: { apiVersion: "v1", kind: "ResourceQuota" },
  limit_range: { apiVersion: "v1", kind: "LimitRange" },
  network_policy: { apiVersion: "networking.k8s.io/v1", kind: "NetworkPolicy" },
  service_account: { apiVersion: "v1", kind: "ServiceAccount" },
  config_map: { apiVersion: "v1", kind: "ConfigMap" },
  secret: { apiVersion: "v1", kind: "Secret" },
  persistent_volume_claim: { apiVersion: "v1", kind: "PersistentVolumeClaim" },
  cluster_role: { apiVersion: "rbac.authorization.k8s.io/v1", kind: "ClusterRole" },
  cluster_role_binding: { apiVersion: "rbac.authorization.k8s.io/v1", kind: "ClusterRoleBinding" },
  role: { apiVersion: "rbac.authorization.k8s.io/v1", kind: "Role" },
  role_binding: { apiVersion: "rbac.authorization.k8s.io/v1", kind: "RoleBinding" },
  service: { apiVersion: "v1", kind: "Service" },
  deployment: { apiVersion: "apps/v1", kind: "Deployment" },
  daemon_set: { apiVersion: "apps/v1", kind: "DaemonSet" },
  daemonset: { apiVersion: "apps/v1", kind: "DaemonSet" },
  stateful_set: { apiVersion: "apps/v1", kind: "StatefulSet" },
  job: { apiVersion: "batch/v1", kind: "Job" },
  pod_disruption_budget: { apiVersion: "policy/v1", kind: "PodDisruptionBudget" },
  horizontal_pod_autoscaler: { apiVersion: "autoscaling/v2", kind: "HorizontalPodAutoscaler" },
  api_service: { apiVersion: "apiregistration.k8s.io/v1", kind: "APIService" },
};

/** Arguments that Terraform or the provider keeps for itself. */
const ownArguments = new Set([
  "//",
  "depends_on",
  "count",
  "for_each",
  "provider",
  "lifecycle",
  "provisioner",
  "connection",
  "timeouts",
  "id",
  "wait_for_rollout",
  "wait_for_completion",
  "wait_for_load_balancer",
  "wait_for_default_service_account",
  "wait_until_bound",
]);

/** Blocks that the API has as lists, with its names for them. Every other block is one object. */
const listNames: Readonly<Record<string, string>> = {
  container: "containers",
  init_container: "initContainers",
  port: "ports",
  ports: "ports",
  env: "env",
  env_from: "envFrom",
  volume: "volumes",
  volume_mount: "volumeMounts",
  volume_device: "volumeDevices",
  volume_claim_template: "volumeClaimTemplates",
  topology_spread_constraint: "topologySpreadConstraints",
  toleration: "tolerations",
  image_pull_secret: "imagePullSecrets",
  image_pull_secrets: "imagePullSecrets",
  host_aliases: "hostAliases",
  readiness_gate: "readinessGates",
  sysctl: "sysctls",
  http_header: "httpHeaders",
  items: "items",
  sources: "sources",
  metric: "metrics",
  policy: "policies",
  ingress: "ingress",
  egress: "egress",
  from: "from",
  to: "to",
  rule: "rules",
  subject: "subjects",
  limit: "limits",
  match_expressions: "matchExpressions",
  match_fields: "matchFields",
  node_selector_term: "nodeSelectorTerms",
  preferred_during_scheduling_ignored_during_execution:
    "preferredDuringSchedulingIgnoredDuringExecution",
  required_during_scheduling_ignored_during_execution:
    "requiredDuringSchedulingIgnoredDuringExecution",
};

/** What is one object in spite of its name, by the block that it is in. */
const singles = new Set(["node_affinity.required_during_scheduling_ignored_during_execution"]);

/** Maps whose keys are data. */
const mapNames = new Set([
  "labels",
  "annotations",
  "match_labels",
  "node_selector",
  "selector",
  "requests",
  "limits",
  "hard",
  "default",
  "default_request",
  "max",
  "min",
  "max_limit_request_ratio",
  "data",
  "binary_data",
  "string_data",
  "parameters",
  "volume_attributes",
]);

/** Texts in Terraform that are numbers in the API, or may be. */
const numberNames = new Set([
  "max_surge",
  "max_unavailable",
  "min_available",
  "port",
  "target_port",
  "run_as_user",
  "run_as_group",
  "fs_group",
  "supplemental_groups",
]);
const octalNames = new Set(["default_mode", "mode"]);

/** Words that the API writes in capitals. */
const capitals: Readonly<Record<string, string>> = {
  cluster_ip: "clusterIP",
  cluster_ips: "clusterIPs",
  external_ips: "externalIPs",
  load_balancer_ip: "loadBalancerIP",
  host_ip: "hostIP",
  host_ipc: "hostIPC",
  host_pid: "hostPID",
  non_resource_urls: "nonResourceURLs",
  insecure_skip_tls_verify: "insecureSkipTLSVerify",
};

export interface ManifestOptions {
  /**
   * In place of every image whose name only Terraform knows.
   *
   * @default - such an image stays the expression that it is
   */
  readonly image?: string;
  /** Refuse what only Terraform knows, in place of leaving the expression. */
  readonly complete?: boolean;
}

/**
 * The objects that the typed resources of a file declare, each after those that it needs.
 *
 * @param resources - `resource` of a `cdk.tf.json`.
 * @param shown - How messages name the file.
 * @throws {BenchError} for a resource type that has no manifest here and, with `complete`, for what only Terraform knows.
 */
export function manifestsOf(
  resources: TerraformResources,
  shown: string,
  { image, complete = false }: ManifestOptions = {},
): readonly DeclaredObject[] {
  const order = Object.values(resourceTypes).map(({ kind }) => kind);
  const objects = Object.entries(resources)
    .filter(([type]) => type.startsWith("kubernetes_"))
    .flatMap(([type, byId]) =>
      Object.entries(byId).map(([id, body]) => {
        const address = `${type}.${id}`;
        return { address, manifest: manifestOf(address, resolveText(body, resources), shown) };
      }),
    )
    .sort((a, b) => order.indexOf(a.manifest.kind) - order.indexOf(b.manifest.kind));
  return finished(objects, shown, { image, complete });
}

/** Objects with the image that was given, checked for what only Terraform knows. */
export function finished(
  objects: readonly DeclaredObject[],
  shown: string,
  { image, complete = false }: ManifestOptions,
): readonly DeclaredObject[] {
  return objects.map(({ address, manifest }) => {
    const object = { address, manifest: withImage(manifest, image) };
    if (complete) refuseExpressions(object, shown);
    return { address, manifest: unescaped(object.manifest) };
  });
}

/** The manifest of one resource, whose references are resolved. */
function manifestOf(address: string, body: unknown, shown: string): Manifest {
  const type = address.slice(0, address.indexOf("."));
  const { manifest, ...rest } = isObject(body) ? body : {};
  if (type === "kubernetes_manifest" && isObject(manifest)) return manifest as unknown as Manifest;
  const base = type.replace(/^kubernetes_/, "").replace(/_v\d\w*$/, "");
  const known = resourceTypes[base];
  if (known === undefined) {
    throw new BenchError(
      `${shown}: ${address}: resource type must be one that has a manifest here, got '${type}'`,
    );
  }
  const { metadata = {}, ...fields } = Object.fromEntries(
    Object.entries(rest)
      .filter(([key]) => !ownArguments.has(key))
      .flatMap(([key, value]) => field(key, value, base)),
  );
  return {
    apiVersion: known.apiVersion,
    kind: known.kind,
    metadata: metadata as ObjectMetadata,
    // the provider encodes a Secret's texts, as the API server does with `stringData`
    ...(base === "secret" ? renamed(fields, "data", "stringData") : fields),
  };
}

function renamed(
  fields: Readonly<Record<string, unknown>>,
  from: string,
  to: string,
): Readonly<Record<string, unknown>> {
  return Object.fromEntries(
    Object.entries(fields).map(([key, value]) => [key === from ? to : key, value]),
  );
}

/** A field of the API, or none where a block is empty: bindings write `[]` for what was not given. */
function field(
  key: string,
  value: unknown,
  parent: string,
): readonly (readonly [string, unknown])[] {
  if (value === null || value === undefined) return [];
  if (mapNames.has(key) && isDataMap(value)) return [[camel(key), value]];
  if (Array.isArray(value) ? value.every(isObject) : isObject(value)) {
    const blocks = (Array.isArray(value) ? value : [value]).map((block) => convert(block, key));
    const list = singles.has(`${parent}.${key}`) ? undefined : listNames[key];
    if (list !== undefined) {
      return Array.isArray(value) && value.length === 0 ? [] : [[list, blocks]];
    }
    return blocks.length === 0 ? [] : [[camel(key), blocks[0]]];
  }
  if (Array.isArray(value)) return [[camel(key), value.map((item) => scalar(key, item))]];
  return [[camel(key), scalar(key, value)]];
}

function convert(block: unknown, key: string): unknown {
  if (!isObject(block)) return block;
  return Object.fromEntries(
    Object.entries(block).flatMap(([name, value]) => field(name, value, key)),
  );
}

/** A selector is a map in a Service and a block with `match_labels` elsewhere. */
function isDataMap(value: unknown): boolean {
  return (
    isObject(value) &&
    Object.values(value).every((item) => typeof item !== "object" || item === null)
  );
}

function scalar(key: string, value: unknown): unknown {
  if (typeof value !== "string") return value;
  if (numberNames.has(key) && /^\d+$/.test(value)) return Number(value);
  if (octalNames.has(key) && /^[0-7]+$/.test(value)) return Number.parseInt(value, 8);
  return value;
}

function camel(key: string): string {
  return capitals[key] ?? key.replace(/_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase());
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** An expression of Terraform; `$${` is text. */
const expression = /(?<!\$)\$\{/;

/** The image of each container whose own is an expression. */
function withImage(manifest: Manifest, image: string | undefined): Manifest {
  if (image === undefined) return manifest;
  return mapStrings(manifest, (text, path) =>
    path.at(-1) === "image" && expression.test(text) ? image : text,
  ) as Manifest;
}

function refuseExpressions({ address, manifest }: DeclaredObject, shown: string): void {
  mapStrings(manifest, (text, path) => {
    if (!expression.test(text)) return text;
    const place = path.join(".");
    const fix = path.at(-1) === "image" ? "; give it with --image" : "";
    throw new BenchError(`${shown}: ${address}: ${place}: only Terraform knows ${text}${fix}`);
  });
}

function unescaped(manifest: Manifest): Manifest {
  return mapStrings(manifest, (text) => text.replaceAll("$${", "${")) as Manifest;
}

function mapStrings(
  value: unknown,
  change: (text: string, path: readonly string[]) => string,
  path: readonly string[] = [],
): unknown {
  if (typeof value === "string") return change(value, path);
  if (Array.isArray(value)) {
    return value.map((item, i) => mapStrings(item, change, [...path, String(i)]));
  }
  if (!isObject(value)) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, item]) => [key, mapStrings(item, change, [...path, key])]),
  );
}
