import { type BenchEndpoint, benchEndpointName } from "../../contract/bench-endpoint.ts";
import { withChannelsOf } from "../../target/load/channels.ts";
import { measureLoad } from "../../target/load/measure-load.ts";
import type { Round } from "../../target/load/round.ts";
import { startGpuSampler } from "../../target/readings/gpu-use.ts";
import {
  readServerCounters,
  type ServerCounters,
  serverTimes,
} from "../../target/readings/server-times.ts";
import { openHttpClient, reason } from "../../target/requests/http-client.ts";
import { prepareRequests } from "../../target/requests/prepare.ts";
import type { TargetEndpoint } from "../../target/requests/target-endpoint.ts";
import type { BenchRecord, LoadPoint } from "../record/bench-record.ts";
import { stabilityOf } from "../stats/drift.ts";
import type { BenchContext, LoadPointOptions } from "./bench-events.ts";
import type { MeasuredEndpoint } from "./choose-endpoints.ts";
import { addRound } from "./merge-rounds.ts";

/** Server counters at the boundary of a window. */
interface Reading {
  readonly atMs: number;
  readonly counters: ServerCounters;
}

/** Measures one round of a load point, with new connections. After an interrupt, the result contains the windows measured so far. */
export async function measureLoadPoint(
  context: BenchContext,
  target: TargetEndpoint,
  endpoint: BenchEndpoint,
  options: LoadPointOptions,
): Promise<LoadPoint> {
  const { batch, study, conditions = {}, round = 1 } = options;
  const id = loadPointId(endpoint, options);
  const requests = await prepareRequests(target, endpoint, context.items, batch);
  const load = withChannelsOf(requests.transport, options.load);
  const http = openHttpClient();
  const gpus = startGpuSampler(http, target.metrics, options.readGpus);
  const startedMs = performance.now();
  try {
    const readCounters = async (): Promise<Reading> => {
      const atMs = performance.now();
      try {
        return { atMs, counters: await readServerCounters(http, target.metrics, context.signal) };
      } catch (error) {
        if (!context.signal.aborted) options.onNote?.(countersNote(target, error));
        throw error;
      }
    };
    const { counters, ...found } = await measureLoad(requests, {
      ...context.settings,
      durationSeconds: options.durationSeconds ?? context.settings.durationSeconds,
      // other arrival times in each round
      load: load.kind === "open loop" ? { ...load, seed: load.seed + round - 1 } : load,
      workers: context.workers,
      signal: context.signal,
      readCounters: target.metrics.length === 0 ? undefined : readCounters,
      onWindow: (window, index) => context.onEvent({ kind: "window", pointId: id, window, index }),
    });
    const { startedAt, warmup, windows, outcome, ...figures } = found;
    const { requestBytes, responseBytes, histogram, errorsWithWarmup, ...ofRound } = figures;
    const measured: Round = {
      ...{ round, position: options.position, startedAt },
      ...{ warmup, windows, outcome, ...ofRound },
    };
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
      ...figures,
      rounds: [measured],
      stability: stabilityOf([measured]),
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

function countersNote({ service }: TargetEndpoint, error: unknown): string {
  return `${service}: metrics are unavailable, so the time in the server is missing: ${reason(error)}.`;
}

/** Returns a function that records each note once and reports it. */
export function noteOnce(record: BenchRecord, context: BenchContext): (note: string) => void {
  return (note) => {
    if (record.notes.includes(note)) return;
    record.notes.push(note);
    context.onEvent({ kind: "notice", text: note });
  };
}

/** Reads the server counters once, so that unavailable metrics are reported before the measurements. */
export async function tryCounters(
  { signal }: BenchContext,
  measured: readonly MeasuredEndpoint[],
  onNote: (note: string) => void,
): Promise<void> {
  const http = openHttpClient();
  try {
    for (const target of new Set(measured.map(({ target }) => target))) {
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

/**
 * Measures a load point once and adds it to a record.
 *
 * @returns Why it could not be measured, in one line.
 * @throws the reason of the context's signal, after an interrupt
 */
export async function recordLoadPoint(
  context: BenchContext,
  record: BenchRecord,
  { target, endpoint }: MeasuredEndpoint,
  options: LoadPointOptions,
): Promise<string | undefined> {
  context.signal.throwIfAborted();
  try {
    const measured = await measureLoadPoint(context, target, endpoint, options);
    const point = addRound(record.loadPoints, measured);
    const isLast = (options.round ?? 1) >= context.settings.rounds;
    context.onEvent({ kind: isLast ? "point" : "round", point });
  } catch (error) {
    context.signal.throwIfAborted();
    return reason(error);
  }
  context.signal.throwIfAborted();
  return undefined;
}

/** Id of a load point: `onnx-http b8 c4`, `embed-http b1 50/s poisson`, `onnx-grpc b1 c4 shared, queue 500 us`. */
export function loadPointId(
  endpoint: BenchEndpoint,
  { batch, conditions = {}, ...options }: LoadPointOptions,
): string {
  const transport = endpoint.endpoint.endsWith("-grpc") ? "grpc" : "http";
  const load = withChannelsOf(transport, options.load);
  const shape =
    load.kind === "closed loop"
      ? `c${load.concurrency}`
      : `${load.ratePerSecond}/s ${load.arrivals}`;
  const { channels } = load;
  const channelsPart =
    channels === undefined ? "" : ` ${typeof channels === "number" ? "x" : ""}${channels}`;
  const { queueDelayUs, gpus, topology } = conditions;
  const suffixes = [
    queueDelayUs === undefined ? undefined : `queue ${queueDelayUs} us`,
    gpus === undefined ? undefined : `${gpus} GPU`,
    topology,
  ].filter((part) => part !== undefined);
  return [`${benchEndpointName(endpoint)} b${batch} ${shape}${channelsPart}`, ...suffixes].join(
    ", ",
  );
}
