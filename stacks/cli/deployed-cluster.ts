import { setTimeout as sleep } from "node:timers/promises";
import { z } from "zod";
import { type ClusterInspection, unsettledAutoscalers } from "../../bench/src/check-cluster.ts";
import { clusterAddress } from "../../bench/src/cluster-address.ts";
import {
  type ClusterPod,
  clusterDeployment,
  clusterPod,
  isOver,
  listOf,
} from "../../bench/src/cluster-objects.ts";
import type { DeclaredObject } from "../../bench/src/terraform-manifests.ts";
import type { Reach } from "../../bench/src/verify-deployed.ts";
import type { Environment } from "../../inference-image/src/contract/environment.ts";
import {
  ApiRefusal,
  accessArgs,
  accessText,
  type ClusterAccess,
  type ClusterApi,
  kubectlProblem,
  openCluster,
  startKubectl,
} from "./kubectl.ts";
import { UserError } from "./user-error.ts";

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
  let api: ClusterApi;
  try {
    api = await openCluster(access, signal);
  } catch (error) {
    if (error instanceof UserError) return { ok: false, message: error.message };
    throw error;
  }
  try {
    return await lookAt(api, objects, signal);
  } catch (error) {
    if (error instanceof ApiRefusal)
      return { ok: false, message: `the API server refuses: ${error.message}` };
    throw error;
  } finally {
    await api.close();
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
  api: Pick<ClusterApi, "get">,
  objects: readonly DeclaredObject[],
  signal?: AbortSignal,
  { metricMs, metricPollMs, rereads, rereadPauseMs }: Patience = patience,
): Promise<ClusterInspection> {
  const found = new Map<DeclaredObject, unknown>();
  const pods = new Map<string, readonly ClusterPod[]>();
  const read = async (wanted: readonly DeclaredObject[]) => {
    for (const object of wanted) {
      signal?.throwIfAborted();
      const there = await api.get(objectPath(object.manifest), z.unknown());
      found.set(object, there);
      if (object.manifest.kind !== "Deployment" || there === undefined) continue;
      const { metadata, spec } = clusterDeployment.parse(there);
      const selector = Object.entries(spec.selector.matchLabels).map((pair) => pair.join("="));
      const path = `/api/v1/namespaces/${metadata.namespace ?? "default"}/pods?labelSelector=${encodeURIComponent(selector.join(","))}`;
      const all = (await api.get(path, listOf(clusterPod)))?.items ?? [];
      pods.set(
        metadata.name,
        all.filter((pod) => !isOver(pod)),
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
      const path = `/apis/apps/v1/namespaces/${environment.namespace ?? "default"}/deployments/${workload ?? ""}`;
      if (workload !== undefined && (await api.get(path, z.unknown())) !== undefined) return true;
    }
    return false;
  } finally {
    await api.close();
  }
}

const forwardMs = 20_000;

/** Endpoints as they are; those that only the cluster reaches, through `kubectl port-forward`. */
export async function reachCluster(environment: Environment, signal: AbortSignal): Promise<Reach> {
  const urls = environment.services.flatMap(({ endpoints }) => endpoints.map(({ url }) => url));
  const access = accessOf(environment);
  const forwards = new Map<string, Forward>();
  const close = async () => {
    await Promise.all([...forwards.values()].map((it) => it.close()));
  };
  try {
    for (const url of urls) {
      const address = clusterAddress(url);
      if (address === undefined) continue;
      const key = `${address.namespace}/${address.service}:${address.port}`;
      if (!forwards.has(key)) forwards.set(key, await forward(access, address, signal));
    }
  } catch (error) {
    await close();
    throw error;
  }
  return {
    url: (url) => {
      const address = clusterAddress(url);
      const key = `${address?.namespace}/${address?.service}:${address?.port}`;
      const port = forwards.get(key)?.port;
      if (address === undefined || port === undefined) return url;
      return `${/^https?:\/\//.exec(url)?.[0] ?? ""}127.0.0.1:${port}`;
    },
    notes:
      forwards.size === 0
        ? []
        : [
            "reached through kubectl port-forward: one pod of each Service answers, and latency has the way through the API server in it",
          ],
    close,
  };
}

interface Forward {
  readonly port: number;
  close(): Promise<void>;
}

async function forward(
  access: ClusterAccess,
  {
    service,
    namespace,
    port,
  }: { readonly service: string; readonly namespace: string; readonly port: number },
  signal: AbortSignal,
): Promise<Forward> {
  const args = [
    "port-forward",
    `--namespace=${namespace}`,
    "--address=127.0.0.1",
    `service/${service}`,
    `:${port}`,
  ];
  const program = startKubectl([...accessArgs(access), ...args]);
  const { child } = program;
  const local = await Promise.race([
    new Promise<number | undefined>((resolve) => {
      let said = "";
      child.stdout?.on("data", (text) => {
        said += String(text);
        const found = /127\.0\.0\.1:(\d+) ->/.exec(said)?.[1];
        if (found !== undefined) resolve(Number(found));
      });
      void child.then(() => resolve(undefined));
    }),
    sleep(forwardMs, undefined, { ref: false, signal }).catch(() => undefined),
  ]);
  if (local !== undefined) {
    const close = async () => {
      await program.end();
    };
    return { port: local, close };
  }
  const said = await program.end();
  signal.throwIfAborted();
  throw new UserError(`${service} of ${accessText(access)}: ${kubectlProblem(said, access, args)}`);
}
