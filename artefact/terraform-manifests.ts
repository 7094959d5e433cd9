import { UserError } from "../contract/user-error.ts";
import { mapStrings, resolveText, type TerraformResources } from "./terraform-text.ts";

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

/** API version of each type of the provider, without `_v1`, in the order in which their objects are made. */
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

/** Arguments that Terraform or the provider keeps for itself. */
const ownArguments = new Set([
  "//",
  "depends_on",
  "provider",
  "lifecycle",
  "provisioner",
  "timeouts",
  "id",
  "wait_for_rollout",
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
  "data",
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
]);
const octalNames = new Set(["default_mode", "mode"]);

/** Words that the API writes in capitals. */
const capitals: Readonly<Record<string, string>> = {
  cluster_ip: "clusterIP",
  host_ipc: "hostIPC",
  host_pid: "hostPID",
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
 * @throws {UserError} for a resource type that has no manifest here and, with `complete`, for what only Terraform knows.
 */
export function manifestsOf(
  resources: TerraformResources,
  shown: string,
  { image, complete = false }: ManifestOptions = {},
): readonly DeclaredObject[] {
  const order = Object.keys(apiVersions).map(kindOf);
  const objects = Object.entries(resources)
    .filter(([type]) => type.startsWith("kubernetes_"))
    .flatMap(([type, byId]) =>
      Object.entries(byId).map(([id, body]) => {
        const address = `${type}.${id}`;
        return { address, manifest: manifestOf(address, resolveText(body, resources), shown) };
      }),
    )
    .sort((a, b) => order.indexOf(a.manifest.kind) - order.indexOf(b.manifest.kind));
  return completeManifests(objects, shown, { image, complete });
}

/** Objects with the image that was given, checked for what only Terraform knows. */
export function completeManifests(
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
  const apiVersion = apiVersions[base];
  if (apiVersion === undefined) {
    throw new UserError(
      `${shown}: ${address}: resource type must be one that has a manifest here, got '${type}'`,
    );
  }
  const { metadata = {}, ...fields } = Object.fromEntries(
    Object.entries(rest)
      .filter(([key]) => !ownArguments.has(key))
      .flatMap(([key, value]) => field(key, value, base)),
  );
  return {
    apiVersion,
    kind: kindOf(base),
    metadata: metadata as ObjectMetadata,
    ...fields,
  };
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

export function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
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
    throw new UserError(`${shown}: ${address}: ${place}: only Terraform knows ${text}${fix}`);
  });
}

function unescaped(manifest: Manifest): Manifest {
  return mapStrings(manifest, (text) => text.replaceAll("$${", "${")) as Manifest;
}
