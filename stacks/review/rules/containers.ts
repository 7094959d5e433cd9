import { podSecurity } from "../../../inference-image/src/contract/pods.ts";
import type { ResourceChange, StackChange, Values } from "../change.ts";
import { hidden } from "../secrets.ts";
import {
  deploymentsOf,
  metadataOf,
  podContainers,
  podOf,
  resourcesOf,
  serviceContainers,
} from "./facts.ts";
import { type ReviewRule, rule } from "./rule.ts";
import { at, block, isGiven, isMissing, map, text, texts } from "./values.ts";

const embed = (field: string) =>
  ["resource", "docker_container", "embed/container", field] as const;
const pod = (...path: readonly (string | number)[]) =>
  [
    ...["resource", "kubernetes_deployment_v1", "embed/deployment"],
    ...["spec", "template", "spec", ...path],
  ] as const;

interface PodContainer {
  readonly deployment: ResourceChange;
  readonly address: string;
  readonly pod: Values;
  readonly container: Values;
  readonly name: string;
  /** What the container says, or else the pod. */
  readonly security: (field: string) => unknown;
}

/** Containers of the pods that this project makes; of system pods others decide. */
function podContainersOf(change: StackChange): readonly PodContainer[] {
  return deploymentsOf(change).flatMap((deployment) => {
    const { pod: spec } = podOf(deployment);
    return podContainers(spec).map((container) => ({
      deployment,
      address: deployment.address,
      pod: spec,
      container,
      name: text(container.name) ?? "container",
      // a plan has an empty list, or an empty text, for what is not given
      security: (field) =>
        [at(container, "security_context", field), at(spec, "security_context", field)].find(
          (value) =>
            isGiven(value) && value !== "" && !(Array.isArray(value) && value.length === 0),
        ),
    }));
  });
}

/** What a container may do to the machine that it runs on. */
export const containerRules: readonly ReviewRule[] = [
  rule({
    id: "container-privileged",
    severity: "error",
    title: "No container is privileged.",
    why: "A privileged container, or one with SYS_ADMIN, is root on the host: it mounts its disks and loads kernel modules. A GPU does not need it.",
    looksAt:
      "`privileged` and added capabilities of containers on Docker, and the security context of containers in pods.",
    fix: "remove privileged and the capability",
    example: {
      stack: "single-gpu",
      says: "privileged must not be true",
      edits: [{ at: embed("privileged"), failing: true }],
    },
    *find(change) {
      for (const { address, after = {} } of resourcesOf(change, "docker_container")) {
        if (after.privileged === true) yield { address, what: "privileged must not be true" };
        yield* dangerous(address, texts(at(after.capabilities, "add")));
      }
      for (const { address, name, container } of podContainersOf(change)) {
        if (at(container, "security_context", "privileged") === true) {
          yield { address, what: `privileged must not be true, of the container ${name}` };
        }
        const added = texts(at(container, "security_context", "capabilities", "add"));
        yield* dangerous(address, added);
      }
    },
  }),
  rule({
    id: "container-root",
    severity: "warning",
    title: "A service does not run as root.",
    why: "Who breaks out of a container is on the host as the user that it ran as. The servers need no right that root has.",
    looksAt:
      "`user` of containers that keep running, and `run_as_non_root` and `run_as_user` of pods. Containers that run once, without a network, and hand a volume over are left out.",
    fix: "set the user to 1000:1000, which the images have (in pods run_as_non_root and run_as_user)",
    example: {
      stack: "single-gpu",
      says: "user should not be root, got '0:0'",
      edits: [{ at: embed("user"), failing: "0:0", passing: "1000:1000" }],
    },
    *find(change) {
      for (const { address, resource, values } of serviceContainers(change)) {
        if (isMissing(resource, "user")) {
          yield {
            address,
            what: "user should be given: without it the image decides, got nothing",
          };
        } else if (/^(0|root)(:|$)/.test(text(values.user) ?? "")) {
          yield { address, what: `user should not be root, got '${text(values.user)}'` };
        }
      }
      for (const { address, name, security } of podContainersOf(change)) {
        const user = text(security("run_as_user"));
        if (security("run_as_non_root") === true && user !== "0") continue;
        yield {
          address,
          what: `run_as_non_root should be true, of the container ${name}, got ${user === "0" ? "run_as_user 0" : String(security("run_as_non_root") ?? "nothing")}`,
        };
      }
    },
  }),
  rule({
    id: "container-capabilities",
    severity: "warning",
    title: "A container gives up all capabilities of the kernel.",
    why: "Docker leaves a container fourteen capabilities, raw sockets among them. The servers use none.",
    looksAt: "`capabilities.drop` of every container, on Docker and in pods.",
    fix: "set capabilities.drop to ALL",
    example: {
      stack: "single-gpu",
      says: "capabilities.drop should be ALL, got nothing",
      edits: [{ at: embed("capabilities"), failing: undefined }],
    },
    *find(change) {
      for (const resource of resourcesOf(change, "docker_container")) {
        const dropped = texts(at(resource.after?.capabilities, "drop"));
        if (dropped.includes("ALL") || resource.unknown.some(([name]) => name === "capabilities")) {
          continue;
        }
        yield {
          address: resource.address,
          what: `capabilities.drop should be ALL, got ${or(dropped)}`,
        };
      }
      for (const { address, name, container } of podContainersOf(change)) {
        const dropped = texts(at(container, "security_context", "capabilities", "drop"));
        if (dropped.includes("ALL")) continue;
        yield {
          address,
          what: `capabilities.drop should be ALL, of the container ${name}, got ${or(dropped)}`,
        };
      }
    },
  }),
  rule({
    id: "container-read-only",
    severity: "warning",
    title: "A service cannot change its own image.",
    why: "On a read-only disk nobody can leave a program behind, and what a service writes goes where someone thought of it: a volume or a tmpfs.",
    looksAt:
      "`read_only` of containers that keep running, and `read_only_root_filesystem` in pods.",
    fix: "set read_only to true (read_only_root_filesystem), with a tmpfs at /tmp",
    example: {
      stack: "single-gpu",
      says: "read_only should be true, got false",
      edits: [{ at: embed("read_only"), failing: false, passing: true }],
    },
    *find(change) {
      for (const { address, values } of serviceContainers(change)) {
        if (values.read_only === true) continue;
        yield { address, what: `read_only should be true, got ${values.read_only ?? "nothing"}` };
      }
      for (const { address, name, container } of podContainersOf(change)) {
        const given = at(container, "security_context", "read_only_root_filesystem");
        if (given === true) continue;
        yield {
          address,
          what: `read_only_root_filesystem should be true, of the container ${name}, got ${given ?? "nothing"}`,
        };
      }
    },
  }),
  rule({
    id: "container-privilege-escalation",
    severity: "warning",
    title: "A program in a container gets no rights that it did not start with.",
    why: "A setuid program in the image would make an ordinary user root in the container.",
    looksAt:
      "`security_opts` of containers on Docker (`no-new-privileges:true`), and `allow_privilege_escalation` in pods.",
    fix: "add no-new-privileges:true to security_opts (in pods: allow_privilege_escalation false)",
    example: {
      stack: "single-gpu",
      says: "security_opts should have no-new-privileges:true, got nothing",
      edits: [{ at: embed("security_opts"), failing: [] }],
    },
    *find(change) {
      for (const resource of resourcesOf(change, "docker_container")) {
        const options = texts(resource.after?.security_opts);
        if (options.some((it) => /^no-new-privileges([:=]true)?$/.test(it))) continue;
        yield {
          address: resource.address,
          what: `security_opts should have no-new-privileges:true, got ${or(options.map(securityOption))}`,
        };
      }
      for (const { address, name, container } of podContainersOf(change)) {
        const given = at(container, "security_context", "allow_privilege_escalation");
        if (given === false) continue;
        yield {
          address,
          what: `allow_privilege_escalation should be false, of the container ${name}, got ${given ?? "nothing"}`,
        };
      }
    },
  }),
  rule({
    id: "container-restart",
    severity: "warning",
    title: "A service starts again after a crash and after a reboot.",
    why: "Docker restarts nothing by itself: after a reboot of the host the service is gone until somebody applies again.",
    looksAt: "`restart` of containers that keep running.",
    fix: "set restart to unless-stopped",
    example: {
      stack: "single-gpu",
      says: "restart should be unless-stopped or always, got 'no'",
      edits: [{ at: embed("restart"), failing: "no", passing: "unless-stopped" }],
    },
    *find(change) {
      for (const { address, values } of serviceContainers(change)) {
        if (values.restart === "unless-stopped" || values.restart === "always") continue;
        yield {
          address,
          what: `restart should be unless-stopped or always, got ${quoted(values.restart)}`,
        };
      }
    },
  }),
  rule({
    id: "container-log-limit",
    severity: "warning",
    title: "Logs of a container have a limit.",
    why: "Docker's json-file keeps every line for ever: a busy server fills the disk of the host, and everything on it stops.",
    looksAt: "`log_opts` of containers that keep running with the log driver json-file.",
    fix: "set log_opts max-size and max-file",
    example: {
      stack: "single-gpu",
      says: "log_opts should have max-size: json-file keeps every line for ever",
      edits: [{ at: embed("log_opts"), failing: undefined }],
    },
    *find(change) {
      for (const { address, values } of serviceContainers(change)) {
        const driver = text(values.log_driver) ?? "json-file";
        if (driver !== "json-file" || map(values.log_opts)["max-size"] !== undefined) continue;
        yield {
          address,
          what: "log_opts should have max-size: json-file keeps every line for ever",
        };
      }
    },
  }),
  rule({
    id: "pod-security-level",
    severity: "warning",
    title: "A namespace refuses pods with privileges.",
    why: "The label is what makes the API server check every pod of the namespace, also those that somebody adds later by hand.",
    looksAt: `The label \`${podSecurity.label}\` of every namespace that the stack makes.`,
    fix: `label the namespace ${podSecurity.label}=${podSecurity.level}`,
    example: {
      stack: "kind-local",
      says: "pod-security.kubernetes.io/enforce should be restricted or baseline, got nothing",
      edits: [
        {
          at: [
            ...["resource", "kubernetes_namespace_v1", "namespace/namespace"],
            ...["metadata", "labels"],
          ],
          failing: undefined,
          passing: { [podSecurity.label]: podSecurity.level },
        },
      ],
    },
    *find(change) {
      for (const namespace of resourcesOf(change, "kubernetes_namespace")) {
        const level = map(metadataOf(namespace).labels)[podSecurity.label];
        if (level === "restricted" || level === "baseline") continue;
        yield {
          address: namespace.address,
          what: `${podSecurity.label} should be restricted or baseline, got ${quoted(level)}`,
        };
      }
    },
  }),
  rule({
    id: "pod-account-token",
    severity: "warning",
    title: "A pod that asks the API server for nothing has no token for it.",
    why: "The token of a service account is in every pod by default, for whoever reads files in it.",
    looksAt: "`automount_service_account_token` of the pods of clipstack.",
    fix: "set automount_service_account_token to false",
    example: {
      stack: "kind-local",
      says: "automount_service_account_token should be false, got true",
      edits: [{ at: pod("automount_service_account_token"), failing: true, passing: false }],
    },
    *find(change) {
      for (const deployment of deploymentsOf(change)) {
        const { pod: spec, labels } = podOf(deployment);
        if (labels["app.kubernetes.io/name"] !== "clipstack") continue;
        if (spec.automount_service_account_token === false) continue;
        yield {
          address: deployment.address,
          what: `automount_service_account_token should be false, got ${String(spec.automount_service_account_token ?? "nothing")}`,
        };
      }
    },
  }),
  rule({
    id: "pod-system-calls",
    severity: "warning",
    title: "A pod has the system calls of its runtime's default profile, and no more.",
    why: "Without a seccomp profile a container may use every system call of the kernel; most escapes began with one that no server needs.",
    looksAt: "`seccomp_profile` of pods and of their containers.",
    fix: "set seccomp_profile.type to RuntimeDefault",
    example: {
      stack: "kind-local",
      says: "seccomp_profile.type should be RuntimeDefault, of the container embed, got 'Unconfined'",
      edits: [{ at: pod("security_context", "seccomp_profile"), failing: { type: "Unconfined" } }],
    },
    *find(change) {
      for (const { address, name, security } of podContainersOf(change)) {
        const type = text(block(security("seccomp_profile"))?.type);
        if (type === "RuntimeDefault" || type === "Localhost") continue;
        yield {
          address,
          what: `seccomp_profile.type should be RuntimeDefault, of the container ${name}, got ${quoted(type)}`,
        };
      }
    },
  }),
];

const capable = new Set(["ALL", "SYS_ADMIN", "SYS_MODULE", "SYS_PTRACE", "SYS_RAWIO", "NET_ADMIN"]);

function* dangerous(address: string, added: readonly string[]) {
  for (const capability of added) {
    if (!capable.has(capability.replace(/^CAP_/, ""))) continue;
    yield { address, what: `capabilities.add must not have ${capability}` };
  }
}

function or(values: readonly string[]): string {
  return values.length === 0 ? "nothing" : values.join(", ");
}

/** A profile may be written out in an option; what is usual is shown. */
function securityOption(given: string): string {
  const [, name = hidden, value] = /^([a-z-]{1,40})(?:[:=](.*))?$/s.exec(given) ?? [];
  if (value === undefined) return name;
  return `${name}=${/^(unconfined|disable|true|false)$/.test(value) ? value : hidden}`;
}

function quoted(value: unknown): string {
  const known = text(value);
  return known === undefined ? "nothing" : `'${known}'`;
}
