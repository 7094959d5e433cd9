import type { ProtocolPath } from "../../inference-image/src/contract/environment.ts";
import type { BenchPath, BenchRecord, Payload } from "./bench-record.ts";
import type { GpuReading } from "./gpu-use.ts";
import type { MetricsSource } from "./instance-metrics.ts";
import type { EnvironmentFile } from "./verify.ts";
import type { DeployedEnvironment } from "./verify-deployed.ts";

/** One address where embeddings can be asked for, while it runs. */
export interface BenchTarget {
  readonly environment: string;
  readonly service: string;
  readonly path: ProtocolPath;
  /** `http://host:port`, or `host:port` for gRPC; reachable from here. */
  readonly url: string;
  /** Model name in requests; of the payload variants it is this with `_u8` and `_jpeg` in place of a backend's suffix. */
  readonly model: string;
  /** What the server takes: it was asked for the models of the payload variants. */
  readonly payloads: readonly Payload[];
  /** Sent as `Authorization: Bearer …` to this address only. */
  readonly apiKey?: string;
  /**
   * Where the processes behind it count what they do, one for each; empty where that is not known. Of a gateway, its own
   * and those of the Tritons that it asks.
   */
  readonly metrics: readonly MetricsSource[];
  /** `http://host:port` of the same Triton: model control and statistics. */
  readonly controlUrl?: string;
  /** Processes on this machine behind it (embedded runtime only). */
  readonly pids: readonly number[];
}

/** Everything that a run measures, while it runs. */
export interface OpenTargets {
  readonly runtime: BenchRecord["subject"]["runtime"];
  readonly targets: readonly BenchTarget[];
  readonly subject: Pick<BenchRecord["subject"], "environments" | "servers" | "gpu" | "price">;
  /** Asks the GPUs of the environment's host, where there is a way to. */
  readonly readGpus?: () => Promise<readonly GpuReading[]>;
  /** Whole sentences for the record. */
  readonly notes: readonly string[];
}

/** Where a run finds what it measures: one environment, or addresses. */
export type TargetsSource = EmbeddedSource | DeployedSource | EndpointsSource;

/** Local processes of the bundled server in place of the environment's containers. */
export interface EmbeddedSource {
  readonly kind: "embedded";
  readonly environment: EnvironmentFile;
  /** Starts the bundled server: program, arguments, and the server's file last. */
  readonly serverCommand: readonly string[];
  /** The project's model repository, for volumes of other hosts and for the models of the payload variants. */
  readonly modelRepository: string;
  /** ONNX file in place of every model; absent: what the artefact mounts. */
  readonly modelFile?: string;
  /** ONNX file of the model that takes pixels; with it the ONNX Triton gets the models of the payload variants too. */
  readonly u8ModelFile?: string;
  /** Added to every port of this machine. */
  readonly portOffset: number;
  /**
   * Protocol paths to reach; a service that none of them needs is not started.
   *
   * @default - all of them
   */
  readonly paths?: readonly ProtocolPath[];
}

/** Containers or pods where they are deployed. */
export interface DeployedSource {
  readonly kind: "deployed";
  readonly environment: DeployedEnvironment;
  readonly paths?: readonly ProtocolPath[];
  /** `nvidia-smi` on the environment's host. */
  readonly readGpus?: () => Promise<readonly GpuReading[]>;
}

/** Addresses given by hand. */
export interface EndpointsSource {
  readonly kind: "endpoints";
  readonly endpoints: readonly { readonly path: ProtocolPath; readonly url: string }[];
  /** Metrics pages: of the embed server, the ONNX Triton, the TensorRT Triton. */
  readonly metrics: readonly { readonly backend: "embed" | "onnx" | "trt"; readonly url: string }[];
  readonly apiKey?: string;
}

export interface WithTargetsOptions {
  readonly signal: AbortSignal;
  /** What is under way, for people. */
  readonly onPhase: (text: string) => void;
}

/** Run `use` while the targets of a source can be reached; what was started for it is stopped afterwards. */
export type WithTargets = <Result>(
  source: TargetsSource,
  options: WithTargetsOptions,
  use: (open: OpenTargets) => Promise<Result>,
) => Promise<Result>;

/** What can be asked of a target: its path with each payload that it takes, binary and, over HTTP, as JSON. */
export type BenchPathsOf = (target: BenchTarget) => readonly BenchPath[];
