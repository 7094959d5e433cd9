import { UserError } from "../../contract/user-error.ts";
import { measureLoad } from "../load/measure-load.ts";
import { prepareRequests } from "../load/prepare.ts";
import {
  type BenchEndpoint,
  type BenchRecord,
  benchEndpointName,
  benchRecord,
  benchRecordVersion,
  type Conditions,
  type LoadPoint,
  type LoadShape,
  type StudyId,
} from "../record/bench-record.ts";
import { aboveCeiling, type Device } from "../stats/roofline.ts";
import { p99MinimumSamples } from "../stats/statistics.ts";
import { checkBenchParity, parityFailure } from "./bench-parity.ts";
import { type BenchTarget, benchEndpointsOf, type OpenTargets } from "./bench-target.ts";
import { type TargetsSource, withTargets } from "./bench-targets.ts";
import { startGpuSampler } from "./gpu-use.ts";
import { openHttpClient, reason } from "./http-client.ts";
import { describeCommit, describeMachine } from "./machine.ts";
import { roundsToHalf } from "./parity.ts";
import type { PreparedImage, ReferenceImage } from "./reference.ts";
import { readServerCounters, type ServerCounters, serverTimes } from "./server-times.ts";

/** What happens, as it happens. */
export type BenchEvent =
  | { readonly kind: "phase"; readonly environment?: string; readonly text: string }
  | { readonly kind: "notice"; readonly text: string }
  | { readonly kind: "parity"; readonly result: BenchRecord["parity"][number] }
  /** A window of the cell that is being measured. */
  | {
      readonly kind: "window";
      readonly cell: string;
      readonly window: LoadPoint["windows"][number];
      readonly index: number;
    }
  | { readonly kind: "point"; readonly point: LoadPoint };

/** What every cell of a run is measured with. */
export interface BenchContext {
  readonly settings: BenchRecord["settings"];
  /** What the requests carry. */
  readonly images: readonly PreparedImage[];
  /** Processes that send; absent: as many as the rate needs. */
  readonly workers?: number;
  readonly signal: AbortSignal;
  /**
   * Begins work that an impatient second interrupt must not cut off; what it gives back is called at its end.
   *
   * @param work - In words: `putting back the queue delay of …`.
   * @default - nothing is held
   */
  readonly hold?: (work: string) => () => void;
  readonly onEvent: (event: BenchEvent) => void;
}

/** One load. */
export interface LoadPointOptions {
  readonly batch: number;
  readonly load: LoadShape;
  readonly study?: StudyId;
  readonly conditions?: Conditions;
  /** Address in place of the target's, for example of a proxy before it. */
  readonly url?: string;
  /** Settings in place of the context's. */
  readonly settings?: Partial<BenchRecord["settings"]>;
  /** {@link OpenTargets.readGpus}: asked where Triton's metrics know no GPU. */
  readonly readGpus?: OpenTargets["readGpus"];
  /** Told, in a sentence, what a reader of the record must know of its cells. */
  readonly onNote?: (note: string) => void;
}

/** What the counters of the servers were at the boundary of a window. */
interface Reading {
  readonly atMs: number;
  readonly counters: ServerCounters;
}

/**
 * Measure one load on one path of a target. Of a load that was interrupted, what was measured until then.
 *
 * @throws {UserError} one line, where no request could be sent at all.
 */
export async function measureLoadPoint(
  context: BenchContext,
  target: BenchTarget,
  endpoint: BenchEndpoint,
  options: LoadPointOptions,
): Promise<LoadPoint> {
  const { batch, load, study, conditions = {}, url = target.url } = options;
  const settings = { ...context.settings, ...options.settings };
  const id = loadPointId(endpoint, options);
  const requests = await prepareRequests({ ...target, url }, endpoint, context.images, batch);
  const http = openHttpClient();
  const gpus = startGpuSampler(http, target.metrics, options.readGpus);
  const startedMs = performance.now();
  try {
    const readCounters = async (): Promise<Reading> => {
      const atMs = performance.now();
      try {
        return {
          atMs,
          counters: await readServerCounters(http, target.metrics, context.signal),
        };
      } catch (error) {
        if (!context.signal.aborted) options.onNote?.(countersNote(target, error));
        throw error;
      }
    };
    const { counters, ...measured } = await measureLoad(requests, {
      load,
      windowSeconds: settings.windowSeconds,
      stableWindows: settings.stableWindows,
      tolerance: settings.tolerance,
      maxWindows: settings.maxWindows,
      durationSeconds: settings.durationSeconds,
      workers: context.workers,
      signal: context.signal,
      readCounters: target.metrics.length === 0 ? undefined : readCounters,
      onWindow: (window, index) => context.onEvent({ kind: "window", cell: id, window, index }),
    });
    const before = counters?.before as Reading | undefined;
    const after = counters?.after as Reading | undefined;
    return {
      id,
      study,
      environment: target.environment,
      service: target.service,
      ...endpoint,
      imagesPerRequest: batch,
      load,
      conditions,
      ...measured,
      server:
        before === undefined || after === undefined
          ? undefined
          : serverTimes(before.counters, after.counters, target, endpoint.payload),
      gpu: await gpus.stop(before?.atMs ?? startedMs, after?.atMs ?? performance.now()),
    };
  } finally {
    await gpus.stop(0, 0);
    await http.close();
  }
}

function countersNote({ service }: BenchTarget, error: unknown): string {
  return `${service}: its metrics could not be read, so the time in the server is missing: ${reason(error)}.`;
}

/** Keeps each note once, and tells it at once. */
export function noteOnce(record: BenchRecord, context: BenchContext): (note: string) => void {
  return (note) => {
    if (record.notes.includes(note)) return;
    record.notes.push(note);
    context.onEvent({ kind: "notice", text: note });
  };
}

/** Read the counters of the servers once: whoever waits for minutes should know before that they cannot be read. */
export async function tryCounters(
  { signal }: BenchContext,
  measured: readonly MeasuredEndpoint[],
  onNote: (note: string) => void,
): Promise<void> {
  const http = openHttpClient();
  try {
    for (const target of new Set(measured.map((it) => it.target))) {
      try {
        await readServerCounters(http, target.metrics, signal);
      } catch (error) {
        signal.throwIfAborted();
        onNote(countersNote(target, error));
      }
    }
  } finally {
    await http.close();
  }
}

/** `onnx-http b8 c4`, `embed-http b1 50/s poisson`, `onnx-grpc b1 c4, 10 Mbit/s, 60 ms`. */
function loadPointId(
  endpoint: BenchEndpoint,
  { batch, load, conditions = {} }: LoadPointOptions,
): string {
  const shape =
    load.kind === "closed loop"
      ? `c${load.concurrency}`
      : `${load.ratePerSecond}/s ${load.arrivals}`;
  const { queueDelayUs, bandwidthMbps, roundTripMs, gpus, topology } = conditions;
  const under = [
    queueDelayUs === undefined ? undefined : `queue ${queueDelayUs} us`,
    bandwidthMbps === undefined ? undefined : `${bandwidthMbps} Mbit/s`,
    roundTripMs === undefined ? undefined : `${roundTripMs} ms`,
    gpus === undefined ? undefined : `${gpus} GPU`,
    topology,
  ].filter((part) => part !== undefined);
  return [`${benchEndpointName(endpoint)} b${batch} ${shape}`, ...under].join(", ");
}

/** What a record says before anything was measured; the rest is pushed into it. */
export async function newBenchRecord(options: {
  /** Folder of the project: for the commit. */
  readonly project: string;
  readonly startedAt: Date;
  readonly target: OpenTargets["target"];
  readonly model: BenchRecord["subject"]["model"];
  readonly settings: BenchRecord["settings"];
}): Promise<BenchRecord> {
  const { project, startedAt, target, model, settings } = options;
  return {
    schema: benchRecordVersion,
    kind: "bench",
    startedAt: startedAt.toISOString(),
    finishedAt: startedAt.toISOString(),
    interrupted: false,
    subject: {
      ...(await describeCommit(project)),
      target,
      servers: [],
      model,
      machine: describeMachine(),
      environments: [],
    },
    settings,
    parity: [],
    loadPoints: [],
    studies: [],
    imported: [],
    notes: [],
    passed: true,
    failures: [],
  };
}

/**
 * Take what open targets say of themselves into a record. Of environments with different GPUs or prices neither is kept:
 * a figure of one would be read as one of the other.
 */
export function addSubject(record: BenchRecord, open: OpenTargets): void {
  const { subject } = record;
  const { environments, servers, gpu, price } = open.subject;
  const isFirst = subject.servers.length === 0;
  subject.environments.push(...environments);
  for (const server of servers) {
    if (!subject.servers.some((it) => sameJson(it, server))) subject.servers.push(server);
  }
  record.notes.push(...open.notes);
  if (isFirst) {
    subject.gpu = gpu;
    subject.price = price;
  } else if (!sameJson([subject.gpu, subject.price], [gpu, price])) {
    subject.gpu = undefined;
    subject.price = undefined;
    const note =
      "The environments differ in GPUs or price, so the record has neither: measure one at a time to see costs.";
    if (!record.notes.includes(note)) record.notes.push(note);
  }
}

function sameJson(a: unknown, b: unknown): boolean {
  return JSON.stringify(a) === JSON.stringify(b);
}

/**
 * End a record: what failed, and ids that are unique.
 *
 * @param devices - What computed, by environment, where its peak is known.
 */
export function finishBenchRecord(
  record: BenchRecord,
  devices: ReadonlyMap<string, Device> = new Map(),
): BenchRecord {
  record.loadPoints = withUniqueIds(record.loadPoints);
  record.settings.endpoints = [
    ...new Set(
      [...record.parity, ...record.loadPoints].map((endpoint) => benchEndpointName(endpoint)),
    ),
  ];
  record.finishedAt = new Date().toISOString();
  record.failures.push(
    ...record.parity.filter(({ passed }) => !passed).map(parityFailure),
    ...record.loadPoints.flatMap(({ id, errorsWithWarmup }) => {
      const codes = Object.entries(errorsWithWarmup).map(([code, count]) => `${count} × ${code}`);
      return codes.length === 0 ? [] : [`${id}: requests failed: ${codes.join(", ")}`];
    }),
    ...aboveCeiling(record.loadPoints, devices),
  );
  const checked = benchRecord.safeParse(record);
  for (const { path, message } of checked.error?.issues ?? []) {
    record.failures.push(`the record cannot be read again: ${path.join(".")}: ${message}`);
  }
  record.passed = record.failures.length === 0;
  return record;
}

/** Cells that share an id are told apart by what differs: environment, service, study, number. */
function withUniqueIds(loadPoints: readonly LoadPoint[]): LoadPoint[] {
  const parts: readonly ((point: LoadPoint, index: number) => string | undefined)[] = [
    ({ environment }) => environment,
    ({ service }) => service,
    ({ study }) => study,
    (_cell, index) => `#${index + 1}`,
  ];
  let named = loadPoints.map((point) => ({ ...point }));
  for (const part of parts) {
    const seen = new Map<string, Set<string | undefined>>();
    named.forEach((point, index) => {
      const values = seen.get(point.id) ?? new Set();
      seen.set(point.id, values.add(part(point, index)));
    });
    named = named.map((point, index) => {
      const own = part(point, index);
      const differs = (seen.get(point.id)?.size ?? 0) > 1;
      return differs && own !== undefined ? { ...point, id: `${point.id}, ${own}` } : point;
    });
  }
  return named;
}

/** A path as it was asked for. */
export interface RequestedEndpoint extends BenchEndpoint {
  /** By its own name: then it must be there. */
  readonly byName: boolean;
}

/** Whether a path is on a target, and that target is the one that it is measured on. */
export interface MeasuredEndpoint {
  readonly target: BenchTarget;
  readonly endpoint: BenchEndpoint;
}

/**
 * The paths to measure, of those that were asked for: each on the first service that offers it.
 *
 * @throws {UserError} for one that was asked for by its name and is not there, and where none is.
 */
export function chooseEndpoints(
  asked: readonly RequestedEndpoint[],
  { targets }: Pick<OpenTargets, "targets">,
  onNotice: (text: string) => void,
): readonly MeasuredEndpoint[] {
  const missing: string[] = [];
  const chosen = asked.flatMap(({ byName, ...endpoint }): MeasuredEndpoint[] => {
    const name = benchEndpointName(endpoint);
    const offering = targets.filter((target) =>
      benchEndpointsOf(target).some((it) => benchEndpointName(it) === name),
    );
    const [target, ...others] = offering;
    if (target === undefined) {
      if (byName) missing.push(name);
      return [];
    }
    if (others.length > 0) {
      onNotice(
        `${name}: measured on ${target.service}; ${others.map(({ service }) => service).join(", ")} offer it too`,
      );
    }
    return [{ target, endpoint }];
  });
  if (missing.length > 0 || chosen.length === 0) {
    const names = targets.flatMap((target) => benchEndpointsOf(target).map(benchEndpointName));
    const there = [...new Set(names)].join(", ") || "no path";
    const wanted = missing.length > 0 ? missing : asked.map(benchEndpointName);
    throw new UserError(
      `${targets[0]?.environment ?? "nothing"} does not offer ${wanted.join(", ")}: it has ${there}`,
    );
  }
  return chosen;
}

/**
 * Compare the answers of paths with the local reference, and take the results into a record.
 *
 * @returns The paths that passed: only they may be timed.
 */
export async function gateParity(
  context: BenchContext,
  record: BenchRecord,
  endpoints: readonly MeasuredEndpoint[],
  reference: readonly ReferenceImage[],
): Promise<readonly MeasuredEndpoint[]> {
  const passed: MeasuredEndpoint[] = [];
  for (const measured of endpoints) {
    context.signal.throwIfAborted();
    const { target, endpoint } = measured;
    const { environment } = target;
    context.onEvent({ kind: "phase", environment, text: `parity: ${benchEndpointName(endpoint)}` });
    const result = await checkBenchParity(target, endpoint, reference, {
      halfPrecision: roundsToHalf(record.subject.target, target.endpoint),
      signal: context.signal,
    });
    record.parity.push(result);
    context.onEvent({ kind: "parity", result });
    if (result.passed) passed.push(measured);
  }
  return passed;
}

export interface BenchOptions {
  readonly context: BenchContext;
  /** Is filled while the run goes on, so that what was measured until an interrupt is in it. */
  readonly record: BenchRecord;
  readonly sources: readonly TargetsSource[];
  readonly endpoints: readonly RequestedEndpoint[];
  readonly batchSizes: readonly number[];
  readonly loads: readonly LoadShape[];
  /** Images with their embeddings by the local model. */
  readonly reference: readonly ReferenceImage[];
}

/**
 * Measure every load with every batch size on every path, of one source after the other. What fails does not end the run:
 * it is in the record.
 *
 * @throws {UserError} where the only source cannot be measured; the signal's reason when it was interrupted.
 */
export async function runBench(options: BenchOptions): Promise<void> {
  const { context, record, sources } = options;
  const { signal } = context;
  for (const source of sources) {
    const onPhase = (text: string) => context.onEvent({ kind: "phase", text });
    try {
      await withTargets(source, { signal, onPhase }, async (open) => {
        try {
          await measureGrid(options, open);
        } finally {
          addSubject(record, open);
        }
      });
    } catch (error) {
      signal.throwIfAborted();
      // the next one may be measured all the same
      if (sources.length === 1 || !(error instanceof UserError)) throw error;
      record.failures.push(error.message);
    }
  }
}

async function measureGrid(
  { context, record, endpoints, batchSizes, loads, reference }: BenchOptions,
  open: OpenTargets,
): Promise<void> {
  const onNotice = (text: string) => context.onEvent({ kind: "notice", text });
  const chosen = chooseEndpoints(endpoints, open, onNotice);
  const onNote = noteOnce(record, context);
  await tryCounters(context, chosen, onNote);
  for (const { target, endpoint } of await gateParity(context, record, chosen, reference)) {
    for (const batch of batchSizes) {
      for (const load of loads) {
        context.signal.throwIfAborted();
        const options = { batch, load, readGpus: open.readGpus, onNote };
        const id = loadPointId(endpoint, options);
        context.onEvent({ kind: "phase", environment: target.environment, text: id });
        try {
          const point = await measureLoadPoint(context, target, endpoint, options);
          record.loadPoints.push(point);
          context.onEvent({ kind: "point", point });
        } catch (error) {
          context.signal.throwIfAborted();
          record.failures.push(`${id}: ${reason(error)}`);
        }
        context.signal.throwIfAborted();
      }
    }
  }
}

/** Settings of a run where nothing else is asked for: short enough to try on a laptop. */
export const defaultSettings = {
  windowSeconds: 2,
  stableWindows: 3,
  tolerance: 0.1,
  maxWindows: 10,
  durationSeconds: 12,
  seed: 1,
  p99MinimumSamples,
} as const;
