import { isLoopback } from "../../contract/loopback.ts";
import { grpcTarget } from "../../contract/server/server-env.ts";
import { chartDocuments, chartKey } from "../facts/chart-documents.ts";
import { isSensitivePath, normalPath, runtimeSocket } from "../facts/host-paths.ts";
import type { Values } from "../input/change.ts";
import { baseType, type ExaminedType } from "../input/resource-types.ts";
import { hidden } from "../input/secrets.ts";
import { isOneShot, objectName, type StackFacts, withoutKey } from "../input/stack-facts.ts";
import { subjectOf } from "../input/subject.ts";
import { blockOf, blocksOf, hasNoContent, isObject } from "../input/value-paths.ts";
import type { StackComparison } from "./impact-kinds.ts";

export const exposureKinds = ["port", "authentication", "upstream", "privilege"] as const;

/** Port reachable from other hosts, missing authentication, a server on another host that receives images, or excess privilege. */
export interface Exposure {
  readonly kind: (typeof exposureKinds)[number];
  readonly address: string;
  /** Service name, or kind and name of the resource. */
  readonly name: string;
  /** `port 8002/tcp on 0.0.0.0` */
  readonly description: string;
  readonly status: "new" | "unchanged" | "removed";
}

interface FoundExposure {
  /** Service name, if the resource has several services. */
  readonly name?: string;
  readonly kind: Exposure["kind"];
  readonly address: string;
  readonly description: string;
}

/** Exposures before and after a change. */
export function exposuresOf(stack: StackComparison): readonly Exposure[] {
  const before = exposuresIn(stack.before);
  const after = exposuresIn(stack.after);
  const key = ({ address, kind, name, description }: FoundExposure) =>
    [address, kind, name, description].join("\n");
  const oldKeys = new Set(before.map(key));
  const newKeys = new Set(after.map(key));
  const named = (facts: StackFacts, it: FoundExposure, status: Exposure["status"]): Exposure => ({
    kind: it.kind,
    address: it.address,
    description: it.description,
    name: it.name ?? nameIn(facts, it.address),
    status,
  });
  return [
    ...after.filter((it) => !oldKeys.has(key(it))).map((it) => named(stack.after, it, "new")),
    ...before.filter((it) => !newKeys.has(key(it))).map((it) => named(stack.before, it, "removed")),
    ...after.filter((it) => oldKeys.has(key(it))).map((it) => named(stack.after, it, "unchanged")),
  ].sort((a, b) => (order(a) < order(b) ? -1 : 1));
}

function nameIn(facts: StackFacts, address: string): string {
  const { type = "", values } = facts.values.get(address) ?? {};
  const service = facts.services.get(withoutKey(address));
  return service?.name ?? subjectOf({ address, type }, values, facts);
}

function order({ status, kind, address, description }: Exposure): string {
  return [
    ["new", "removed", "unchanged"].indexOf(status),
    exposureKinds.indexOf(kind),
    address,
    description,
  ].join(" ");
}

function exposuresIn(facts: StackFacts): readonly FoundExposure[] {
  return [...facts.values].flatMap(([address, { type, values }]) => {
    const base = baseType(type);
    const find = Object.hasOwn(finders, base) ? finders[base as ExaminedType] : undefined;
    return (find?.(values, facts, address) ?? []).map((it) => ({ ...it, address }));
  });
}

/** Exposure found in one resource. */
type ResourceExposure = Omit<FoundExposure, "address">;
const port = (description: string): ResourceExposure => ({ kind: "port", description });
const authentication = (description: string): ResourceExposure => ({
  kind: "authentication",
  description,
});
const privilege = (description: string): ResourceExposure => ({ kind: "privilege", description });

type Finder = (values: Values, facts: StackFacts, address: string) => readonly ResourceExposure[];

const finders: Readonly<Partial<Record<ExaminedType, Finder>>> = {
  docker_container: ofContainer,
  docker_network: ofNetwork,
  docker_volume: ({ driver_opts: options }) =>
    isObject(options) ? mountRisks(String(options.device ?? ""), "the host") : [],
  kubernetes_service: (values, facts, address) =>
    isOnLoopback(facts, address) ? [] : ofService(blockOf(values, "spec")),
  kubernetes_deployment: ofTemplate,
  kubernetes_daemon_set: ofTemplate,
  kubernetes_stateful_set: ofTemplate,
  kubernetes_replication_controller: ofTemplate,
  kubernetes_job: ofTemplate,
  kubernetes_cron_job: (values) =>
    ofPods(blockOf(values, "spec", "job_template", "spec", "template", "spec")),
  kubernetes_pod: (values) => ofPods(blockOf(values, "spec")),
  kubernetes_ingress: (values) => [
    ingress(
      objectName(values).name,
      blocksOf(blockOf(values, "spec").rule).map(({ host }) => host),
    ),
  ],
  kubernetes_role: ofRole,
  kubernetes_cluster_role: ofRole,
  kubernetes_role_binding: ofBinding,
  kubernetes_cluster_role_binding: ofBinding,
  kubernetes_network_policy: ofNetworkPolicy,
  kubernetes_gateway: route("Gateway"),
  kubernetes_httproute: route("HTTPRoute"),
  kubernetes_grpcroute: route("GRPCRoute"),
  kubernetes_tcproute: route("TCPRoute"),
  kubernetes_tlsroute: route("TLSRoute"),
  kubernetes_udproute: route("UDPRoute"),
  kubernetes_ingress_route: route("IngressRoute"),
  kubernetes_ingress_routetcp: route("IngressRouteTCP"),
  kubernetes_ingress_routeudp: route("IngressRouteUDP"),
  kubernetes_persistent_volume: (values) => [
    ...mountRisks(
      String(
        blockOf(values, "spec", "persistent_volume_source", "host_path").path ??
          blockOf(values, "spec", "host_path").path ??
          "",
      ),
      "its node",
    ),
  ],
  helm_release: (values, facts, address) => (isOnLoopback(facts, address) ? [] : ofRelease(values)),
};

/** Returns whether resources of a type can have exposures. */
export function canExpose(base: string): boolean {
  return Object.hasOwn(finders, base);
}

const protocols = /^(tcp|udp|sctp)$/i;

/** Hides values of unexpected format, which may be secrets. */
function safe(value: unknown, format: RegExp): string {
  return format.test(String(value)) ? String(value) : hidden;
}

/** Returns whether kind maps the Service's NodePort to the loopback interface only. */
function isOnLoopback(facts: StackFacts, address: string): boolean {
  const service = facts.services.get(address);
  return (
    service?.resources.cluster !== undefined &&
    service.endpoints.every(({ url }) => /^(https?:\/\/)?(127\.|localhost[:/])/.test(url))
  );
}

/** Containers on macvlan and ipvlan networks are on the host's physical network. */
function ofNetwork({ driver }: Values): readonly ResourceExposure[] {
  if (driver !== "macvlan" && driver !== "ipvlan") return [];
  return [port(`every port of its containers, through a ${driver} network`)];
}

function ofContainer(values: Values, facts: StackFacts, address: string) {
  const open = blocksOf(values.ports).filter(({ ip }) => !isLoopback(String(ip)));
  const ports = open.map(({ internal, external, protocol, ip }) =>
    port(
      `${hostPort(internal, external)}/${safe(protocol || "tcp", protocols)} on ${safe(ip || "0.0.0.0", /^[\da-f.:]{1,45}$/i)}`,
    ),
  );
  if (values.publish_all_ports === true) {
    ports.push(port("every port that its image exposes, on every interface"));
  }
  const hostNetwork = values.network_mode === "host";
  const service = facts.services.get(address);
  const hasKey =
    service?.authorization === "bearer" ||
    (service?.kind === "embed" && setsVariable(values.env, "API_KEY"));
  return [
    ...ports,
    ...(hostNetwork ? [port("all its ports, on the host network")] : []),
    ...(ports.length > 0 || hostNetwork
      ? [
          authentication(
            service === undefined ? authenticationUnknown : hasKey ? requiresKey : noAuthentication,
          ),
        ]
      : []),
    ...(service?.upstreams ?? []).map(
      (target): ResourceExposure => ({
        kind: "upstream",
        description: `sends images to ${safe(target, grpcTarget)} ${setsVariable(values.env, "TRITON_TLS_CA_FILE") ? "over TLS" : "in clear text"}`,
      }),
    ),
    ...privilegesOf(values),
  ];
}

/** Docker chooses a free port if the host port is absent; it may also be known only after the apply. */
function hostPort(internal: unknown, external: unknown): string {
  return external === undefined || external === null
    ? `a free port for ${safe(internal, portNumber)}`
    : `port ${safe(external, portNumber)}`;
}

const portNumber = /^\d{1,5}$/;
const requiresKey = "requires an API key";
const noAuthentication = "no authentication";
/** Authentication of other programs is unknown. */
const authenticationUnknown = "authentication not examined";

function setsVariable(list: unknown, name: string): boolean {
  return Array.isArray(list) && list.some((item) => String(item).startsWith(`${name}=`));
}

function privilegesOf(values: Values): readonly ResourceExposure[] {
  const found: string[] = [];
  if (values.privileged === true) found.push("privileged");
  const user = String(values.user ?? "");
  if (/^(0|root)(:|$)/.test(user) && !isOneShot(values)) found.push("runs as root");
  const added = blocksOf(values.capabilities).flatMap(({ add }) => (Array.isArray(add) ? add : []));
  if (!isOneShot(values) && added.length > 0) {
    found.push(`capabilities ${added.map(String).sort().join(", ")}`);
  }
  if (values.pid_mode === "host") found.push("shares the PID namespace of the host");
  if (values.ipc_mode === "host") found.push("shares the IPC namespace of the host");
  const binds = [...blocksOf(values.volumes), ...blocksOf(values.mounts)].map(
    ({ host_path, source }) => String(host_path || source || ""),
  );
  if (values.userns_mode === "host")
    found.push("no user namespace: its root user is root on the host");
  const options = Array.isArray(values.security_opts) ? values.security_opts.map(String) : [];
  for (const option of options) {
    const [, profile] = /^(seccomp|apparmor)[=:]unconfined$/.exec(option) ?? [];
    if (profile !== undefined) found.push(`without ${profile}`);
  }
  for (const { host_path: device } of blocksOf(values.devices)) {
    found.push(`the device ${safe(device, /^\/dev\/[\w/-]{1,60}$/)} of the host`);
  }
  found.push(...binds.flatMap((path) => hostPathRisks(path, "the host")));
  return found.map(privilege);
}

function hostPathRisks(source: string, owner: string): readonly string[] {
  const path = normalPath(source);
  if (runtimeSocket.test(path)) {
    return [
      path.endsWith("docker.sock")
        ? "mounts the Docker socket"
        : "mounts the container runtime socket",
    ];
  }
  return isSensitivePath(path) ? [`${safe(path, /^[\w./-]{1,100}$/)} of ${owner} is mounted`] : [];
}

const nameFormat = /^[\w.*:/-]{1,253}$/;
const listed = (values: unknown) =>
  (Array.isArray(values) ? values : []).map((value) => safe(value, nameFormat)).join(", ");

function ingress(name: string, hosts: readonly unknown[]): ResourceExposure {
  const named = hosts.filter((host) => typeof host === "string" && host !== "");
  return port(`an Ingress, ${name}${named.length === 0 ? "" : `, for ${listed(named)}`}`);
}

/** Permissions to write, to read Secrets, or to connect to pods and nodes. */
function ofRole(values: Values): readonly ResourceExposure[] {
  const only = (list: unknown, words: RegExp) =>
    Array.isArray(list) && list.every((it) => words.test(String(it)));
  return blocksOf(values.rule)
    .filter(
      ({ verbs, resources }) =>
        !only(verbs, /^(get|list|watch)$/) ||
        !only(resources ?? [], /^(?!secrets|\*|\w+\/(\*|exec|attach|portforward|proxy)$)/),
    )
    .map(({ verbs, resources, non_resource_urls: urls }) =>
      privilege(
        `may ${listed(verbs)} on ${[listed(resources), listed(urls)].filter((it) => it !== "").join(", ")}`,
      ),
    );
}

/** Bindings of built-in roles with write access, or of groups that include all users. */
function ofBinding(values: Values): readonly ResourceExposure[] {
  const { kind, name } = blockOf(values, "role_ref");
  const isStrong = /^(cluster-admin|admin|edit)$/.test(String(name));
  return blocksOf(values.subject)
    .filter(
      (subject) =>
        isStrong || /^system:(unauthenticated|authenticated|anonymous)$/.test(String(subject.name)),
    )
    .map((subject) =>
      privilege(
        `${safe(subject.kind, nameFormat)} ${safe(subject.name, nameFormat)} has the ${safe(kind, nameFormat)} ${safe(name, nameFormat)}`,
      ),
    );
}

/** Connections that a network policy permits to all pods or ports, from every pod of the cluster or from any address. */
function ofNetworkPolicy(values: Values): readonly ResourceExposure[] {
  const spec = blockOf(values, "spec");
  const isForAllPods = blocksOf(spec.pod_selector).every(hasNoContent);
  return blocksOf(spec.ingress).flatMap(({ from, ports, port: own }) => {
    const peers = blocksOf(from);
    const isAnywhere =
      peers.length === 0 ||
      peers.some((it) => /\/[0-7]$/.test(String(blockOf(it, "ip_block").cidr)));
    const isAnyPod = peers.some(
      (it) =>
        blocksOf(it.namespace_selector).some(hasNoContent) &&
        blocksOf(it.pod_selector).every(hasNoContent),
    );
    const all = blocksOf(ports ?? own).map((it) => safe(it.port ?? "all", nameFormat));
    if (!(isAnywhere || isAnyPod) || !(isForAllPods || all.length === 0)) return [];
    const source = isAnywhere ? "any address" : "every pod of the cluster";
    const which = all.length === 0 ? "every port" : `port ${all.join(", ")}`;
    return [port(`${which} of ${isForAllPods ? "all" : "its"} pods, from ${source}`)];
  });
}

/** Objects that route requests into the cluster. */
function route(kind: string): Finder {
  return (values) => [port(`a ${kind}, ${safe(objectName(values).name, nameFormat)}`)];
}

function ofService(spec: Readonly<Record<string, unknown>>): readonly ResourceExposure[] {
  const { type, external_ips: external } = spec;
  const addresses =
    Array.isArray(external) && external.length > 0
      ? [port(`a Service at ${listed(external)}`)]
      : [];
  if (type !== "NodePort" && type !== "LoadBalancer") return addresses;
  const ports = blocksOf(spec.port).map(({ node_port: node, port: own, protocol }) => {
    const transport = safe(protocol || "TCP", protocols).toLowerCase();
    return port(
      type === "NodePort"
        ? `port ${node ?? "?"}/${transport} on every node (NodePort)`
        : `port ${own}/${transport} on a load balancer`,
    );
  });
  return [...ports, ...addresses];
}

function mountRisks(path: string, owner: string): readonly ResourceExposure[] {
  return hostPathRisks(path, owner).map(privilege);
}

function ofTemplate(values: Values): readonly ResourceExposure[] {
  return ofPods(blockOf(values, "spec", "template", "spec"));
}

function ofPods(spec: Readonly<Record<string, unknown>>): readonly ResourceExposure[] {
  const found: string[] = [];
  if (spec.host_network === true) found.push("shares the network namespace of its node");
  if (spec.host_pid === true) found.push("shares the PID namespace of its node");
  if (spec.host_ipc === true) found.push("shares the IPC namespace of its node");
  for (const volume of blocksOf(spec.volume)) {
    found.push(...hostPathRisks(String(blockOf(volume, "host_path").path ?? ""), "its node"));
  }
  const pod = blockOf(spec, "security_context");
  for (const container of [...blocksOf(spec.init_container), ...blocksOf(spec.container)]) {
    const own = blockOf(container, "security_context");
    const name = String(container.name ?? "");
    if (own.privileged === true) found.push(`${name}: privileged`);
    const nonRoot = own.run_as_non_root ?? pod.run_as_non_root;
    const user = String(own.run_as_user ?? pod.run_as_user ?? "");
    if (user === "0" || (nonRoot !== true && user === "")) found.push(`${name}: may run as root`);
    const { add } = blockOf(own, "capabilities");
    if (Array.isArray(add) && add.length > 0) {
      found.push(`${name}: capabilities ${add.map(String).sort().join(", ")}`);
    }
  }
  const ports = blocksOf(spec.container)
    .flatMap((container) => blocksOf(container.port))
    .filter(({ host_port: number }) => typeof number === "number" && number > 0)
    .map(({ host_port: number, protocol }) =>
      port(`port ${number}/${safe(protocol || "TCP", protocols).toLowerCase()} of its node`),
    );
  return [...ports, ...found.map(privilege)];
}

/** Exposures in the values of this project's chart. */
function ofRelease(values: Values): readonly ResourceExposure[] {
  const chart = chartDocuments(values.values) ?? {};
  return Object.entries(chart).flatMap(([name, part]) => {
    const service = isObject(part) && isObject(part.service) ? part.service : {};
    const auth = isObject(part) && isObject(part.auth) ? part.auth : {};
    const { type } = service;
    if (type !== "NodePort" && type !== "LoadBalancer") return [];
    return [
      port(`a Service of type ${type}`),
      ...(auth.allowAnonymous === true ? [authentication(noAuthentication)] : []),
    ].map((it) => ({ ...it, name: chartKey(name) }));
  });
}

/** New exposures, except for newly required authentication. */
export function newExposures(list: readonly Exposure[]): readonly Exposure[] {
  return list.filter(({ status, description }) => status === "new" && description !== requiresKey);
}
