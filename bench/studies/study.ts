import { type BenchEndpoint, benchEndpointName } from "../../contract/bench-endpoint.ts";
import type { EndpointName } from "../../contract/environment.ts";
import type { ChannelsOption } from "../../target/load/channels.ts";
import type { OpenTarget } from "../../target/open/open-target.ts";
import type { EnvironmentSubject } from "../../target/subject/subject.ts";
import type { TargetSource } from "../../target/target.ts";
import type { BenchContext, LoadPointOptions } from "../measure/bench-events.ts";
import type { MeasuredEndpoint, RequestedEndpoint } from "../measure/choose-endpoints.ts";
import type { BenchRecord, Conditions, LoadPoint } from "../record/bench-record.ts";
import type { StudyId, StudyResult } from "../record/study-result.ts";
import type { IdleMemory, MemoryReading } from "./memory.ts";

/** One study: a file of this folder, registered in `registry.ts`. */
export type Study = LoadStudy | EnvironmentStudy;

interface StudyBase {
  readonly id: StudyId;
  /**
   * Endpoints and payload formats to measure.
   *
   * @param requested - Endpoints of the command line; empty: the defaults of the study.
   * @default - the requested endpoints, or every endpoint with its default format
   */
  readonly endpointsOf?: (requested: readonly RequestedEndpoint[]) => readonly RequestedEndpoint[];
}

/** Study that loads an environment without changing it; all such studies share one start. */
export interface LoadStudy extends StudyBase {
  readonly kind: "load";
  /** Requires the services' memory before their first request; runs in the first round only. */
  readonly readsIdleMemory?: true;
  /** Requires a deployed environment, because simulated GPUs share the cores of this machine. */
  readonly requiresDeployment?: true;
  readonly run: (run: StudyRun) => Promise<void>;
}

/** Study that starts, changes or only inspects an environment. */
export interface EnvironmentStudy extends StudyBase {
  readonly kind: "environment";
  readonly run: (run: EnvironmentRun) => Promise<void>;
}

/** Values that the studies vary. */
export interface StudyGrid {
  /** Images per request, for `batch` and `memory`. */
  readonly batchSizes: readonly number[];
  /** For `protocol`. */
  readonly protocol: {
    readonly batchSizes: readonly number[];
    readonly concurrency: readonly number[];
    readonly channels: readonly ChannelsOption[];
  };
  /** Number of clients; for `scaling`, per GPU. */
  readonly concurrency: Readonly<
    Record<"concurrency" | "queue-delay" | "scaling" | "topology", readonly number[]>
  >;
  /** Queue delays in microseconds, for `queue-delay`. */
  readonly queueDelaysUs: readonly number[];
}

/** Open environment of a study that measures load points. */
export interface StudyRun {
  readonly environment: string;
  readonly open: OpenTarget;
  readonly context: BenchContext;
  readonly grid: StudyGrid;
  /** Number of the round, from 1. */
  readonly round: number;
  readonly endpoints: readonly MeasuredEndpoint[];
  /** Memory of a service on another machine; unreadable parts are absent. */
  readonly readMemory?: (service: string) => Promise<MemoryReading>;
  /** Memory before the first request; absent unless a study requires it. */
  readonly idleMemory?: IdleMemory;
  /** GPUs of a deployed environment; absent for others. */
  readonly deployment?: StudiedDeployment;
  /** Measured model. */
  readonly model: BenchRecord["subject"]["model"];
  /**
   * Measures a load point and records it, or records why it could not be measured.
   *
   * @throws the reason of the context's signal, after an interrupt
   */
  measure(
    study: StudyId,
    measured: MeasuredEndpoint,
    options: Omit<LoadPointOptions, "study">,
  ): Promise<void>;
  /** Records a failure and prints it. */
  fail(line: string): void;
  /** Records a result other than load points, in the first round only. Later additions to its lists are recorded too. */
  addResult<Result extends StudyResult>(result: Result): Result;
  /** Records load points of another record. */
  addLoadPoints(loadPoints: readonly LoadPoint[]): void;
}

/** One environment for a study that starts or changes it. */
export interface EnvironmentRun {
  readonly environment: StudyEnvironment;
  readonly record: BenchRecord;
  /** Endpoints and models that the study requires. */
  readonly needed: SourceChange;
  onPhase(text: string): void;
  /** @throws {StudyUnavailable} if the environment offers none of the study's endpoints */
  requireOffered(): void;
  /** Opens a source and calls `use` with the endpoints that pass the parity check. */
  open(source: TargetSource, use: (run: StudyRun) => Promise<void>): Promise<void>;
}

/** One environment, with the operations that studies require. */
export interface StudyEnvironment {
  readonly name: string;
  /** Endpoints of its services. */
  readonly offers: readonly EndpointName[];
  /** Its description for the record; absent if only addresses are known. */
  readonly subject?: () => EnvironmentSubject;
  readonly source: (change: SourceChange) => TargetSource;
  /**
   * Starts its services repeatedly, calls `onStart` after each start, and returns notes.
   *
   * @throws {StudyUnavailable} if they cannot be started
   */
  readonly coldStarts: (onStart: (start: ColdStart) => void) => Promise<readonly string[]>;
  readonly readMemory?: StudyRun["readMemory"];
  readonly deployment?: StudiedDeployment;
}

/** GPUs of a deployed environment, and the record to compare it with. */
export interface StudiedDeployment extends Required<Pick<Conditions, "gpus" | "topology">> {
  readonly against?: { readonly path: string; readonly record: BenchRecord };
}

export type ColdStart = Extract<StudyResult, { readonly study: "cold-start" }>["starts"][number];

export interface SourceChange {
  /** Endpoints to open; services that none of them needs are not started. */
  readonly endpoints: readonly EndpointName[];
  /**
   * Additional options of a simulated Triton.
   *
   * @default - none
   */
  readonly tritonArgs?: readonly string[];
}

/** The study cannot run in this environment; the message is the reason, in one line. */
export class StudyUnavailable extends Error {
  override readonly name = "StudyUnavailable";
}

export function clients(concurrency: number): LoadPointOptions["load"] {
  return { kind: "closed loop", concurrency };
}

/** Endpoint and environment for messages: `onnx-http of single-gpu`. */
export function describeEndpoint({ target, endpoint }: MeasuredEndpoint): string {
  return `${benchEndpointName(endpoint)} of ${target.environment}`;
}

/** Endpoint that is measured only if it is available. */
export function optionalEndpoint(
  endpoint: BenchEndpoint["endpoint"],
  payload: BenchEndpoint["payload"] = "fp32",
  serialization: BenchEndpoint["serialization"] = "binary",
): RequestedEndpoint {
  return { endpoint, payload, serialization, byName: false };
}

/** Endpoints of the command line, or these defaults. */
export const requestedOr =
  (...defaults: readonly RequestedEndpoint[]): NonNullable<StudyBase["endpointsOf"]> =>
  (requested) =>
    requested.length === 0 ? defaults : requested;
