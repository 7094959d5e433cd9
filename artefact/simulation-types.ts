import type { Endpoint, ServiceKind } from "../contract/environment.ts";
import type { Modality } from "../contract/model-spec.ts";
import type { Workload } from "./workload.ts";

/** Address that every process of the local simulation listens on. */
export const loopback = "127.0.0.1";

/** Processes that simulate the containers of one environment, before they are started. */
export interface SimulationPlan {
  readonly instances: readonly Instance[];
  readonly proxies: readonly ProxyPlan[];
  /** Contradictions in the artefact; each is a failed check. */
  readonly faults: readonly Fault[];
  /** Intended differences from a deployment, for the record. */
  readonly notes: readonly string[];
  /** Every endpoint of the environment, with its URL on this machine. */
  readonly targets: readonly Target[];
  /** Ports of this machine that the plan needs, each with the process that needs it. */
  readonly hostPorts: readonly { readonly port: number; readonly neededBy: string }[];
}

/** One process: a container, or one replica of a Deployment. */
export interface Instance {
  readonly workload: Workload;
  /** Display name: the container's, or the Deployment's with the replica's number. */
  readonly name: string;
  readonly role: ServerRole;
  /** Arguments of the server. */
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly listeners: readonly Listener[];
  /** Local URL of the synthesized health check; the role's own readiness route if there is none. */
  readonly readyUrl: string;
  readonly readyBudgetSeconds: number;
  readonly graceSeconds: number;
  /** Model repository to assemble before the start; absent if an existing folder is used. */
  readonly repository?: RepositoryPlan;
}

/** ONNX files of the towers of models, by name of the model. */
export type ModelFiles = ReadonlyMap<string, Readonly<Partial<Record<Modality, string>>>>;

/** Model repository to assemble, because its parts are in several folders or its model is replaced. */
export interface RepositoryPlan {
  readonly folder: string;
  /** Parts, outer mounts first; path `""` is the folder itself. */
  readonly parts: readonly RepositoryPart[];
  /** Files in place of the models' own, by folder of the model: `openclip_vit_b32`. */
  readonly replacements: Readonly<Record<string, string>>;
}

export interface RepositoryPart {
  /** Path below the folder. */
  readonly path: string;
  /** Folder of this machine. */
  readonly source?: string;
  /** Text files by their path in the part. */
  readonly files?: Readonly<Record<string, string>>;
}

/** `baseline` is the PyTorch baseline, the others are roles of clipstack's server. */
export type ServerRole = ServiceKind;

export type ListenerProtocol = "embed-http" | "oip-http" | "oip-grpc" | "metrics";

export interface Listener {
  readonly protocol: ListenerProtocol;
  /** Port inside the container. */
  readonly internal: number;
  /** Port of this machine. */
  readonly local: number;
}

/** Simulates a Service: spreads connections to one port over replicas. */
export interface ProxyPlan {
  readonly workload: Workload;
  readonly port: number;
  readonly backends: readonly number[];
}

export interface Fault {
  readonly workload: Workload;
  readonly message: string;
}

/** One endpoint of the environment, with its URL. */
export interface Target {
  readonly workload: Workload;
  readonly endpoint: Endpoint;
  /** `http://127.0.0.1:port`, or `127.0.0.1:port` for gRPC. Absent if it is not reachable. */
  readonly url?: string;
}

export interface SimulationPlanOptions {
  /** Folder of `cdk.tf.json`: value of `path.root`. */
  readonly moduleFolder: string;
  /** The project's own model repository, in place of paths on another host. */
  readonly modelRepository: string;
  /** Returns whether a folder or file exists. */
  readonly exists: (path: string) => boolean;
  /** ONNX files in place of those that the artefact mounts. */
  readonly modelFiles?: ModelFiles;
  /**
   * Reason why the PyTorch baseline cannot run on this machine; its services are left out.
   *
   * @default - it can run
   */
  readonly noPytorch?: string;
  /** Folder in which model repositories are assembled. */
  readonly temporaryFolder: string;
  /** Added to every port of the machine. */
  readonly portOffset: number;
  /** Returns a free port of this machine, a different one on each call. */
  readonly freePort: () => number;
}
