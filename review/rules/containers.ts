import { podSecurity } from "../../contract/pods.ts";
import { hidden } from "../input/secrets.ts";
import { containerPath } from "./example-paths.ts";
import { metadataOf, ofType } from "./facts.ts";
import { each, type ReviewRule, rule } from "./rule.ts";
import { serviceContainers } from "./service-containers.ts";
import { at, isMissing, isUnknown, map, text, texts } from "./values.ts";

/** Privileges, restarts and logs of containers, and the security level of their namespaces. */
export const containerRules: readonly ReviewRule[] = [
  rule({
    id: "container-privileged",
    severity: "error",
    title: "No container is privileged.",
    rationale:
      "A privileged container, or one with SYS_ADMIN, is effectively root on the host: it can mount disks and load kernel modules. GPUs do not need this.",
    inputs: "`privileged` and added capabilities of containers on Docker.",
    fix: "remove privileged and the capability",
    example: {
      stack: "single-gpu",
      message: "privileged must not be true",
      edits: [{ path: containerPath("embed/container", "privileged"), failing: true }],
    },
    find: each(ofType("docker_container"), ({ after = {} }) => [
      ...(after.privileged === true ? ["privileged must not be true"] : []),
      ...texts(at(after.capabilities, "add"))
        .filter((capability) => privilegedCapabilities.has(capability.replace(/^CAP_/, "")))
        .map((capability) => `capabilities.add must not have ${capability}`),
    ]),
  }),
  rule({
    id: "container-root",
    severity: "warning",
    title: "Services do not run as root.",
    rationale:
      "A process that escapes from the container has the permissions of its user on the host. The servers need no root permissions.",
    inputs:
      "`user` of long-running containers. One-shot containers (`must_run` false and `attach` true) are ignored.",
    fix: "set the user to 1000:1000, which the images have",
    example: {
      stack: "single-gpu",
      message: "user should not be root, got '0:0'",
      edits: [
        { path: containerPath("embed/container", "user"), failing: "0:0", passing: "1000:1000" },
      ],
    },
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
    title: "Containers drop all capabilities.",
    rationale:
      "Docker grants fourteen capabilities by default, including raw sockets. The servers need none.",
    inputs: "`capabilities.drop` of every container on Docker.",
    fix: "set capabilities.drop to ALL",
    example: {
      stack: "single-gpu",
      message: "capabilities.drop should be ALL, got nothing",
      edits: [{ path: containerPath("embed/container", "capabilities"), failing: undefined }],
    },
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
    title: "Services have a read-only root filesystem.",
    rationale:
      "On a read-only root filesystem, an attacker cannot leave programs behind, and services write only to volumes and tmpfs mounts.",
    inputs: "`read_only` of long-running containers.",
    fix: "set read_only to true, with a tmpfs at /tmp",
    example: {
      stack: "single-gpu",
      message: "read_only should be true, got false",
      edits: [
        { path: containerPath("embed/container", "read_only"), failing: false, passing: true },
      ],
    },
    find: each(serviceContainers, ({ resource, values: { read_only: value } }) =>
      value === true || isUnknown(resource, "read_only")
        ? undefined
        : `read_only should be true, got ${value ?? "nothing"}`,
    ),
  }),
  rule({
    id: "container-privilege-escalation",
    severity: "warning",
    title: "Processes cannot gain privileges.",
    rationale: "A setuid program in the image would make an ordinary user root in the container.",
    inputs: "`security_opts` of containers on Docker (`no-new-privileges:true`).",
    fix: "add no-new-privileges:true to security_opts",
    example: {
      stack: "single-gpu",
      message: "security_opts should have no-new-privileges:true, got nothing",
      edits: [{ path: containerPath("embed/container", "security_opts"), failing: [] }],
    },
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
    title: "Services restart after a crash or reboot.",
    rationale:
      "Docker does not restart containers by default: after a crash or a host reboot, the service is down until the next apply.",
    inputs:
      "`restart` of long-running containers. One-shot containers (`must_run` false and `attach` true) are ignored: the apply waits until they exit.",
    fix: "set restart to unless-stopped",
    example: {
      stack: "single-gpu",
      message: "restart should be unless-stopped or always, got 'no'",
      edits: [
        {
          path: containerPath("embed/container", "restart"),
          failing: "no",
          passing: "unless-stopped",
        },
      ],
    },
    find: each(serviceContainers, ({ resource, values: { restart } }) =>
      restart === "unless-stopped" || restart === "always" || isUnknown(resource, "restart")
        ? undefined
        : `restart should be unless-stopped or always, got ${quoted(restart)}`,
    ),
  }),
  rule({
    id: "container-log-limit",
    severity: "warning",
    title: "Container logs have a size limit.",
    rationale:
      "Docker's json-file driver keeps all logs by default: a busy server fills the host's disk.",
    inputs: "`log_opts` of long-running containers with the log driver json-file.",
    fix: "set log_opts max-size and max-file",
    example: {
      stack: "single-gpu",
      message: "log_opts should have max-size: json-file keeps all logs by default",
      edits: [{ path: containerPath("embed/container", "log_opts"), failing: undefined }],
    },
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
    title: "Containers have memory and CPU limits.",
    rationale:
      "Without a memory limit, one service that grows makes the kernel kill another one, or the host unreachable. Without CPU limits or shares, decoding starves inference.",
    inputs: "`memory`, and `cpus`, `cpu_quota` or `cpu_shares` of long-running containers.",
    fix: "set memory, and cpus or cpu_shares",
    example: {
      stack: "single-gpu",
      message: "memory should be set: the container may use all memory of the host",
      edits: [{ path: containerPath("embed/container", "memory"), failing: undefined }],
    },
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
    title: "Namespaces reject privileged pods.",
    rationale:
      "With this label, the API server checks every pod of the namespace, including manually created ones.",
    inputs: `The label \`${podSecurity.label}\` of every namespace that the stack creates.`,
    fix: `label the namespace ${podSecurity.label}=${podSecurity.level}`,
    example: {
      stack: "kind-local",
      message: "pod-security.kubernetes.io/enforce should be restricted or baseline, got nothing",
      edits: [
        {
          path: [
            ...["resource", "kubernetes_namespace_v1", "namespace/namespace"],
            ...["metadata", "labels"],
          ],
          failing: undefined,
          passing: { [podSecurity.label]: podSecurity.level },
        },
      ],
    },
    find: each(ofType("kubernetes_namespace"), (namespace) => {
      const level = map(metadataOf(namespace).labels)[podSecurity.label];
      return level === "restricted" || level === "baseline"
        ? undefined
        : `${podSecurity.label} should be restricted or baseline, got ${quoted(level)}`;
    }),
  }),
];

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
