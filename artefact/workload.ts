import { posix } from "node:path";
import type { Service } from "../contract/environment.ts";
import type { VolumeContents } from "./volume-contents.ts";

/** Container or Deployment that implements a service. */
export interface Workload {
  readonly service: Service;
  /** Terraform address, as in the plan. */
  readonly address: string;
  readonly kind: "container" | "deployment";
  /** Name of the container on its network, or of the Deployment. */
  readonly name: string;
  /** Entry point and arguments that replace the image's own. Empty for the embed server. */
  readonly command: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /** Ports of the machine that are forwarded to the workload. */
  readonly published: readonly PublishedPort[];
  /** Ports of the Services that lead to the workload inside the cluster. Their names are in `aliases`. */
  readonly inCluster: readonly PublishedPort[];
  readonly volumes: readonly Volume[];
  readonly probes: readonly Probe[];
  /** Minimum number of processes: 1 for a container. */
  readonly replicas: number;
  /**
   * Declared limits: quantity by resource, such as `memory: 8Gi`.
   *
   * @default - none
   */
  readonly limits?: Readonly<Record<string, string>>;
  /** Seconds between SIGTERM and SIGKILL. */
  readonly graceSeconds: number;
  /** Other host names: aliases on the container's Docker networks, or the Deployment's Services. */
  readonly aliases: readonly string[];
  readonly networks: readonly string[];
  /** Faults of the synthesized file between the machine's port and the workload. */
  readonly faults: readonly string[];
}

export interface PublishedPort {
  readonly internal: number;
  readonly external: number;
}

export interface Volume {
  readonly containerPath: string;
  /**
   * Path as written, possibly a Terraform expression; for a named volume, the folder that it is filled from. Absent if
   * unknown.
   */
  readonly hostPath?: string;
  /** Content of a named volume or ConfigMap, if known. */
  readonly contents?: VolumeContents;
}

export interface Probe {
  readonly kind: "health check" | "startup probe" | "readiness probe" | "liveness probe";
  /** Port and path of the HTTP request; absent if the probe sends none, or its port is unknown. */
  readonly http?: { readonly port: number; readonly path: string };
  /** Maximum time until the first success, in seconds. */
  readonly budgetSeconds: number;
  /** Command or URL, for messages. */
  readonly text: string;
}

/** Environment variables with the list of models in `MODELS` instead of a file in the container, if the artefact contains the file. */
export function inlineModels({ env, volumes }: Workload): Readonly<Record<string, string>> {
  const { MODELS_FILE = "", ...others } = env;
  const text = volumes
    .map((it) => it.contents?.files[posix.relative(it.containerPath, MODELS_FILE)])
    .find((file) => file !== undefined);
  if (text === undefined) return env;
  return { ...others, MODELS: text.replace(/\n */g, "") };
}

/** Terraform address and name, for messages. */
export function describe(workload: Workload): string {
  const kind = workload.kind === "container" ? "container" : "Deployment";
  return `${workload.address} (${kind} '${workload.name}')`;
}

/** Returns whether other workloads can resolve a host name to this one. */
export function hasHostName(workload: Workload, host: string): boolean {
  return workload.name === host || workload.aliases.includes(host);
}
