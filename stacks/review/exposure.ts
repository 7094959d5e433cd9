import type { Values } from "./change.ts";
import type { StackMoments } from "./consequences.ts";
import { chartDocuments, chartKey } from "./diff-values.ts";
import { hidden } from "./secrets.ts";
import { objectName, type StackFacts, withoutKey } from "./stack-facts.ts";
import { blockOf, blocksOf, isObject } from "./value-paths.ts";

export const exposureKinds = ["port", "authentication", "privilege"] as const;

/** Something that more than the host itself reaches, or that may do more than it needs. */
export interface Exposure {
  readonly kind: (typeof exposureKinds)[number];
  readonly address: string;
  /** `embed`, or the address. */
  readonly who: string;
  /** `port 8002/tcp on 0.0.0.0` */
  readonly what: string;
  readonly status: "new" | "unchanged" | "gone";
}

interface Found {
  /** What it is called, where its address has more than one service. */
  readonly who?: string;
  readonly kind: Exposure["kind"];
  readonly address: string;
  readonly what: string;
}

/** What is exposed after a change, and what was before it. */
export function exposuresOf(stack: StackMoments): readonly Exposure[] {
  const before = allIn(stack.before);
  const after = allIn(stack.after);
  const key = ({ address, kind, who, what }: Found) => [address, kind, who, what].join("\n");
  const was = new Set(before.map(key));
  const is = new Set(after.map(key));
  const named = (facts: StackFacts, it: Found, status: Exposure["status"]): Exposure => ({
    kind: it.kind,
    address: it.address,
    what: it.what,
    who: it.who ?? facts.services.get(withoutKey(it.address))?.name ?? it.address,
    status,
  });
  return [
    ...after.filter((it) => !was.has(key(it))).map((it) => named(stack.after, it, "new")),
    ...before.filter((it) => !is.has(key(it))).map((it) => named(stack.before, it, "gone")),
    ...after.filter((it) => was.has(key(it))).map((it) => named(stack.after, it, "unchanged")),
  ].sort((a, b) => (order(a) < order(b) ? -1 : 1));
}

function order({ status, kind, address, what }: Exposure): string {
  return [
    ["new", "gone", "unchanged"].indexOf(status),
    exposureKinds.indexOf(kind),
    address,
    what,
  ].join(" ");
}

function allIn(facts: StackFacts): readonly Found[] {
  return [...facts.values].flatMap(([address, { type, values }]) => {
    const base = type.replace(/_v\d\w*$/, "");
    const find = Object.hasOwn(finders, base) ? finders[base] : undefined;
    return (find?.(values, facts, address) ?? []).map((it) => ({ ...it, address }));
  });
}

type Finder = (
  values: Values,
  facts: StackFacts,
  address: string,
) => readonly Omit<Found, "address">[];

const finders: Readonly<Record<string, Finder>> = {
  docker_container: ofContainer,
  kubernetes_service: (values, facts, address) =>
    isOfKind(facts, address) ? [] : ofService(blockOf(values, "spec")),
  kubernetes_deployment: (values) => ofPods(blockOf(values, "spec", "template", "spec")),
  kubernetes_daemonset: (values) => ofPods(blockOf(values, "spec", "template", "spec")),
  kubernetes_daemon_set: (values) => ofPods(blockOf(values, "spec", "template", "spec")),
  kubernetes_stateful_set: (values) => ofPods(blockOf(values, "spec", "template", "spec")),
  kubernetes_ingress: (values) => [
    { kind: "port", what: `an Ingress, ${objectName(values).name}` },
  ],
  helm_release: (values, facts, address) => (isOfKind(facts, address) ? [] : ofRelease(values)),
};

const protocols = /^(tcp|udp|sctp)$/i;

/** What has the form of what it should be: nothing else is printed, since it may be a secret. */
function safe(value: unknown, form: RegExp): string {
  return form.test(String(value)) ? String(value) : hidden;
}

function isLoopback(address: unknown): boolean {
  return typeof address === "string" && /^(127\.|::1$|localhost$)/.test(address);
}

/** Whether a Service is one of a kind cluster that this machine alone reaches: kind maps its NodePort to the loopback. */
function isOfKind(facts: StackFacts, address: string): boolean {
  const service = facts.services.get(address);
  return (
    service?.resources.cluster !== undefined &&
    service.endpoints.every(({ url }) => /^(https?:\/\/)?(127\.|localhost[:/])/.test(url))
  );
}

function ofContainer(values: Values, facts: StackFacts, address: string) {
  const open = blocksOf(values.ports).filter(
    ({ external, ip }) => external !== undefined && external !== null && !isLoopback(ip),
  );
  const ports = open.map(({ external, protocol, ip }) => ({
    kind: "port" as const,
    what: `port ${safe(external, /^\d{1,5}$/)}/${safe(protocol || "tcp", protocols)} on ${safe(ip || "0.0.0.0", /^[\da-f.:]{1,45}$/i)}`,
  }));
  const hostNetwork = values.network_mode === "host";
  const service = facts.services.get(address);
  const variables = environmentOf(values.env);
  const asks = variables.has("API_KEY") || service?.authorization === "bearer";
  return [
    ...ports,
    ...(hostNetwork
      ? [{ kind: "port" as const, what: "every port of it, on the host's network" }]
      : []),
    ...(open.length > 0 || hostNetwork
      ? [
          {
            kind: "authentication" as const,
            what: asks ? "asks for a key" : "asks nobody who they are",
          },
        ]
      : []),
    ...privilegesOf(values),
  ];
}

/** Names and values of `NAME=value`. */
function environmentOf(list: unknown): ReadonlyMap<string, string> {
  const entries = (Array.isArray(list) ? list : []).flatMap((item) => {
    const [, name, value] = /^([^=]+)=(.*)$/s.exec(String(item)) ?? [];
    return name === undefined || value === undefined ? [] : [[name, value] as const];
  });
  return new Map(entries);
}

function privilegesOf(values: Values): readonly Omit<Found, "address">[] {
  const found: string[] = [];
  if (values.privileged === true) found.push("privileged");
  const user = String(values.user ?? "");
  if (/^(0|root)(:|$)/.test(user) && values.must_run !== false) found.push("runs as root");
  const added = blocksOf(values.capabilities).flatMap(({ add }) => (Array.isArray(add) ? add : []));
  if (values.must_run !== false && added.length > 0) {
    found.push(`capabilities ${added.map(String).sort().join(", ")}`);
  }
  if (values.pid_mode === "host") found.push("sees the processes of the host");
  if (values.ipc_mode === "host") found.push("shares the memory of the host");
  const binds = [...blocksOf(values.volumes), ...blocksOf(values.mounts)].map(
    ({ host_path, source }) => String(host_path || source || ""),
  );
  if (binds.some((path) => path.endsWith("docker.sock"))) found.push("has the socket of Docker");
  return found.map((what) => ({ kind: "privilege" as const, what }));
}

function ofService(spec: Readonly<Record<string, unknown>>): readonly Omit<Found, "address">[] {
  const { type } = spec;
  if (type !== "NodePort" && type !== "LoadBalancer") return [];
  return blocksOf(spec.port).map(({ node_port: node, port, protocol }) => ({
    kind: "port" as const,
    what:
      type === "NodePort"
        ? `port ${node ?? "?"}/${safe(protocol || "TCP", protocols).toLowerCase()} of every node (NodePort)`
        : `port ${port}/${safe(protocol || "TCP", protocols).toLowerCase()} of a load balancer`,
  }));
}

function ofPods(spec: Readonly<Record<string, unknown>>): readonly Omit<Found, "address">[] {
  const found: string[] = [];
  if (spec.host_network === true) found.push("is on the network of its node");
  if (spec.host_pid === true) found.push("sees the processes of its node");
  const pod = blockOf(spec, "security_context");
  for (const container of blocksOf(spec.container)) {
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
  return found.map((what) => ({ kind: "privilege" as const, what }));
}

/** What the values of this project's chart say. */
function ofRelease(values: Values): readonly Omit<Found, "address">[] {
  const chart = chartDocuments(values.values) ?? {};
  return Object.entries(chart).flatMap(([name, part]) => {
    const service = isObject(part) && isObject(part.service) ? part.service : {};
    const auth = isObject(part) && isObject(part.auth) ? part.auth : {};
    const { type } = service;
    if (type !== "NodePort" && type !== "LoadBalancer") return [];
    return [
      { kind: "port" as const, who: chartKey(name), what: `a Service of type ${type}` },
      ...(auth.allowAnonymous === true
        ? [
            {
              kind: "authentication" as const,
              who: chartKey(name),
              what: "asks nobody who they are",
            },
          ]
        : []),
    ];
  });
}

/** Whether anything of a stack is exposed after it, that was not before. */
export function newExposures(list: readonly Exposure[]): readonly Exposure[] {
  return list.filter(({ status, what }) => status === "new" && what !== "asks for a key");
}
