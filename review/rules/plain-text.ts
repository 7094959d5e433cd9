import { selects } from "../../artefact/cluster-objects.ts";
import { plaintextLabel } from "../../constructs/checks/ports.ts";
import type { ChartValues } from "../../constructs/kubernetes/chart-values.ts";
import { plaintextValueFindings } from "../../constructs/kubernetes/plaintext-values.ts";
import { isLoopback } from "../../contract/loopback.ts";
import { labelNames, podAppName, podObjectName } from "../../contract/pods.ts";
import {
  hostAddress,
  publishedPorts,
  type ServiceContainer,
  serviceContainers,
} from "../facts/service-containers.ts";
import { at, blocks, map, refersTo, text, texts } from "../facts/values.ts";
import {
  environmentOf,
  metadataOf,
  objectsOf,
  podContainers,
  podOf,
  releasesOf,
  specOf,
} from "../facts/workloads.ts";
import type { ResourceChange, StackChange } from "../input/change.ts";
import { textsIn } from "../input/value-paths.ts";
import type { RuleMatch } from "./rule.ts";

/** Name of the label of a container, and of the annotation of an object, that permits plain text. */
const permission = `clipstack.${plaintextLabel}`;
const clearText = "requests and keys are sent in clear text";

/** Published ports that other hosts can reach. */
export function openPorts({ values }: ServiceContainer) {
  return publishedPorts(values).filter(({ ip }) => !isLoopback(ip));
}

/** Returns whether all endpoints of the environment are on the loopback interface. */
export function onLoopback(change: StackChange): boolean {
  const endpoints = environmentOf(change)?.services.flatMap((service) => service.endpoints) ?? [];
  return (
    endpoints.length > 0 &&
    endpoints.every(({ url }) => isLoopback(url.replace(/^https?:\/\//, "").replace(/:\d+$/, "")))
  );
}

/** Ways by which other hosts reach an embed server or a Triton server without TLS. */
export function* plainTextMatches(change: StackChange): Iterable<RuleMatch> {
  yield* plainContainers(change);
  if (onLoopback(change)) return;
  for (const { address, values } of releasesOf(change)) {
    for (const message of plaintextValueFindings(values as ChartValues)) {
      yield {
        address,
        message,
        fix: "set embed.tls, or the value allowPlaintext beside it if the network is private or a load balancer has the certificate",
      };
    }
  }
  const fix = `use TLS, or set the annotation ${permission}: "true" if the network is private or a load balancer has the certificate`;
  for (const [object, message] of plainObjects(change)) {
    if (map(metadataOf(object).annotations)[permission] === "true") continue;
    yield { address: object.address, message: `${message}: ${clearText}`, fix };
  }
}

function* plainContainers(change: StackChange): Iterable<RuleMatch> {
  for (const container of serviceContainers(change)) {
    const isServer = container.kind === "embed" || container.kind === "triton";
    if (!isServer || container.env.has("TLS_CERT_FILE")) continue;
    const isAllowed = blocks(container.values.labels).some(
      ({ label, value }) => label === permission && value === "true",
    );
    const [open] = openPorts(container);
    if (isAllowed || open === undefined) continue;
    yield {
      address: container.address,
      message: `must have TLS if it is reachable from other hosts, at ${hostAddress(open)}: ${clearText}`,
    };
  }
}

function* plainObjects(change: StackChange): Iterable<readonly [ResourceChange, string]> {
  const services = objectsOf(change, "kubernetes_service").filter((it) => isOwn(it, change));
  for (const service of services) {
    const { type, external_ips: addresses } = specOf(service);
    const isOpen = type === "NodePort" || type === "LoadBalancer" || texts(addresses).length > 0;
    if (!isOpen || hasTls(service, change)) continue;
    yield [service, "must have TLS, or a Service of the type ClusterIP"];
  }
  for (const ingress of objectsOf(change, "kubernetes_ingress")) {
    if (blocks(specOf(ingress).tls).length > 0 || !routesTo(ingress, services, change)) continue;
    yield [ingress, "must have tls"];
  }
  for (const kind of ["kubernetes_httproute", "kubernetes_grpcroute"]) {
    for (const route of objectsOf(change, kind)) {
      if (!routesTo(route, services, change)) continue;
      if (!blocks(specOf(route).parent_refs).some((it) => mayBePlain(it, change))) continue;
      yield [route, "parentRefs must each have the sectionName of a listener with TLS"];
    }
  }
}

/** Pods of the stack that a Service selects. */
function selectedPods(service: ResourceChange, change: StackChange) {
  const selector = map(specOf(service).selector);
  return objectsOf(change, "kubernetes_deployment")
    .map(podOf)
    .filter(({ labels }) => selects(selector, labels));
}

/** Returns whether a Service is for pods of this project. */
function isOwn(service: ResourceChange, change: StackChange): boolean {
  const all = [
    map(specOf(service).selector),
    ...selectedPods(service, change).map((it) => it.labels),
  ];
  return all.some((labels) => labels[labelNames.name] === podAppName);
}

/** Returns whether the pods behind a Service have a certificate. */
function hasTls(service: ResourceChange, change: StackChange): boolean {
  const pods = selectedPods(service, change);
  if (pods.length === 0) {
    return (
      map(specOf(service).selector)[labelNames.component] !== "triton" &&
      releasesOf(change).some(({ values }) => at(values, "embed", "tls", "secretName"))
    );
  }
  return pods.every(({ pod }) =>
    podContainers(pod).some(({ env }) => blocks(env).some(({ name }) => name === "TLS_CERT_FILE")),
  );
}

const backendName = /(^|\.)((default_)?backend\.(service\.name|service_name)|backend_refs\.name)$/;

/** Returns whether an Ingress or a route has a backend of this project: a Service of the stack, or of the chart. */
function routesTo(
  route: ResourceChange,
  services: readonly ResourceChange[],
  change: StackChange,
): boolean {
  const ofChart = [podObjectName("embed"), podObjectName("triton")];
  const hasChart = releasesOf(change).length > 0;
  return textsIn(specOf(route)).some(([path, name]) => {
    if (!backendName.test(path.filter((step) => typeof step === "string").join("."))) return false;
    return (
      ofChart.includes(name) ||
      (hasChart && /-(embed|triton)$/.test(name)) ||
      services.some((service) => refersTo(name, service, text(metadataOf(service).name)))
    );
  });
}

/** Returns whether a route may be attached to a listener without TLS. */
function mayBePlain(parent: Readonly<Record<string, unknown>>, change: StackChange): boolean {
  const gateway = objectsOf(change, "kubernetes_gateway").find(
    (it) => metadataOf(it).name === parent.name,
  );
  if (gateway === undefined) return parent.section_name === undefined;
  return blocks(specOf(gateway).listeners).some(
    ({ name, protocol }) =>
      (parent.section_name === undefined || parent.section_name === name) &&
      protocol !== "HTTPS" &&
      protocol !== "TLS",
  );
}
