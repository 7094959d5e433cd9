import type {
  V1ConfigMap,
  V1Container,
  V1Deployment,
  V1PodSpec,
  V2HorizontalPodAutoscaler,
} from "@kubernetes/client-node";
import type { Service } from "../contract/environment.ts";
import { UserError } from "../contract/user-error.ts";
import type { Wire } from "./cluster-objects.ts";
import { type ContainerPort, type Declared, portsOfServices } from "./service-ports.ts";
import type { DeclaredObject, Manifest } from "./terraform-manifests.ts";
import type { VolumeContents } from "./volume-contents.ts";
import type { Probe, Volume, Workload } from "./workload.ts";

/** Workload of a service that runs in a Deployment. */
export function deploymentWorkload(
  service: Service,
  address: string,
  manifest: Manifest,
  declared: Declared,
  file: string,
): Workload {
  const { metadata, spec } = manifest as Wire<V1Deployment>;
  const { name } = metadata ?? {};
  const template = spec?.template;
  const pod = template?.spec;
  const container = pod?.containers?.[0];
  if (name === undefined || pod === undefined || container === undefined) {
    throw new UserError(
      `${file}: ${address}: must have a name and a pod template with a container`,
    );
  }
  if (pod.containers.length > 1) {
    throw new UserError(
      `${file}: ${address}: must have one container, got ${pod.containers.map((c) => c.name).join(", ")}`,
    );
  }
  const faults: string[] = [];
  const portNumber = portNumbers(container);
  const labels = template?.metadata?.labels ?? {};
  const ports = portsOfServices({ service, labels, portNumber, faults }, declared, file);
  return {
    service,
    address,
    kind: "deployment",
    name,
    command: [...(container.command ?? []), ...(container.args ?? [])],
    // a value that only the cluster knows is named by its source, such as a key of a Secret
    env: Object.fromEntries(
      (container.env ?? []).map(({ name, value, valueFrom }) => [
        name,
        value ?? (valueFrom === undefined ? "" : JSON.stringify(valueFrom)),
      ]),
    ),
    published: ports.published,
    inCluster: ports.inCluster,
    volumes: volumesOf(container, pod, declared.objects),
    probes: probesOf(container, portNumber, faults),
    replicas: spec?.replicas ?? autoscalerMinimum(name, declared.objects) ?? 1,
    ...(container.resources?.limits !== undefined && { limits: limitsOf(container) }),
    graceSeconds: pod.terminationGracePeriodSeconds ?? 30,
    aliases: ports.names,
    networks: [],
    faults,
  };
}

function limitsOf({ resources }: Wire<V1Container>): Readonly<Record<string, string>> {
  const limits = Object.entries(resources?.limits ?? {});
  return Object.fromEntries(limits.map(([name, quantity]) => [name, String(quantity)]));
}

/** Resolves the ports of a container by number or name. */
function portNumbers(container: Wire<V1Container>): ContainerPort {
  const named = new Map(
    (container.ports ?? []).flatMap((p) => (p.name ? [[p.name, p.containerPort]] : [])),
  );
  return (port) => (/^\d+$/.test(String(port)) ? Number(port) : named.get(String(port)));
}

function probesOf(
  container: Wire<V1Container>,
  portNumber: ContainerPort,
  faults: string[],
): readonly Probe[] {
  const declared = [
    ["startup probe", container.startupProbe],
    ["readiness probe", container.readinessProbe],
    ["liveness probe", container.livenessProbe],
  ] as const;
  return declared.flatMap(([kind, probe]): readonly Probe[] => {
    if (probe === undefined) return [];
    const get = probe.httpGet;
    const path = get?.path ?? "/";
    const port = get === undefined ? undefined : portNumber(get.port);
    if (get !== undefined && port === undefined) {
      faults.push(
        `the ${kind} requests port '${get.port}', but the container declares no port with this name`,
      );
    }
    // defaults of Kubernetes
    const { initialDelaySeconds = 0, periodSeconds = 10, failureThreshold = 3 } = probe;
    return [
      {
        kind,
        http: port === undefined ? undefined : { port, path },
        budgetSeconds: initialDelaySeconds + periodSeconds * (failureThreshold + 1),
        text: get === undefined ? "no HTTP request" : `GET :${get.port}${path}`,
      },
    ];
  });
}

function volumesOf(
  container: Wire<V1Container>,
  pod: Wire<V1PodSpec>,
  objects: readonly DeclaredObject[],
): readonly Volume[] {
  const podVolumes = pod.volumes ?? [];
  const hostPaths = new Map(podVolumes.map((v) => [v.name, v.hostPath?.path]));
  const contents = new Map(
    podVolumes.map((v) => [v.name, configMapContents(v.configMap?.name, objects)]),
  );
  return (container.volumeMounts ?? []).map((mount) => {
    const hostPath = hostPaths.get(mount.name);
    return {
      containerPath: mount.mountPath,
      contents: contents.get(mount.name),
      hostPath:
        hostPath === undefined || mount.subPath === undefined
          ? hostPath
          : `${hostPath}/${mount.subPath}`,
    };
  });
}

function configMapContents(
  name: string | undefined,
  objects: readonly DeclaredObject[],
): VolumeContents | undefined {
  if (name === undefined) return undefined;
  const found = objects.find(
    ({ manifest }) => manifest.kind === "ConfigMap" && manifest.metadata.name === name,
  );
  if (found === undefined) return undefined;
  const { data = {} } = found.manifest as Wire<V1ConfigMap>;
  return { files: data, filledBy: [found.address], reloads: [] };
}

/** Minimum number of replicas, at least one, that the autoscaler of a Deployment keeps. */
function autoscalerMinimum(
  deployment: string,
  objects: readonly DeclaredObject[],
): number | undefined {
  for (const { manifest } of objects) {
    if (!["HorizontalPodAutoscaler", "ScaledObject"].includes(manifest.kind)) continue;
    const { spec } = manifest as Wire<V2HorizontalPodAutoscaler> & KedaScaler;
    const { kind = "Deployment", name } = spec?.scaleTargetRef ?? {};
    if (kind === "Deployment" && name === deployment) {
      // pods that KEDA adds with the first request are simulated from the start
      return Math.max(1, spec?.minReplicas ?? spec?.minReplicaCount ?? 1);
    }
  }
  return undefined;
}

/** `ScaledObject`, from which KEDA creates an autoscaler. */
interface KedaScaler {
  readonly spec?: { readonly minReplicaCount?: number };
}
