import { UserError } from "../contract/user-error.ts";
import { mapStrings, resolveText, type TerraformResources } from "./terraform-text.ts";

/**
 * Converts the typed `kubernetes_*` resources of a synthesized file to the manifests that the provider would send. They are
 * applied with `kubectl apply --server-side` if the provider is unavailable, and compared with those of the chart.
 */

/** Object of the Kubernetes API. */
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

/** Kubernetes object, and the Terraform resource that declares it. */
export interface DeclaredObject {
  /** `kubernetes_deployment_v1.embed`, or `helm_release.clipstack` for all objects of a release. */
  readonly address: string;
  readonly manifest: Manifest;
}

/** API version of each resource type, without `_v1`, in order of creation. */
const apiVersions: Readonly<Record<string, string>> = {
  namespace: "v1",
  resource_quota: "v1",
  limit_range: "v1",
  network_policy: "networking.k8s.io/v1",
  service_account: "v1",
  config_map: "v1",
  cluster_role: "rbac.authorization.k8s.io/v1",
  cluster_role_binding: "rbac.authorization.k8s.io/v1",
  role_binding: "rbac.authorization.k8s.io/v1",
  service: "v1",
  deployment: "apps/v1",
  pod_disruption_budget: "policy/v1",
  horizontal_pod_autoscaler: "autoscaling/v2",
  api_service: "apiregistration.k8s.io/v1",
};

function kindOf(base: string): string {
  return base === "api_service" ? "APIService" : camel(`_${base}`);
}

/** Arguments of Terraform and the provider, which are not sent to the API. */
const terraformArguments = new Set([
  "//",
  "depends_on",
  "provider",
  "lifecycle",
  "provisioner",
  "timeouts",
  "id",
  "wait_for_rollout",
]);

/** Blocks that are lists in the API, with their names there. Every other block is one object. */
const listNames: Readonly<Record<string, string>> = {
  container: "containers",
  init_container: "initContainers",
  port: "ports",
  ports: "ports",
  env: "env",
  env_from: "envFrom",
  volume: "volumes",
  volume_mount: "volumeMounts",
  topology_spread_constraint: "topologySpreadConstraints",
  toleration: "tolerations",
  image_pull_secret: "imagePullSecrets",
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

/** Exceptions to `listNames`, as `<parent>.<block>`. */
const singles = new Set(["node_affinity.required_during_scheduling_ignored_during_execution"]);

/** Maps with keys that are data, not field names. */
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
  "data",
]);

/** Strings in Terraform that may be numbers in the API. */
const numberNames = new Set([
  "max_surge",
  "max_unavailable",
  "min_available",
  "port",
  "target_port",
  "run_as_user",
  "run_as_group",
  "fs_group",
]);
const octalNames = new Set(["default_mode", "mode"]);

/** Names with acronyms in capitals. */
const capitals: Readonly<Record<string, string>> = {
  cluster_ip: "clusterIP",
  host_ipc: "hostIPC",
  host_pid: "hostPID",
  insecure_skip_tls_verify: "insecureSkipTLSVerify",
};

export interface ManifestOptions {
  /**
   * Replaces every image that is a Terraform expression.
   *
   * @default - the expression is kept
   */
  readonly image?: string;
  /** Rejects Terraform expressions instead of keeping them. */
  readonly complete?: boolean;
}

/**
 * Returns the objects that the typed resources of a file declare, each after those that it depends on.
 *
 * @param resources - `resource` of a `cdk.tf.json`.
 */
export function manifestsOf(
  resources: TerraformResources,
  displayPath: string,
  { image, complete = false }: ManifestOptions = {},
): readonly DeclaredObject[] {
  const order = Object.keys(apiVersions).map(kindOf);
  const objects = Object.entries(resources)
    .filter(([type]) => type.startsWith("kubernetes_"))
    .flatMap(([type, byId]) =>
      Object.entries(byId).map(([id, body]) => {
        const address = `${type}.${id}`;
        return {
          address,
          manifest: manifestOf(address, resolveText(body, resources), displayPath),
        };
      }),
    )
    .sort((a, b) => order.indexOf(a.manifest.kind) - order.indexOf(b.manifest.kind));
  return completeManifests(objects, displayPath, { image, complete });
}

/** Replaces images, rejects remaining expressions if requested, and unescapes text. */
export function completeManifests(
  objects: readonly DeclaredObject[],
  displayPath: string,
  { image, complete = false }: ManifestOptions,
): readonly DeclaredObject[] {
  return objects.map(({ address, manifest }) => {
    const object = { address, manifest: withImage(manifest, image) };
    if (complete) rejectExpressions(object, displayPath);
    return { address, manifest: unescaped(object.manifest) };
  });
}

function manifestOf(address: string, body: unknown, displayPath: string): Manifest {
  const type = address.slice(0, address.indexOf("."));
  const { manifest, ...rest } = isObject(body) ? body : {};
  if (type === "kubernetes_manifest" && isObject(manifest)) return manifest as unknown as Manifest;
  const base = type.replace(/^kubernetes_/, "").replace(/_v\d\w*$/, "");
  const apiVersion = apiVersions[base];
  if (apiVersion === undefined) {
    throw new UserError(`${displayPath}: ${address}: unsupported resource type '${type}'`);
  }
  const { metadata = {}, ...fields } = Object.fromEntries(
    Object.entries(rest)
      .filter(([key]) => !terraformArguments.has(key))
      .flatMap(([key, value]) => field(key, value, base)),
  );
  return {
    apiVersion,
    kind: kindOf(base),
    metadata: metadata as ObjectMetadata,
    ...fields,
  };
}

/** Converts an argument to a field of the API; none for an empty block, which bindings write as `[]`. */
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

/** Returns whether a value is a map of scalars, such as the selector of a Service; other selectors are blocks. */
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

export function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Terraform expression; `$${` is escaped text. */
const expression = /(?<!\$)\$\{/;

function withImage(manifest: Manifest, image: string | undefined): Manifest {
  if (image === undefined) return manifest;
  return mapStrings(manifest, (text, path) =>
    path.at(-1) === "image" && expression.test(text) ? image : text,
  ) as Manifest;
}

function rejectExpressions({ address, manifest }: DeclaredObject, displayPath: string): void {
  mapStrings(manifest, (text, path) => {
    if (!expression.test(text)) return text;
    const field = path.join(".");
    const fix = path.at(-1) === "image" ? "; set it with --image" : "";
    throw new UserError(
      `${displayPath}: ${address}: ${field}: ${text} is known only to Terraform${fix}`,
    );
  });
}

function unescaped(manifest: Manifest): Manifest {
  return mapStrings(manifest, (text) => text.replaceAll("$${", "${")) as Manifest;
}
