import { hasEmbedApi } from "../../contract/environment.ts";
import { UserError } from "../../contract/user-error.ts";
import type { BenchRecord, LoadShape } from "../record/bench-record.ts";
import { p99MinimumSamples } from "../stats/statistics.ts";
import type { BenchContext } from "./bench-events.ts";
import type { BenchTarget, OpenTargets } from "./bench-target.ts";
import { type TargetsSource, withTargets } from "./bench-targets.ts";
import { chooseEndpoints, gateParity, type RequestedEndpoint } from "./choose-endpoints.ts";
import { addSubject } from "./compose-record.ts";
import { reason } from "./http-client.ts";
import { loadPointId, measureLoadPoint, noteOnce, tryCounters } from "./measure-load-point.ts";
import type { ReferenceItem } from "./reference.ts";

export interface BenchOptions {
  readonly context: BenchContext;
  /** Receives results as they are measured, so that it is complete after an interrupt. */
  readonly record: BenchRecord;
  readonly sources: readonly TargetsSource[];
  readonly endpoints: readonly RequestedEndpoint[];
  readonly batchSizes: readonly number[];
  readonly loads: readonly LoadShape[];
  /** Images or texts with their embeddings by the local model. */
  readonly reference: readonly ReferenceItem[];
}

/**
 * Measures every combination of endpoint, batch size and load, one source after another. Failures are recorded and do not
 * end the run.
 *
 * @throws {UserError} if the only source cannot be opened.
 * @throws the signal's reason after an interrupt.
 */
export async function runBench(options: BenchOptions): Promise<void> {
  const { context, record, sources } = options;
  const { signal } = context;
  for (const source of sources) {
    const onPhase = (text: string) => context.onEvent({ kind: "phase", text });
    try {
      await withTargets(source, { tower: context.tower, signal, onPhase }, async (open) => {
        try {
          await measureGrid(options, open);
        } finally {
          addSubject(record, open);
        }
      });
    } catch (error) {
      signal.throwIfAborted();
      // the next source may still be measurable
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
    for (const batch of acceptedBatches(target, batchSizes, onNotice)) {
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

/** Batch sizes that a target accepts: a Triton accepts at most the maximum of the model, the embed API splits larger ones. */
function acceptedBatches(
  { endpoint, spec }: BenchTarget,
  sizes: readonly number[],
  onNotice: (text: string) => void,
): readonly number[] {
  const { maximum } = spec.batching;
  const accepted = hasEmbedApi(endpoint) ? sizes : sizes.filter((size) => size <= maximum);
  if (accepted.length < sizes.length) {
    onNotice(
      `${endpoint}: batch sizes above ${maximum}, the maximum of ${spec.name}, are left out`,
    );
  }
  return accepted;
}

/** Default settings, short enough to try on a laptop. */
export const defaultSettings = {
  windowSeconds: 2,
  stableWindows: 3,
  tolerance: 0.1,
  maxWindows: 10,
  durationSeconds: 12,
  seed: 1,
  p99MinimumSamples,
} as const;
