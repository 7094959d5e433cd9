import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { rootCertificates } from "node:tls";
import { type ClusterAddress, clusterAddress } from "../../artefact/cluster-address.ts";
import {
  type ClusterDeployment,
  type ClusterInspection,
  type ClusterPod,
  type ClusterService,
  isReady,
  isTerminated,
} from "../../artefact/cluster-objects.ts";
import { clusterKinds } from "../../artefact/helm-template.ts";
import type { DeclaredObject } from "../../artefact/terraform-manifests.ts";
import type { Environment } from "../../contract/environment.ts";
import { messageOf, UserError } from "../../contract/user-error.ts";
import type { NetworkAccess } from "../../target/service/deployed-environment.ts";
import { unsettledAutoscalers } from "../../verify/checks/cluster.ts";
import {
  ApiRejection,
  accessText,
  type ClusterAccess,
  type ClusterApi,
  namespacedPath,
  openCluster,
  selectedBy,
} from "../../verify/cluster/cluster-api.ts";
import { type Forward, listen, withoutTls } from "./local-forward.ts";

export function accessOf({ kubeconfig, where }: Environment): ClusterAccess {
  return { kubeconfig, context: where };
}

/** Irregular plurals of kinds. */
const plurals: Readonly<Record<string, string>> = {
  NetworkPolicy: "networkpolicies",
  RuntimeClass: "runtimeclasses",
  PriorityClass: "priorityclasses",
  StorageClass: "storageclasses",
};

export function objectPath({ apiVersion, kind, metadata }: DeclaredObject["manifest"]): string {
  const root = apiVersion.includes("/") ? `/apis/${apiVersion}` : `/api/${apiVersion}`;
  const namespace = clusterKinds.has(kind) ? "" : `/namespaces/${metadata.namespace ?? "default"}`;
  const plural = plurals[kind] ?? `${kind.toLowerCase()}s`;
  return `${root}${namespace}/${plural}/${metadata.name ?? ""}`;
}

/** Reads the declared objects and the pods of the Deployments. */
export async function inspectCluster(
  access: ClusterAccess,
  objects: readonly DeclaredObject[],
  signal?: AbortSignal,
): Promise<ClusterInspection> {
  let api: ClusterApi | undefined;
  try {
    api = await openCluster(access, signal);
    return await readObjects(api, objects, signal);
  } catch (error) {
    if (error instanceof UserError) return { ok: false, message: error.message };
    if (error instanceof ApiRejection) {
      return { ok: false, message: `rejected by the API server: ${error.message}` };
    }
    throw error;
  } finally {
    await api?.close();
  }
}

/** Limits of the wait for autoscalers. */
export interface WaitLimits {
  /** Time for the first metric: metrics-server needs a minute for a new pod, and the autoscaler syncs every 15 s. */
  readonly metricMs: number;
  readonly metricPollMs: number;
  /** Number of times that a Deployment and its autoscaler are read again if their replicas differ. */
  readonly rereads: number;
  readonly rereadPauseMs: number;
}

const defaultLimits: WaitLimits = {
  metricMs: 100_000,
  metricPollMs: 5_000,
  rereads: 3,
  rereadPauseMs: 1_000,
};

/** Reads the deployed state of the declared objects until the autoscalers have settled or the limits are reached. */
export async function readObjects(
  api: Pick<ClusterApi, "get" | "list">,
  objects: readonly DeclaredObject[],
  signal?: AbortSignal,
  { metricMs, metricPollMs, rereads, rereadPauseMs }: WaitLimits = defaultLimits,
): Promise<ClusterInspection> {
  const found = new Map<DeclaredObject, unknown>();
  const pods = new Map<string, readonly ClusterPod[]>();
  const read = async (objects: readonly DeclaredObject[]) => {
    for (const object of objects) {
      signal?.throwIfAborted();
      const stored = await api.get(objectPath(object.manifest));
      found.set(object, stored);
      if (object.manifest.kind !== "Deployment" || stored === undefined) continue;
      const { metadata, spec } = stored as ClusterDeployment;
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
    const { withoutMetric, mismatched } = unsettledAutoscalers(found);
    const isWaiting = withoutMetric.length > 0 && performance.now() - began < metricMs;
    const isMismatched = mismatched.length > 0 && reread < rereads;
    if (!isWaiting && !isMismatched) return { ok: true, found, pods };
    if (isWaiting) {
      await sleep(metricPollMs, undefined, { signal });
      await read(objects); // all of them, because PDBs and quotas of a new deployment also change
    } else {
      reread += 1;
      await sleep(rereadPauseMs, undefined, { signal });
      await read(mismatched);
    }
  }
}

/** Returns whether a Deployment of the environment exists in its cluster. */
export async function isDeployedInCluster(
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

/** Reaches public endpoints directly; endpoints inside the cluster are forwarded to a pod of their Service. */
export async function reachCluster(
  environment: Environment,
  signal: AbortSignal,
): Promise<NetworkAccess> {
  const urls = environment.services.flatMap(({ endpoints }) => endpoints.map(({ url }) => url));
  const inside = urls.flatMap((url) => {
    const address = clusterAddress(url);
    return address === undefined ? [] : [{ ...address, hasTls: url.startsWith("https:") }];
  });
  const ports = new Map<string, Forward>();
  const keyOf = ({ namespace, service, port }: ClusterAddress) => `${namespace}/${service}:${port}`;
  const api = inside.length === 0 ? undefined : await openCluster(accessOf(environment), signal);
  const close = async () => {
    for (const { close } of ports.values()) close();
    await api?.close();
  };
  try {
    for (const address of inside) {
      if (api === undefined || ports.has(keyOf(address))) continue;
      ports.set(keyOf(address), await forward(api, address, signal));
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
      // TLS ends at the local port
      return `${/^https?:\/\//.test(url) ? "http://" : ""}127.0.0.1:${port}`;
    },
    notes:
      ports.size === 0
        ? []
        : [
            "forwarded by the API server: one pod of each Service responds, and latency includes the API server",
          ],
    close,
  };
}

/** Forwards a local port to one ready pod of a Service, with a stream through the API server per connection. TLS ends at the local port. */
async function forward(
  api: ClusterApi,
  { namespace, service, port, hasTls }: ClusterAddress & { readonly hasTls: boolean },
  signal: AbortSignal,
): Promise<Forward> {
  const { PortForward } = await import("@kubernetes/client-node");
  const where = `${service} of ${accessText(api.access)}`;
  const found = await api.get<ClusterService>(namespacedPath(namespace, "v1", "services", service));
  if (found === undefined) throw new UserError(`${where}: the Service does not exist`);
  const pods = await api.list<ClusterPod>(
    `${namespacedPath(namespace, "v1", "pods")}${selectedBy(found.spec.selector)}`,
  );
  const pod = pods.find(isReady);
  if (pod === undefined) throw new UserError(`${where}: no pod is ready`);
  const target = found.spec.ports?.find((it) => it.port === port)?.targetPort ?? port;
  const containerPort =
    typeof target === "number"
      ? target
      : pod.spec.containers.flatMap(({ ports = [] }) => ports).find(({ name }) => name === target)
          ?.containerPort;
  if (containerPort === undefined)
    throw new UserError(
      `${where}: port '${target}' must exist in a container of the pod, got none`,
    );
  const streams = new PortForward(api.config);
  const plain = await listen((socket) => {
    const drop = () => void socket.destroy();
    streams
      .portForward(namespace, pod.metadata.name, [containerPort], socket, null, socket)
      .then((stream) => {
        const end = typeof stream === "function" ? stream() : stream;
        end?.addEventListener("close", drop);
        socket.on("close", () => end?.close());
      }, drop);
  });
  if (!hasTls) return plain;
  const name = `${service}.${namespace}.svc`;
  try {
    return await withoutTls(plain, name, await authoritiesOf(api, namespace, pod), signal);
  } catch (error) {
    plain.close();
    throw new UserError(
      `${where}: the certificate must be valid for ${name}, and its authority in ca.crt of its Secret or given by --ca: ${messageOf(error)}`,
    );
  }
}

/** Authorities that Node trusts, and that in the Secret of a pod's certificate, if this user may read it. */
async function authoritiesOf(
  api: ClusterApi,
  namespace: string,
  { spec }: ClusterPod,
): Promise<string[]> {
  const volume = spec.volumes?.find(({ name }) => name === "tls");
  const path = namespacedPath(namespace, "v1", "secrets", volume?.secret?.secretName ?? "");
  const secret = await api
    .get<{ readonly data?: Readonly<Record<string, string>> }>(path)
    .catch((error: unknown) => {
      if (error instanceof ApiRejection) return undefined;
      throw error;
    });
  const extra = process.env.NODE_EXTRA_CA_CERTS;
  return [
    ...rootCertificates,
    ...(extra === undefined ? [] : [readFileSync(extra, "utf8")]),
    Buffer.from(secret?.data?.["ca.crt"] ?? "", "base64").toString("utf8"),
  ].filter((text) => text !== "");
}
