import type { V1Service } from "@kubernetes/client-node";
import { parseDocument as parseYamlDocument } from "yaml";
import type { Service } from "../contract/environment.ts";
import { UserError } from "../contract/user-error.ts";
import { selects, type Wire } from "./cluster-objects.ts";
import type { ContainerBlock } from "./container-workload.ts";
import type { DeclaredObject } from "./terraform-manifests.ts";
import { resolveText, type TerraformResources } from "./terraform-text.ts";
import type { PublishedPort } from "./workload.ts";

/** Resources of a file, and the Kubernetes objects that they declare. */
export interface Declared {
  readonly resource: TerraformResources;
  readonly objects: readonly DeclaredObject[];
  readonly containers: readonly ContainerBlock[];
}

/** Number of a container's port; `undefined` for a name that the container does not declare. */
export type ContainerPort = (port: number | string) => number | undefined;

interface ServicePorts {
  readonly published: readonly PublishedPort[];
  readonly inCluster: readonly PublishedPort[];
  /** Host names of the Services for pods of the cluster. */
  readonly names: readonly string[];
}

/** Pods of a Deployment that its Services select. */
interface ServedPods {
  readonly service: Service;
  readonly labels: Readonly<Record<string, string>>;
  readonly portNumber: ContainerPort;
  /** Receives the faults of the synthesized file. */
  readonly faults: string[];
}

/** Port mapping from the machine to the pod: kind's port mapping, node port, the Service's target port. */
export function portsOfServices(
  { service, labels, portNumber, faults }: ServedPods,
  declared: Declared,
  file: string,
): ServicePorts {
  const services = servicesOf(service, labels, declared, file);
  if (services.length === 0) faults.push("no Service selects its pods");
  const { cluster } = service.resources;
  const mappings = hostPortsOf(service, declared, file);
  const published: PublishedPort[] = [];
  const inCluster: PublishedPort[] = [];
  const names: string[] = [];
  for (const { address, manifest } of services) {
    const { metadata = {}, spec } = manifest as Wire<V1Service>;
    if (spec === undefined) throw new UserError(`${file}: ${address}: must have a spec`);
    if (!selects(spec.selector, labels)) {
      const selector = Object.entries(spec.selector ?? {}).map(([key, value]) => `${key}=${value}`);
      faults.push(
        `${address} selects ${selector.join(", ") || "nothing"}, which does not match its pods`,
      );
      continue;
    }
    names.push(...hostNames(metadata));
    for (const { port: servicePort, targetPort, nodePort } of spec.ports ?? []) {
      const internal = portNumber(targetPort ?? servicePort);
      if (internal === undefined) {
        faults.push(
          `${address} targets port '${targetPort}', but the container declares no port with this name`,
        );
        continue;
      }
      // a headless Service resolves to the pods' addresses, so the pods' ports apply
      inCluster.push({ internal, external: spec.clusterIP === "None" ? internal : servicePort });
      if (nodePort === undefined) continue;
      const external = mappings === undefined ? nodePort : mappings.get(nodePort);
      if (external !== undefined) published.push({ internal, external });
      else faults.push(`${address} has node port ${nodePort}, which ${cluster} maps to no port`);
    }
  }
  return { published, inCluster, names };
}

function hostNames({ name, namespace }: Wire<NonNullable<V1Service["metadata"]>>) {
  if (name === undefined) return [];
  if (namespace === undefined) return [name];
  const qualified = `${name}.${namespace}`;
  return [name, qualified, `${qualified}.svc`, `${qualified}.svc.cluster.local`];
}

/** Node port → port of the machine, if the service is in a kind cluster of the file. */
function hostPortsOf(
  service: Service,
  { resource }: Declared,
  file: string,
): ReadonlyMap<number, number> | undefined {
  const { cluster } = service.resources;
  return cluster === undefined
    ? undefined
    : kindPortMappings(resolveText(resourceAt(cluster, resource, service, file), resource));
}

/** Returns the Service that the environment names, or all Services of its Helm release that select the pods. */
function servicesOf(
  service: Service,
  labels: Readonly<Record<string, string>>,
  { resource, objects }: Declared,
  file: string,
): readonly DeclaredObject[] {
  const { service: address, release } = service.resources;
  if (address !== undefined) {
    resourceAt(address, resource, service, file);
    return objects.filter((object) => object.address === address);
  }
  if (release === undefined) return [];
  return objects.filter(
    (object) =>
      object.address === release &&
      object.manifest.kind === "Service" &&
      selects((object.manifest as Wire<V1Service>).spec?.selector, labels),
  );
}

/** Body of the resource that a service references. */
export function resourceAt(
  address: string,
  resources: TerraformResources,
  service: Service,
  file: string,
): unknown {
  const dot = address.indexOf(".");
  const body = resources[address.slice(0, dot)]?.[address.slice(dot + 1)];
  if (body === undefined) {
    throw new UserError(
      `${file}: service '${service.name}' references ${address}, which is not in the file`,
    );
  }
  return body;
}

/** `containerPort` → `hostPort` of a kind configuration anywhere in a resource: an object, YAML or JSON. */
export function kindPortMappings(body: unknown): ReadonlyMap<number, number> {
  const found = new Map<number, number>();
  const visit = (value: unknown): void => {
    const inner =
      typeof value === "string" && value.includes("containerPort") ? parsedYaml(value) : value;
    if (typeof inner !== "object" || inner === null) return;
    const { containerPort, hostPort } = inner as Record<string, unknown>;
    if (containerPort !== undefined && hostPort !== undefined) {
      found.set(Number(containerPort), Number(hostPort));
    }
    for (const item of Object.values(inner)) visit(item);
  };
  visit(body);
  return found;
}

/** Parses YAML or JSON; `undefined` for other text. */
function parsedYaml(text: string): unknown {
  const document = parseYamlDocument(text);
  return document.errors.length === 0 ? document.toJS() : undefined;
}
