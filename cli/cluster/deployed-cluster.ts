import type { AddressInfo } from "node:net";
import { createServer } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { clusterAddress } from "../../artefact/cluster-address.ts";
import {
  type ClusterDeployment,
  type ClusterInspection,
  type ClusterPod,
  type ClusterService,
  isReady,
  isTerminated,
} from "../../artefact/cluster-objects.ts";
import type { DeclaredObject } from "../../artefact/terraform-manifests.ts";
import type { Reach } from "../../bench/run/deployed-environment.ts";
import type { Environment } from "../../contract/environment.ts";
import { UserError } from "../../contract/user-error.ts";
import { unsettledAutoscalers } from "../../verify/checks/check-cluster.ts";
import {
  ApiRejection,
  accessText,
  type ClusterAccess,
  type ClusterApi,
  namespacedPath,
  openCluster,
  selectedBy,
} from "../../verify/cluster/cluster-api.ts";

/** The cluster that an environment is in. */
export function accessOf({ kubeconfig, where }: Environment): ClusterAccess {
  return { kubeconfig, context: where };
}

/** Kinds that belong to no namespace, and those whose plural is not the kind with an `s`. */
const clusterKinds = new Set([
  "Namespace",
  "ClusterRole",
  "ClusterRoleBinding",
  "APIService",
  "RuntimeClass",
  "PriorityClass",
  "StorageClass",
]);
const plurals: Readonly<Record<string, string>> = {
  NetworkPolicy: "networkpolicies",
  RuntimeClass: "runtimeclasses",
  PriorityClass: "priorityclasses",
  StorageClass: "storageclasses",
};

/** Path of an object in the API. */
export function objectPath({ apiVersion, kind, metadata }: DeclaredObject["manifest"]): string {
  const root = apiVersion.includes("/") ? `/apis/${apiVersion}` : `/api/${apiVersion}`;
  const namespace = clusterKinds.has(kind) ? "" : `/namespaces/${metadata.namespace ?? "default"}`;
  const plural = plurals[kind] ?? `${kind.toLowerCase()}s`;
  return `${root}${namespace}/${plural}/${metadata.name ?? ""}`;
}

/** Look at the declared objects, and at the pods of the Deployments. */
export async function inspectCluster(
  access: ClusterAccess,
  objects: readonly DeclaredObject[],
  signal?: AbortSignal,
): Promise<ClusterInspection> {
  let api: ClusterApi | undefined;
  try {
    api = await openCluster(access, signal);
    return await lookAt(api, objects, signal);
  } catch (error) {
    if (error instanceof UserError) return { ok: false, message: error.message };
    if (error instanceof ApiRejection) {
      return { ok: false, message: `the API server refuses: ${error.message}` };
    }
    throw error;
  } finally {
    await api?.close();
  }
}

/** How long autoscalers are given before they are judged. */
export interface Patience {
  /** For the first metric: metrics-server takes a minute to see a new pod, and the autoscaler looks every 15 s. */
  readonly metricMs: number;
  readonly metricPollMs: number;
  /** How often a Deployment and its autoscaler are read again when their replicas differ. */
  readonly rereads: number;
  readonly rereadPauseMs: number;
}

const patience: Patience = {
  metricMs: 100_000,
  metricPollMs: 5_000,
  rereads: 3,
  rereadPauseMs: 1_000,
};

/** What there is of the declared objects, read until the autoscalers can be judged, or for as long as `patience` lasts. */
export async function lookAt(
  api: Pick<ClusterApi, "get" | "list">,
  objects: readonly DeclaredObject[],
  signal?: AbortSignal,
  { metricMs, metricPollMs, rereads, rereadPauseMs }: Patience = patience,
): Promise<ClusterInspection> {
  const found = new Map<DeclaredObject, unknown>();
  const pods = new Map<string, readonly ClusterPod[]>();
  const read = async (wanted: readonly DeclaredObject[]) => {
    for (const object of wanted) {
      signal?.throwIfAborted();
      const there = await api.get(objectPath(object.manifest));
      found.set(object, there);
      if (object.manifest.kind !== "Deployment" || there === undefined) continue;
      const { metadata, spec } = there as ClusterDeployment;
      const path = namespacedPath(metadata.namespace ?? "default", "v1", "pods");
      const all = await api.list<ClusterPod>(`${path}${selectedBy(spec.selector.matchLabels)}`);
      pods.set(
        metadata.name,
        all.filter((pod) => !isTerminated(pod)),
      );
    }
  };
  await read(objects);
  const began = performance.now();
  let reread = 0;
  for (;;) {
    const { withoutMetric, apart } = unsettledAutoscalers(found);
    const isWaiting = withoutMetric.length > 0 && performance.now() - began < metricMs;
    const isApart = apart.length > 0 && reread < rereads;
    if (!isWaiting && !isApart) return { ok: true, found, pods };
    if (isWaiting) {
      await sleep(metricPollMs, undefined, { signal });
      await read(objects); // for what is young changes elsewhere too: budgets, quotas
    } else {
      reread += 1;
      await sleep(rereadPauseMs, undefined, { signal });
      await read(apart);
    }
  }
}

/** Whether the Deployments of an environment are in its cluster. */
export async function isInCluster(
  environment: Environment,
  signal?: AbortSignal,
): Promise<boolean> {
  const api = await openCluster(accessOf(environment), signal);
  try {
    for (const { workload } of environment.services) {
      if (workload === undefined) continue;
      const { namespace = "default" } = environment;
      const path = namespacedPath(namespace, "apps/v1", "deployments", workload);
      if ((await api.get(path)) !== undefined) return true;
    }
    return false;
  } finally {
    await api.close();
  }
}

/** Endpoints as they are; those that only the cluster reaches, forwarded to a pod of their Service. */
export async function reachCluster(environment: Environment, signal: AbortSignal): Promise<Reach> {
  const urls = environment.services.flatMap(({ endpoints }) => endpoints.map(({ url }) => url));
  const inside = urls.flatMap((url) => clusterAddress(url) ?? []);
  const ports = new Map<string, Forward>();
  const keyOf = ({ namespace, service, port }: Address) => `${namespace}/${service}:${port}`;
  const api = inside.length === 0 ? undefined : await openCluster(accessOf(environment), signal);
  const close = async () => {
    for (const { close } of ports.values()) close();
    await api?.close();
  };
  try {
    for (const address of inside) {
      if (api === undefined || ports.has(keyOf(address))) continue;
      ports.set(keyOf(address), await forward(api, address));
    }
  } catch (error) {
    await close();
    throw error;
  }
  return {
    url: (url) => {
      const address = clusterAddress(url);
      const port = address && ports.get(keyOf(address))?.port;
      if (port === undefined) return url;
      return `${/^https?:\/\//.exec(url)?.[0] ?? ""}127.0.0.1:${port}`;
    },
    notes:
      ports.size === 0
        ? []
        : [
            "forwarded by the API server: one pod of each Service answers, and latency has the way through the API server in it",
          ],
    close,
  };
}

interface Address {
  readonly service: string;
  readonly namespace: string;
  readonly port: number;
}

interface Forward {
  /** On the loopback interface. */
  readonly port: number;
  close(): void;
}

/** Forwards a port of this machine to one ready pod of a Service, a stream through the API server for each connection. */
async function forward(api: ClusterApi, { namespace, service, port }: Address): Promise<Forward> {
  const { PortForward } = await import("@kubernetes/client-node");
  const where = `${service} of ${accessText(api.access)}`;
  const found = await api.get<ClusterService>(namespacedPath(namespace, "v1", "services", service));
  if (found === undefined) throw new UserError(`${where}: there is no such Service`);
  const pods = await api.list<ClusterPod>(
    `${namespacedPath(namespace, "v1", "pods")}${selectedBy(found.spec.selector)}`,
  );
  const pod = pods.find(isReady);
  if (pod === undefined) throw new UserError(`${where}: no pod of it is ready`);
  const target = found.spec.ports?.find((it) => it.port === port)?.targetPort ?? port;
  const containerPort =
    typeof target === "number"
      ? target
      : pod.spec.containers.flatMap(({ ports = [] }) => ports).find(({ name }) => name === target)
          ?.containerPort;
  if (containerPort === undefined)
    throw new UserError(`${where}: no container has port '${target}'`);
  const streams = new PortForward(api.config);
  const server = createServer((socket) => {
    const drop = () => void socket.destroy();
    socket.on("error", drop);
    streams
      .portForward(namespace, pod.metadata.name, [containerPort], socket, null, socket)
      .then((stream) => {
        const end = typeof stream === "function" ? stream() : stream;
        end?.addEventListener("close", drop);
        socket.on("close", () => end?.close());
      }, drop);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { port: (server.address() as AddressInfo).port, close: () => void server.close() };
}
