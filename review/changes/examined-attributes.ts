import { valueAt } from "../../contract/issue-lines.ts";
import type { Path, ResourceChange, Values } from "../input/change.ts";
import { type Format, formatsOf } from "../input/resource-types.ts";
import { isKnownVariable } from "../input/secrets.ts";
import { isOneShot } from "../input/stack-facts.ts";
import { changedPaths, isUnset, leavesOf } from "../input/value-paths.ts";

/** Attributes that restrict a workload; the review does not judge their removal. */
const restrictions =
  /(^|\.)(memory|cpus|user|security_opts|capabilities\.drop|healthcheck\.test|restart|read_only\w*|seccomp_profile\.type|run_as_\w+|allow_privilege_escalation|limits\.[\w.]+|internal|hard\.[\w./]+|spec\.limit\..+|(liveness|readiness)_probe\..+|must_run|start|pod-security\..+|from\..+|ports\.port|policy_types|triggers\.content|name|image|metric\..+|(max|min)_(replicas|available|unavailable)|scale_target_ref\..+|match_labels\..+|selector\..+|template\.metadata\.labels\..+|spec\.type)$/;

/** Attributes by which objects find each other, programs, and data of pods: another value of them is not judged. */
const bindingNames =
  /^((binary_)?data(\.(?!models\.json$).+)?|spec\.(pod_)?selector\..+|spec\.template\.metadata\.labels\..+|spec\.(template|job_template)\.(.+\.)?container\.(command|args))$/;

/** Attributes that a change sets to values, or removes, that the review does not understand: `group_add`, `ports.ip`. */
export function unexaminedAttributes({
  type,
  action,
  actions,
  before,
  after,
  unknown,
}: ResourceChange): readonly string[] {
  if (after === undefined || action === "no-op" || action === "forget") return [];
  const old = action === "create" ? undefined : withoutKind(before, after);
  const own = withoutKind(after, old === undefined ? undefined : before) ?? {};
  const pending = new Set(unknown.map(attributeOf).filter((it) => isComputed(type, it)));
  const isPending = (attribute: string) =>
    pending.has(attribute) || pending.has(attribute.replace(/\..*/s, ""));
  const changed = old === undefined ? [[]] : changedPaths(old, own, { unset: "distinct" });
  const found = changed.flatMap((path) => [
    ...leavesOf(valueAt(own, path), path).flatMap(([leaf, value]) =>
      isUnderstood(type, leaf, value, after) &&
      (old === undefined || !bindingNames.test(attributeOf(leaf)))
        ? []
        : [attributeOf(leaf)],
    ),
    ...removedLeaves(old, own, path).filter(
      (attribute) =>
        !isPending(attribute) &&
        (restrictions.test(attribute) || formatsOf(type, attribute).length === 0),
    ),
  ]);
  // references in a synthesized file are no missing values
  const hiddenUntilApply = (actions === undefined ? [] : unknown)
    .map(attributeOf)
    .filter((it) => !isComputed(type, it) && !(old === undefined && defaults.test(it)));
  return [...new Set([...found, ...hiddenUntilApply])].sort();
}

/** Attributes that hold the values of a provider, and are unknown when a resource is created. */
const computed: Readonly<Record<string, RegExp>> = {
  docker_container:
    /^(bridge|command|container_logs|entrypoint|env|exit_code|healthcheck|hostname|id|image|init|ipc_mode|name|network_data|platform|runtime|shm_size|stop_signal|stop_timeout)(\.|$)/,
  docker_image: /^(id|image_id|repo_digest)$/,
  docker_network: /^(driver|id|internal|ipam_config|options|scope)(\.|$)/,
  docker_volume: /^(driver|id|mountpoint)$/,
  helm_release: /^(id|metadata)(\.|$)/,
  terraform_data: /^/,
  null_resource: /^/,
  kubernetes:
    /^(id|status|default_secret_name|(.*\.)?metadata\.(generation|resource_version|uid|name)|subject\.api_group|spec\.(replicas|cluster_ips?|health_check_node_port|(external|internal)_traffic_policy|ip_famil(ies|y_policy)|session_affinity_config|port\.node_port|behavior\.scale_up|target_cpu_utilization_percentage)|spec\.template\.spec\.(hostname|image_pull_secrets|node_name|readiness_gate|scheduler_name|container\.termination_message_policy|container\.resources\.limits))(\.|$)/,
};

/** Attributes with a harmless default, which is unknown when a resource is created. */
const defaults =
  /^(labels|log_driver|spec\.(port\.target_port|strategy|template\.spec\.(service_account_name|container\.image_pull_policy)))$/;

function isComputed(type: string, attribute: string): boolean {
  const pattern = computed[type.startsWith("kubernetes_") ? "kubernetes" : type];
  return pattern?.test(attribute) === true;
}

function attributeOf(path: Path): string {
  return path.filter((step) => typeof step === "string").join(".");
}

/** Removes the attributes by which a container is one-shot or not, unless it changes between the two. */
function withoutKind(values: Values | undefined, other: Values | undefined): Values | undefined {
  if (values === undefined || isOneShot(values) !== isOneShot(other ?? values)) return values;
  const { attach, must_run: mustRun, read_only: readOnly, ...rest } = values;
  if (isOneShot(values)) return rest;
  const runs = attach !== true && mustRun !== false;
  return runs ? { ...rest, read_only: readOnly } : values;
}

/** Attributes below a path that are set before the change only. */
function removedLeaves(before: Values | undefined, after: Values, path: Path): readonly string[] {
  const kept = new Set(leavesOf(valueAt(after, path), path).map(([leaf]) => attributeOf(leaf)));
  return leavesOf(valueAt(before, path), path)
    .map(([leaf]) => attributeOf(leaf))
    .filter((attribute) => !kept.has(attribute));
}

function isUnderstood(type: string, leaf: Path, value: unknown, after: Values): boolean {
  // known only to Terraform
  if (typeof value === "string" && /^\$\{.*\}$/s.test(value)) return true;
  const attribute = attributeOf(leaf);
  const formats = formatsOf(type, attribute);
  if (!formats.some((format) => matches(format, value))) return false;
  if (type === "docker_container" && leaf[0] === "env") {
    const [name = "", ...text] = String(value).split("=");
    return isUnderstoodVariable(name, text.join("="));
  }
  if (/container\.env\.name$/.test(attribute))
    return isKnownVariable(String(value)) || otherVariables.has(String(value));
  if (type === "docker_container" && isOneShot(after) && /^(command|entrypoint)$/.test(attribute)) {
    return isOwnStep(after);
  }
  if (/container\.env\.value$/.test(attribute)) {
    const name = valueAt(after, [...leaf.slice(0, -1), "name"]);
    return isUnderstoodVariable(String(name), String(value));
  }
  return true;
}

/** Returns whether a one-shot container runs a role of this project's image, or changes the owner of a volume. */
function isOwnStep({ command, entrypoint }: Values): boolean {
  const words = Array.isArray(command) ? command : [];
  if (isUnset(entrypoint)) {
    return /^(apply-config|check-weights|fetch-weights)$/.test(String(words[0]));
  }
  const isChown = Array.isArray(entrypoint) && entrypoint.join() === "chown";
  return isChown && words.length === 2 && /^\d+:\d+$/.test(String(words[0]));
}

function isUnderstoodVariable(name: string, value: string): boolean {
  if (name === "NODE_OPTIONS") return /^--max-old-space-size=\d+$/.test(value);
  return isKnownVariable(name) || otherVariables.has(name);
}

/** Variables of Triton's container, and of earlier versions of the embed server. */
const otherVariables = new Set(["MODEL_CONTROL_KEY", "ENGINE", "MODEL_PATH"]);

function matches(format: Format, value: unknown): boolean {
  if (format === "text") return typeof value === "string";
  if (format === "flag") return typeof value === "boolean" || /^(true|false)$/.test(String(value));
  if (format === "number") return /^-?\d+(\.\d+)?([a-zA-Z]{1,2}|%)?$/.test(String(value));
  return typeof value !== "object" && format.test(String(value));
}
