import { podSecurity } from "../../contract/pods.ts";
import { serviceContainers } from "../facts/service-containers.ts";
import { at, blocks, isMissing, isUnknown, map, text, texts } from "../facts/values.ts";
import { managedResources, metadataOf, ofType } from "../facts/workloads.ts";
import type { Path } from "../input/change.ts";
import { hidden } from "../input/secrets.ts";
import { leavesOf } from "../input/value-paths.ts";
import { each, type ReviewRule, rule } from "./rule.ts";

/** Privileges, restarts and logs of containers, and the security level of their namespaces. */
export const containerRules: readonly ReviewRule[] = [
  rule({
    id: "container-privileged",
    severity: "error",
    fix: "remove privileged and the capability",
    find: each(managedResources, ({ type, after }) =>
      /^(docker|kubernetes)_/.test(type) ? leavesOf(after, []).flatMap(privileges) : [],
    ),
  }),
  rule({
    id: "container-root",
    severity: "warning",
    fix: "set the user to 1000:1000, which the images have",
    find: each(serviceContainers, ({ resource, values }) => {
      const user = text(values.user) ?? "";
      if (isMissing(resource, "user")) {
        return "user should be set because the image's default may be root, got nothing";
      }
      return /^(0|root)(:|$)/.test(user) ? `user should not be root, got '${user}'` : undefined;
    }),
  }),
  rule({
    id: "container-capabilities",
    severity: "warning",
    fix: "set capabilities.drop to ALL",
    find: each(ofType("docker_container"), (resource) => {
      const dropped = texts(at(resource.after?.capabilities, "drop"));
      return dropped.includes("ALL") || isUnknown(resource, "capabilities")
        ? undefined
        : `capabilities.drop should be ALL, got ${listText(dropped)}`;
    }),
  }),
  rule({
    id: "container-read-only",
    severity: "warning",
    fix: "set read_only to true, with a tmpfs at /tmp",
    // the provider uploads files to the root file system
    find: each(serviceContainers, ({ resource, values: { read_only: value, upload } }) =>
      value === true || blocks(upload).length > 0 || isUnknown(resource, "read_only")
        ? undefined
        : `read_only should be true, got ${value ?? "nothing"}`,
    ),
  }),
  rule({
    id: "container-privilege-escalation",
    severity: "warning",
    fix: "add no-new-privileges:true to security_opts",
    find: each(ofType("docker_container"), (resource) => {
      const options = texts(resource.after?.security_opts);
      return options.some((option) => /^no-new-privileges([:=]true)?$/.test(option)) ||
        isUnknown(resource, "security_opts")
        ? undefined
        : `security_opts should have no-new-privileges:true, got ${listText(options.map(securityOption))}`;
    }),
  }),
  rule({
    id: "container-restart",
    severity: "warning",
    fix: "set restart to unless-stopped",
    find: each(serviceContainers, ({ resource, values: { restart } }) =>
      restart === "unless-stopped" || restart === "always" || isUnknown(resource, "restart")
        ? undefined
        : `restart should be unless-stopped or always, got ${quoted(restart)}`,
    ),
  }),
  rule({
    id: "container-log-limit",
    severity: "warning",
    fix: "set log_opts max-size and max-file",
    find: each(serviceContainers, ({ values }) => {
      const driver = text(values.log_driver) ?? "json-file";
      return driver !== "json-file" || map(values.log_opts)["max-size"] !== undefined
        ? undefined
        : "log_opts should have max-size: json-file keeps all logs by default";
    }),
  }),
  rule({
    id: "container-limits",
    severity: "warning",
    fix: "set memory, and cpus or cpu_shares",
    find: each(serviceContainers, ({ resource, values }) => {
      const isSet = (name: string) =>
        isUnknown(resource, name) || !["", "0", "undefined", "null"].includes(String(values[name]));
      return [
        ...(isSet("memory")
          ? []
          : ["memory should be set: the container may use all memory of the host"]),
        ...(["cpus", "cpu_quota", "cpu_shares"].some(isSet)
          ? []
          : ["cpus or cpu_shares should be set: the container may use all cores of the host"]),
      ];
    }),
  }),
  rule({
    id: "pod-security-level",
    severity: "warning",
    fix: `label the namespace ${podSecurity.label}=${podSecurity.level}`,
    find: each(ofType("kubernetes_namespace"), (namespace) => {
      const level = map(metadataOf(namespace).labels)[podSecurity.label];
      return level === "restricted" || level === "baseline"
        ? undefined
        : `${podSecurity.label} should be restricted or baseline, got ${quoted(level)}`;
    }),
  }),
];

/** Excess privileges of a container or pod, typed or in a manifest. */
function privileges([path, value]: readonly [Path, unknown]): readonly string[] {
  const attribute = path.filter((step) => typeof step === "string").join(".");
  if (value === true && /(^|\.security_?context\.)privileged$/i.test(attribute)) {
    return [`${attribute} must not be true`];
  }
  const capability = String(value).toUpperCase().replace(/^CAP_/, "");
  return /(^|\.)capabilities\.add$/.test(attribute) && privilegedCapabilities.has(capability)
    ? [`${attribute} must not have ${String(value)}`]
    : [];
}

const privilegedCapabilities = new Set([
  "ALL",
  "SYS_ADMIN",
  "SYS_MODULE",
  "SYS_PTRACE",
  "SYS_RAWIO",
  "NET_ADMIN",
]);

function listText(values: readonly string[]): string {
  return values.length === 0 ? "nothing" : values.join(", ");
}

/** Security option without the contents of inline profiles. */
function securityOption(option: string): string {
  const [, name = hidden, value] = /^([a-z-]{1,40})(?:[:=](.*))?$/s.exec(option) ?? [];
  if (value === undefined) return name;
  return `${name}=${/^(unconfined|disable|true|false)$/.test(value) ? value : hidden}`;
}

function quoted(value: unknown): string {
  const word = text(value);
  return word === undefined ? "nothing" : `'${word}'`;
}
