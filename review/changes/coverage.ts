import { gpuMetricsLabel } from "../../constructs/checks/gpus.ts";
import { chartDocuments } from "../facts/chart-documents.ts";
import type { ResourceChange, StackChange, Values } from "../input/change.ts";
import { asTyped, baseType, isExaminedType } from "../input/resource-types.ts";
import { few, isOneShot, isOwnChart, withoutKey } from "../input/stack-facts.ts";
import { changedSubject } from "../input/subject.ts";
import { blockOf, blocksOf, canonical, isObject } from "../input/value-paths.ts";
import { unexaminedAttributes } from "./examined-attributes.ts";
import { canExpose } from "./exposure.ts";
import { asTypedChange, type StackComparison } from "./impact-kinds.ts";

/** Topics of a review; each covers only the resources examined for it. */
export const topics = ["impact", "exposure", "capacity and cost"] as const;
export type Topic = (typeof topics)[number];

/** A resource that some statements of the review do not cover. */
export interface Unexamined {
  readonly address: string;
  /** Name of the resource in the sentences of the review. */
  readonly name: string;
  readonly type: string;
  /** Words that follow "resources" in the comment: `of hashicorp/aws`. */
  readonly which: string;
  readonly topics: readonly Topic[];
  /** Whether this change creates, updates, replaces or destroys the resource. */
  readonly changes: boolean;
}

export interface Coverage {
  /** Managed resources before or after the change, examined or not. */
  readonly resources: number;
  readonly unexamined: readonly Unexamined[];
}

export function coverageOf(stack: StackComparison): Coverage {
  const { change } = stack;
  const managed = change.resources.filter(
    ({ mode, deposed }) => mode === "managed" && deposed === undefined,
  );
  const named = (resource: ResourceChange) => (it: Gap) => ({
    ...it,
    name: changedSubject(resource, stack),
  });
  const gaps = change.resources.flatMap((it) => gapsOf(it, stack).map(named(it)));
  const deferred = (change.plan?.deferred ?? []).map((it) =>
    named(it)({ ...gap(it, "deferred to a second plan"), changes: false }),
  );
  const modules = unexaminedModules(change);
  return {
    resources: managed.length + deferred.length + modules.length,
    unexamined: [...gaps, ...deferred, ...modules],
  };
}

/** Returns sentences about the resources that were not examined for a topic; none if all were. */
export function gapTexts(
  unexamined: readonly Unexamined[],
  topic: Topic | undefined,
  text = (count: number) =>
    `${count === 1 ? "was" : "were"} not examined${topic === undefined ? "" : ` for ${topic}`}`,
): readonly string[] {
  const own = unexamined.filter((it) => topic === undefined || it.topics.includes(topic));
  return [...new Set(own.map(({ which }) => which))].sort().map((which) => {
    const all = own.filter((it) => it.which === which);
    const names = all.map(({ address, type }) => (which.startsWith("of ") ? type : address));
    const noun = all.length === 1 ? "resource" : "resources";
    return `${all.length} ${noun} ${which} ${text(all.length)}: ${few([...new Set(names)].sort())}.`;
  });
}

type Gap = Omit<Unexamined, "name">;

function gap(resource: ResourceChange, which: string, about: readonly Topic[] = topics): Gap {
  const { address, type, action } = resource;
  const changes = action !== "no-op" && action !== "forget";
  return { address, type, which, topics: about, changes };
}

function gapsOf(resource: ResourceChange, stack: StackComparison): readonly Gap[] {
  if (resource.deposed !== undefined) return [];
  if (resource.mode !== "managed") {
    if (resource.action !== "read") return [];
    // the program of the data source runs during the apply
    if (resource.type === "external") return [gap(resource, "with a program")];
    const isOpened = resource.mode === "ephemeral" && !isInert(resource.type, {});
    return isOpened ? [gap(resource, "opened during the apply", ["impact"])] : [];
  }
  const { type, values } = asTyped(resource.type, resource.after ?? resource.before ?? {});
  const base = baseType(type);
  if (isInert(base, values)) return [];
  if (!isExaminedType(base)) return [gap(resource, `of ${providerOf(resource)}`)];
  if (base === "helm_release" && !canExamineRelease(values)) {
    return [gap(resource, "with an unknown chart or unreadable values")];
  }
  if (runsPrograms(resource, stack)) return [gap(resource, "with a program")];
  const gaps = [
    ...(canExpose(base) && hidesExposure(resource)
      ? [gap(resource, "with ports or privileges known only after the apply", ["exposure"])]
      : []),
    ...(hasOtherGpus(resource, base, stack)
      ? [gap(resource, "with GPUs outside the environment's services", ["capacity and cost"])]
      : []),
  ];
  return gaps.length > 0 ? gaps : attributeGaps(resource);
}

function attributeGaps(resource: ResourceChange): readonly Gap[] {
  const sets = /^(create|update|replace)$/.test(resource.action);
  const attributes = [
    ...unexaminedAttributes(asTypedChange(resource)),
    ...(sets ? (resource.writeOnly ?? []) : []),
  ];
  if (attributes.length === 0) return [];
  return [gap(resource, `with values that the review does not know (${few(attributes)})`)];
}

/** Returns whether a resource exists only in the state, or extends the API server and is installed by this project. */
function isInert(base: string, values: Readonly<Record<string, unknown>>): boolean {
  if (base === "kubernetes_api_service") {
    const { group, version } = blockOf(values, "spec");
    const { name, namespace } = blockOf(values, "spec", "service");
    return (
      [group, version, namespace, name].join(" ") ===
      "metrics.k8s.io v1beta1 kube-system metrics-server"
    );
  }
  return /^(random|time|tls)_/.test(base);
}

/**
 * Returns whether the review can examine a Helm release: the chart is this project's, and its values
 * are set only through `values`, as valid YAML.
 */
function canExamineRelease(values: Readonly<Record<string, unknown>>): boolean {
  const others = ["set", "set_list", "set_sensitive", "set_wo", "postrender"];
  const isSet = (value: unknown) => blocksOf(value).length > 0;
  return (
    isOwnChart(values) &&
    chartDocuments(values.values) !== undefined &&
    !others.some((name) => isSet(values[name]))
  );
}

/** Complete command lines that this project's constructs run when a resource is created. */
const ownPrograms = [
  /^(node [\w./-]*clipstack\.mjs|npx --no-install clipstack) [^;&|<>`\n()]*$/,
  /^printf "%s" "\$LOGS"; exit "\$EXIT_CODE"$/,
  /^kind load docker-image --name "\$NAME" "\$IMAGE"$/,
];

function runsPrograms({ address, programs = [] }: ResourceChange, stack: StackComparison): boolean {
  const isCluster = [stack.before, stack.after].some(
    ({ services }) => services.get(withoutKey(address))?.resources.cluster === address,
  );
  return !isCluster && programs.some((text) => !ownPrograms.some((own) => own.test(text)));
}

/** Attributes that affect exposure. */
const exposing = new Set(
  [
    "ports privileged user pid_mode network_mode volumes mounts userns_mode devices publish_all_ports",
    "host_network host_pid host_ipc host_port host_path run_as_user run_as_non_root add external_ips",
    "spec template container init_container volume rule verbs subject role_ref driver_opts manifest",
  ].flatMap((words) => words.split(" ")),
);

function hidesExposure({ unknown }: ResourceChange): boolean {
  return unknown.some((path) => {
    const names = path.filter((step) => typeof step === "string");
    return exposing.has(names.at(-1) ?? "") || names.includes("host_path");
  });
}

/** Returns whether a workload has GPUs that the capacity table does not include. */
function hasOtherGpus(resource: ResourceChange, base: string, stack: StackComparison): boolean {
  const { values } = asTyped(resource.type, resource.after ?? {});
  if (stack.after.services.has(withoutKey(resource.address))) return false;
  if (base === "docker_container") {
    return hasDockerGpus(values) && !isOneShot(values) && !readsGpuMetrics(values);
  }
  const spec = blockOf(
    values,
    "spec",
    ...(base.endsWith("cron_job") ? ["job_template", "spec"] : []),
  );
  const pod = base.endsWith("_pod") ? spec : blockOf(spec, "template", "spec");
  return [...blocksOf(pod.container), ...blocksOf(pod.init_container)].some((container) => {
    const { limits, requests } = blockOf(container, "resources");
    return [limits, requests].some(
      (amounts) => isObject(amounts) && Object.keys(amounts).some((name) => gpuNames.test(name)),
    );
  });
}

/** Returns whether a container only reads the metrics of the GPUs of the services. */
function readsGpuMetrics({ labels }: Values): boolean {
  return blocksOf(labels).some(
    ({ label, value }) => label === `clipstack.${gpuMetricsLabel}` && value === "true",
  );
}

/** Extended resources of the device plugins for GPUs, MIG devices and shared GPUs included. */
const gpuNames = /^(nvidia\.com|amd\.com|gpu\.intel\.com|habana\.ai)\//;

/**
 * Returns whether a container has GPUs: by `gpus`, or by NVIDIA's runtime, variable or device files,
 * which need no `gpus`.
 */
function hasDockerGpus({ gpus, runtime, env, devices, device_requests }: Values): boolean {
  const variable = Array.isArray(env) ? env.map(String) : [];
  return (
    (typeof gpus === "string" && gpus !== "") ||
    /nvidia|amd/.test(String(runtime ?? "")) ||
    variable.some((text) => /^NVIDIA_VISIBLE_DEVICES=(?!$|none$|void$)/.test(text)) ||
    blocksOf(devices).some(({ host_path }) => /^\/dev\/(nvidia|kfd|dri)/.test(String(host_path))) ||
    blocksOf(device_requests).length > 0
  );
}

/** Provider of a resource, such as `hashicorp/aws`; the prefix of its type if unknown. */
function providerOf({ type, provider }: ResourceChange): string {
  return provider ?? type.replace(/_.*/s, "");
}

/**
 * Modules declared in a synthesized file. They count as unexamined, because only a Terraform plan
 * lists the resources of a module.
 */
function unexaminedModules({ modules }: StackChange): readonly Unexamined[] {
  const { before = {}, after = {} } = modules ?? {};
  return Object.keys({ ...before, ...after }).map((name) => ({
    address: `module.${name}`,
    name: `module.${name}`,
    type: "module",
    which: "in a module",
    topics,
    changes: canonical(before[name]) !== canonical(after[name]),
  }));
}
