import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { dirname, resolve } from "node:path";
import type {
  V1ConfigMap,
  V1Deployment,
  V1Service,
  V2HorizontalPodAutoscaler,
} from "@kubernetes/client-node";
import { parseDocument as parseYamlDocument } from "yaml";
import { z } from "zod";
import {
  type Environment,
  environment,
  environmentOutput,
  type Service,
} from "../contract/environment.ts";
import { UserError } from "../contract/user-error.ts";
import { selects, type Wire } from "./cluster-objects.ts";
import { type DeclaredContainer, declaredContainer, seconds } from "./declared-container.ts";
import { helmReleases, renderRelease } from "./helm-template.ts";
import { parseAs, parseJson } from "./parse.ts";
import {
  completeManifests,
  type DeclaredObject,
  type Manifest,
  type ManifestOptions,
  manifestsOf,
} from "./terraform-manifests.ts";
import { resolveText, type TerraformResources } from "./terraform-text.ts";
import { type VolumeContents, volumeContents } from "./volume-contents.ts";

/**
 * What was synthesized for one environment, read from its `cdk.tf.json`. The bench sees the artefact and never the code
 * that made it: what is wrong in the file is wrong here.
 */
export interface Artefact {
  readonly file: string;
  /** SHA-256 of the file, in hex. */
  readonly sha256: string;
  readonly environment: Environment;
  /** One for each service of the environment, in its order. */
  readonly workloads: readonly Workload[];
  /** Containers of the file that are no service: not run here. */
  readonly otherContainers: readonly string[];
  /** Those of them that fill a volume: what they put there is known. */
  readonly volumeFillers: readonly string[];
  /** Every container of the file, whatever it is for. */
  readonly containers: readonly ContainerBlock[];
  /** Every Kubernetes object that the file declares, by typed resources or releases of a chart. */
  readonly objects: readonly DeclaredObject[];
}

/** One `docker_container`, with the references that stand in the file resolved. */
export interface ContainerBlock {
  /** Terraform address, as in the plan. */
  readonly address: string;
  readonly declared: DeclaredContainer;
  /** Address of the `docker_image` that it runs; absent where it names none. */
  readonly image?: string;
}

/** One container, or one Deployment, that stands behind a service. */
export interface Workload {
  readonly service: Service;
  /** Terraform address, as in the plan. */
  readonly address: string;
  readonly kind: "container" | "deployment";
  /** Name of the container on its network, or of the Deployment. */
  readonly name: string;
  /** Command line after the image's own: entry point and arguments. Empty for the embed server. */
  readonly command: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /** Ports of the machine that lead to the workload. */
  readonly published: readonly PublishedPort[];
  /** Ports that lead to it inside its cluster, under the names of `aliases`. */
  readonly inCluster: readonly PublishedPort[];
  readonly volumes: readonly Volume[];
  readonly probes: readonly Probe[];
  /** Processes that run at least: 1 for a container. */
  readonly replicas: number;
  /** Seconds between the request to stop and the kill. */
  readonly graceSeconds: number;
  /** Other names: on the Docker networks that the container is on, or of the Services that lead to the Deployment. */
  readonly aliases: readonly string[];
  readonly networks: readonly string[];
  /** What in the file contradicts itself on the way from the machine's port to the workload. */
  readonly faults: readonly string[];
}

export interface PublishedPort {
  readonly internal: number;
  readonly external: number;
}

export interface Volume {
  readonly containerPath: string;
  /**
   * As written, a Terraform expression of this folder included; of a named volume, the folder that it is filled from.
   * Absent where neither is known.
   */
  readonly hostPath?: string;
  /** What a named volume is filled with, where that is known. */
  readonly contents?: VolumeContents;
}

export interface Probe {
  readonly kind: "health check" | "startup probe" | "readiness probe" | "liveness probe";
  /** Absent where the probe is a command that names no URL. */
  readonly http?: { readonly port: number; readonly path: string };
  /** How long the workload may take until the probe succeeds, in seconds. */
  readonly budgetSeconds: number;
  /** For messages: the command or the URL. */
  readonly text: string;
}

const document = z.object({
  resource: z.record(z.string(), z.record(z.string(), z.unknown())).default({}),
  output: z.record(z.string(), z.object({ value: z.unknown() })).default({}),
});

/**
 * Read a synthesized environment.
 *
 * @param file - Path of `cdk.tf.json`.
 * @param shown - How messages name the file.
 * @throws {UserError} one line that names the file, what in it, the rule and the value.
 */
export function readArtefact(file: string, shown = file): Artefact {
  const bytes = readBytes(file, shown);
  const sha256 = createHash("sha256").update(bytes).digest("hex");
  return {
    file: shown,
    sha256,
    ...parseArtefact(bytes.toString("utf8"), shown, dirname(resolve(file))),
  };
}

function readBytes(file: string, shown: string): Buffer {
  try {
    return readFileSync(file);
  } catch (error) {
    const missing = error instanceof Error && "code" in error && error.code === "ENOENT";
    throw new UserError(`${shown}: ${missing ? "there is no such file" : String(error)}`);
  }
}

/** What an environment offers, of its `cdk.tf.json` alone. */
export function readEnvironment(file: string, shown = file): Environment {
  return environmentOf(parseDocument(readBytes(file, shown).toString("utf8"), shown), shown);
}

/**
 * The Kubernetes objects that a synthesized environment declares, each after those that it needs.
 *
 * @throws {UserError} where a chart must be rendered and there is no helm, and what {@link manifestsOf} refuses.
 */
export function readManifests(
  file: string,
  shown: string,
  options: ManifestOptions,
): readonly DeclaredObject[] {
  const { resource } = parseDocument(readBytes(file, shown).toString("utf8"), shown);
  return objectsOf(resource, shown, dirname(resolve(file)), options);
}

function objectsOf(
  resources: TerraformResources,
  shown: string,
  moduleFolder: string,
  options: ManifestOptions = {},
): readonly DeclaredObject[] {
  const releases = helmReleases(resources, shown, moduleFolder);
  return [
    ...manifestsOf(resources, shown, options),
    ...releases.flatMap((it) => completeManifests(renderRelease(it, shown), shown, options)),
  ];
}

/** Whether an environment is made of a chart, which takes helm to be read. */
export function needsHelm(environment: Environment): boolean {
  return environment.services.some(({ resources }) => resources.release !== undefined);
}

function parseDocument(json: string, shown: string): z.infer<typeof document> {
  return parseAs(document, parseJson(json, shown), shown);
}

function environmentOf({ output }: z.infer<typeof document>, shown: string): Environment {
  const value = output[environmentOutput]?.value;
  if (value === undefined) {
    throw new UserError(`${shown}: output.${environmentOutput} is missing`);
  }
  return parseAs(environment, value, `${shown}: output.${environmentOutput}.value`);
}

/** What {@link readArtefact} does, on text. */
export function parseArtefact(
  json: string,
  shown: string,
  moduleFolder = ".",
): Omit<Artefact, "file" | "sha256"> {
  const parsed = parseDocument(json, shown);
  const { resource } = parsed;
  const described = environmentOf(parsed, shown);
  const containers = Object.entries(resource.docker_container ?? {}).map(([id, body]) => {
    const address = `docker_container.${id}`;
    const resolved = resolveText(body, resource);
    return {
      address,
      declared: parseAs(declaredContainer, resolved, `${shown}: ${address}`),
      image: imageAddress(body),
    };
  });
  const filled = volumeContents(containers);
  const objects = objectsOf(resource, shown, moduleFolder);
  const workloads = described.services.map((service) =>
    workloadOf(service, { resource, objects, containers }, filled, shown),
  );
  return {
    objects,
    environment: described,
    workloads,
    volumeFillers: [...new Set([...filled.values()].flatMap(({ filledBy }) => filledBy))],
    otherContainers: containers
      .map(({ address }) => address)
      .filter((address) => workloads.every((workload) => workload.address !== address)),
    containers,
  };
}

/** `docker_image.x` of a container whose image is `${docker_image.x.image_id}`. */
function imageAddress(body: unknown): string | undefined {
  const image = z.object({ image: z.string() }).safeParse(body).data?.image ?? "";
  const id = /^\$\{docker_image\.([\w-]+)\.\w+\}$/.exec(image)?.[1];
  return id === undefined ? undefined : `docker_image.${id}`;
}

/** What a file declares: Terraform's resources, and the Kubernetes objects that they stand for. */
interface Declared {
  readonly resource: TerraformResources;
  readonly objects: readonly DeclaredObject[];
  readonly containers: readonly ContainerBlock[];
}

function workloadOf(
  service: Service,
  declared: Declared,
  filled: ReadonlyMap<string, VolumeContents>,
  shown: string,
): Workload {
  const { container, deployment, release } = service.resources;
  const [address, ...more] = [container, deployment, release].filter((it) => it !== undefined);
  if (address === undefined || more.length > 0) {
    throw new UserError(
      `${shown}: service '${service.name}' must name one container, one Deployment or one release in resources, got ${JSON.stringify(service.resources)}`,
    );
  }
  resourceAt(address, declared.resource, service, shown);
  const block = declared.containers.find((it) => it.address === address);
  if (block !== undefined) return fromContainer(service, block, filled);
  const manifest = declared.objects.find(
    (it) =>
      it.address === address &&
      it.manifest.kind === "Deployment" &&
      (release === undefined || it.manifest.metadata.name === service.workload),
  )?.manifest;
  if (manifest === undefined) {
    throw new UserError(
      `${shown}: service '${service.name}' stands on Deployment '${service.workload ?? ""}' of ${address}, which is not in it`,
    );
  }
  return fromDeployment(service, address, manifest, declared, shown);
}

function resourceAt(
  address: string,
  resources: TerraformResources,
  service: Service,
  shown: string,
): unknown {
  const dot = address.indexOf(".");
  const body = resources[address.slice(0, dot)]?.[address.slice(dot + 1)];
  if (body === undefined) {
    throw new UserError(
      `${shown}: service '${service.name}' stands on ${address}, which is not in the file`,
    );
  }
  return body;
}

function fromContainer(
  service: Service,
  { address, declared: parsed }: ContainerBlock,
  filled: ReadonlyMap<string, VolumeContents>,
): Workload {
  return {
    service,
    address,
    kind: "container",
    name: parsed.name,
    command: [...parsed.entrypoint, ...parsed.command],
    env: Object.fromEntries(parsed.env.map(splitAssignment)),
    published: parsed.ports.map(({ internal, external }) => ({
      internal,
      external: external ?? internal,
    })),
    volumes: [
      ...parsed.volumes.map(({ container_path, host_path, volume_name = "" }): Volume => {
        const contents = filled.get(volume_name);
        return {
          containerPath: container_path,
          hostPath: host_path ?? contents?.folder,
          contents,
        };
      }),
      ...parsed.mounts
        .filter((mount) => mount.type !== "tmpfs")
        .map((mount) => ({
          containerPath: mount.target,
          hostPath: mount.type === "bind" ? mount.source : undefined,
        })),
    ],
    probes: parsed.healthcheck.map((check) => {
      const command = check.test.join(" ");
      // https://docs.docker.com/reference/dockerfile/#healthcheck: defaults of 30 s and 3 retries
      const budgetSeconds =
        seconds(check.start_period, 0) + seconds(check.interval, 30) * ((check.retries ?? 3) + 1);
      return {
        kind: "health check",
        http: urlIn(command),
        budgetSeconds,
        text: command,
      } as const;
    }),
    replicas: 1,
    graceSeconds: parsed.destroy_grace_seconds ?? parsed.stop_timeout ?? 10,
    aliases: parsed.networks_advanced.flatMap((network) => network.aliases),
    networks: parsed.networks_advanced.map((network) => network.name),
    inCluster: [],
    faults: [],
  };
}

function splitAssignment(line: string): readonly [string, string] {
  const equals = line.indexOf("=");
  return [line.slice(0, equals), line.slice(equals + 1)];
}

/** The URL of the container itself that a health check's command asks. */
function urlIn(command: string): Probe["http"] {
  const match =
    /http:\/\/(?:localhost|127\.0\.0\.1|0\.0\.0\.0|\[::1\])(?::(\d+))?(\/[^\s"'`)]*)?/.exec(
      command,
    );
  return match === null ? undefined : { port: Number(match[1] ?? 80), path: match[2] ?? "/" };
}

function fromDeployment(
  service: Service,
  address: string,
  manifest: Manifest,
  declared: Declared,
  shown: string,
): Workload {
  const { metadata, spec } = manifest as Wire<V1Deployment>;
  const { name } = metadata ?? {};
  const template = spec?.template;
  const pod = template?.spec;
  const container = pod?.containers?.[0];
  if (name === undefined || pod === undefined || container === undefined) {
    throw new UserError(
      `${shown}: ${address}: must have a name and a pod template with a container`,
    );
  }
  if (pod.containers.length > 1) {
    throw new UserError(
      `${shown}: ${address}: must have one container, got ${pod.containers.map((c) => c.name).join(", ")}`,
    );
  }
  const named = new Map(
    (container.ports ?? []).flatMap((p) => (p.name ? [[p.name, p.containerPort]] : [])),
  );
  const number = (value: number | string): number | undefined =>
    /^\d+$/.test(String(value)) ? Number(value) : named.get(String(value));
  const faults: string[] = [];
  const labels = template?.metadata?.labels ?? {};
  const podVolumes = pod.volumes ?? [];
  const ports = portsOfServices(service, labels, number, declared, shown, faults);
  const hostPaths = new Map(podVolumes.map((v) => [v.name, v.hostPath?.path]));
  const texts = new Map(podVolumes.map((v) => [v.name, configTexts(v.configMap?.name, declared)]));
  const probes = (
    [
      ["startup probe", container.startupProbe],
      ["readiness probe", container.readinessProbe],
      ["liveness probe", container.livenessProbe],
    ] as const
  ).flatMap(([kind, p]) => {
    if (p === undefined) return [];
    const get = p.httpGet;
    const path = get?.path ?? "/";
    const at = get === undefined ? undefined : number(get.port);
    if (get !== undefined && at === undefined) {
      faults.push(`its ${kind} asks port '${get.port}', which the container does not name`);
    }
    return [
      {
        kind,
        http: at === undefined ? undefined : { port: at, path },
        // defaults of Kubernetes
        budgetSeconds:
          (p.initialDelaySeconds ?? 0) + (p.periodSeconds ?? 10) * ((p.failureThreshold ?? 3) + 1),
        text: get === undefined ? "no HTTP request" : `GET :${get.port}${path}`,
      },
    ];
  });
  return {
    service,
    address,
    kind: "deployment",
    name,
    command: [...(container.command ?? []), ...(container.args ?? [])],
    env: Object.fromEntries((container.env ?? []).map((e) => [e.name, e.value ?? ""])),
    published: ports.published,
    inCluster: ports.inCluster,
    volumes: (container.volumeMounts ?? []).map((mount): Volume => {
      const hostPath = hostPaths.get(mount.name);
      return {
        containerPath: mount.mountPath,
        contents: texts.get(mount.name),
        hostPath:
          hostPath === undefined || mount.subPath === undefined
            ? hostPath
            : `${hostPath}/${mount.subPath}`,
      };
    }),
    probes,
    replicas: spec?.replicas ?? autoscalerMinimum(name, declared) ?? 1,
    graceSeconds: pod.terminationGracePeriodSeconds ?? 30,
    aliases: ports.names,
    networks: [],
    faults,
  };
}

/** What a volume made of a ConfigMap holds. */
function configTexts(name: string | undefined, { objects }: Declared): VolumeContents | undefined {
  if (name === undefined) return undefined;
  const found = objects.find(
    ({ manifest }) => manifest.kind === "ConfigMap" && manifest.metadata.name === name,
  );
  if (found === undefined) return undefined;
  const { data = {} } = found.manifest as Wire<V1ConfigMap>;
  return { files: data, filledBy: [found.address], reloads: [] };
}

/** Minimum number of replicas that the autoscaler of a Deployment keeps. */
function autoscalerMinimum(deployment: string, { objects }: Declared): number | undefined {
  for (const { manifest } of objects) {
    if (!["HorizontalPodAutoscaler", "ScaledObject"].includes(manifest.kind)) continue;
    const { spec } = manifest as Wire<V2HorizontalPodAutoscaler> & KedaScaler;
    const { kind = "Deployment", name } = spec?.scaleTargetRef ?? {};
    if (kind === "Deployment" && name === deployment) {
      return spec?.minReplicas ?? spec?.minReplicaCount;
    }
  }
  return undefined;
}

/** A `ScaledObject`, from which KEDA makes an autoscaler. */
interface KedaScaler {
  readonly spec?: { readonly minReplicaCount?: number };
}

interface ServicePorts {
  readonly published: readonly PublishedPort[];
  readonly inCluster: readonly PublishedPort[];
  /** Names of the Services, as pods of the cluster may write them. */
  readonly names: readonly string[];
}

const noPorts: ServicePorts = { published: [], inCluster: [], names: [] };

/** From the machine's port to the pod: kind's port mapping, the node port, the Service's target port. */
function portsOfServices(
  service: Service,
  labels: Readonly<Record<string, string>>,
  number: (port: number | string) => number | undefined,
  declared: Declared,
  shown: string,
  faults: string[],
): ServicePorts {
  const services = servicesOf(service, labels, declared, shown);
  if (services.length === 0) {
    faults.push("no Service leads to it");
    return noPorts;
  }
  const { resource } = declared;
  const { cluster } = service.resources;
  const mappings =
    cluster === undefined
      ? undefined
      : kindPortMappings(resolveText(resourceAt(cluster, resource, service, shown), resource));
  const published: PublishedPort[] = [];
  const inCluster: PublishedPort[] = [];
  const names: string[] = [];
  for (const { address, manifest } of services) {
    const { metadata: of = {}, spec } = manifest as Wire<V1Service>;
    if (spec === undefined) throw new UserError(`${shown}: ${address}: must have a spec`);
    if (!selects(spec.selector, labels)) {
      const selector = Object.entries(spec.selector ?? {}).map(([key, value]) => `${key}=${value}`);
      faults.push(`${address} selects ${selector.join(", ") || "nothing"}, which its pods are not`);
      continue;
    }
    const { name, namespace } = of;
    if (name !== undefined) {
      const full =
        namespace === undefined ? [] : [`${name}.${namespace}`, `${name}.${namespace}.svc`];
      names.push(name, ...full, ...full.slice(1).map((it) => `${it}.cluster.local`));
    }
    for (const { port: servicePort, targetPort, nodePort } of spec.ports ?? []) {
      const internal = number(targetPort ?? servicePort);
      if (internal === undefined) {
        faults.push(`${address} leads to port '${targetPort}', which the container does not name`);
        continue;
      }
      // a Service without an address of its own gives those of the pods, and their ports
      inCluster.push({ internal, external: spec.clusterIP === "None" ? internal : servicePort });
      if (nodePort === undefined) continue;
      const external = mappings === undefined ? nodePort : mappings.get(nodePort);
      if (external !== undefined) published.push({ internal, external });
      else faults.push(`${address} has node port ${nodePort}, which ${cluster} maps to no port`);
    }
  }
  return { published, inCluster, names };
}

/** The Service that a typed resource names; of a release, all that select the pods. */
function servicesOf(
  service: Service,
  labels: Readonly<Record<string, string>>,
  { resource, objects }: Declared,
  shown: string,
): readonly DeclaredObject[] {
  const { service: address, release } = service.resources;
  if (address !== undefined) {
    resourceAt(address, resource, service, shown);
    return objects.filter((it) => it.address === address);
  }
  if (release === undefined) return [];
  return objects.filter(
    ({ address: of, manifest }) =>
      of === release &&
      manifest.kind === "Service" &&
      selects((manifest as Wire<V1Service>).spec?.selector, labels),
  );
}

/** `containerPort` → `hostPort` of a kind configuration, wherever in the resource it is: an object, YAML or JSON. */
export function kindPortMappings(body: unknown): ReadonlyMap<number, number> {
  const found = new Map<number, number>();
  const visit = (value: unknown): void => {
    const inner =
      typeof value === "string" && value.includes("containerPort") ? yamlOf(value) : value;
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

/** Content of a YAML or JSON text; nothing if it is neither. */
function yamlOf(text: string): unknown {
  const document = parseYamlDocument(text);
  return document.errors.length === 0 ? document.toJS() : undefined;
}
