import { benchEndpointName } from "../../contract/bench-endpoint.ts";
import { maxImagesPerRequest } from "../../contract/embed-api.ts";
import { sendsImageFiles } from "../../contract/environment.ts";
import type { LoadShape } from "../../contract/load-shape.ts";
import { UserError } from "../../contract/user-error.ts";
import type { OpenTarget } from "../../target/open/open-target.ts";
import type { ReferenceItem } from "../../target/reference/reference.ts";
import type { TargetEndpoint } from "../../target/requests/target-endpoint.ts";
import { p99MinimumSamples } from "../../target/stats/statistics.ts";
import { openTarget, type TargetSource } from "../../target/target.ts";
import type { BenchContext, LoadPointOptions } from "../measure/bench-events.ts";
import {
  chooseEndpoints,
  gateParity,
  type MeasuredEndpoint,
  type RequestedEndpoint,
} from "../measure/choose-endpoints.ts";
import {
  loadPointId,
  noteOnce,
  recordLoadPoint,
  tryCounters,
} from "../measure/measure-load-point.ts";
import { shuffled } from "../measure/shuffled.ts";
import type { BenchRecord, LoadPoint } from "../record/bench-record.ts";
import { type SloSubject, searchSlos } from "../slo/run-slo.ts";
import type { SloGoal } from "../slo/search-slo.ts";
import { addSeconds, addSubject } from "./compose-record.ts";

export interface BenchOptions {
  readonly context: BenchContext;
  /** Receives results as they are measured, so that it is complete after an interrupt. */
  readonly record: BenchRecord;
  readonly sources: readonly TargetSource[];
  readonly endpoints: readonly RequestedEndpoint[];
  readonly batchSizes: readonly number[];
  readonly loads: readonly LoadShape[];
  /** SLO to search the highest rate for, after the loads, which must contain a closed loop. */
  readonly slo?: SloGoal;
  /** Images or texts with their embeddings by the local model. */
  readonly reference: readonly ReferenceItem[];
}

/** Results of a target source that later rounds reuse. */
export interface TargetState {
  /** Endpoints that passed the parity check of the first round; absent before it. */
  endpointsWithParity?: ReadonlySet<string>;
  /** Load points that could not be measured. */
  readonly failedLoadPoints: Set<string>;
  /** Whether later rounds skip the source: no endpoint passed, or it could not be opened again. */
  isDone: boolean;
}

/** Load point that is still to be measured: endpoint and load options. */
interface PlannedLoadPoint extends MeasuredEndpoint {
  readonly options: LoadPointOptions;
}

/**
 * Measures every combination of endpoint, batch size and load in each round, in an order that is shuffled for each round. Sources are
 * opened again in each round, so processes of a local simulation are restarted, and all connections are new. Failures are recorded
 * and do not end the run.
 *
 * @throws the signal's reason after an interrupt.
 */
export async function runBench(options: BenchOptions): Promise<void> {
  const { context, record, sources } = options;
  const { signal, settings } = context;
  const states = new Map(
    sources.map((source): [TargetSource, TargetState] => [
      source,
      { failedLoadPoints: new Set(), isDone: false },
    ]),
  );
  const grid: string[] = [];
  try {
    for (let round = 1; round <= settings.rounds; round++) {
      // the first round keeps the order of the command line in the record
      const order = round === 1 ? sources : shuffled(sources, settings.seed + round);
      for (const source of order) {
        const state = states.get(source);
        if (state === undefined || state.isDone) continue;
        try {
          await measureRound(options, source, round, state, grid);
        } catch (error) {
          signal.throwIfAborted();
          // the next source may still be measurable
          const isFatal = round === 1 && sources.length === 1;
          if (isFatal || !(error instanceof UserError)) throw error;
          record.failures.push(round === 1 ? error.message : `round ${round}: ${error.message}`);
          state.isDone = true;
        }
      }
    }
  } finally {
    // confirmations of an SLO search are not in the grid
    const rank = (point: LoadPoint) => grid.indexOf(gridKey(point)) >>> 0;
    record.loadPoints.sort((a, b) => rank(a) - rank(b));
  }
}

/**
 * Opens a source and measures its load points once. The SLO is searched in the last round of the settings and in later ones.
 *
 * @param round - Number of the round, from 1; the first one of a state checks parity.
 * @param grid - Receives the keys of the load points in the first one, in the order of the command line.
 */
export async function measureRound(
  options: BenchOptions,
  source: TargetSource,
  round: number,
  state: TargetState,
  grid: string[] = [],
): Promise<void> {
  const { context, record } = options;
  const { tower, signal, settings } = context;
  const isFirst = state.endpointsWithParity === undefined;
  const prefix = settings.rounds === 1 ? "" : `round ${round} of ${settings.rounds}: `;
  const onPhase = (text: string) => context.onEvent({ kind: "phase", text: `${prefix}${text}` });
  const open = await openTarget(source, { tower, signal, onPhase });
  try {
    const plan = await loadPointPlan(options, open, state);
    if (isFirst) grid.push(...plan.map(planKey));
    state.isDone = plan.length === 0;
    const order = shuffled(plan, settings.seed + round);
    for (const [index, loadPoint] of order.entries()) {
      await measurePlanned(options, loadPoint, { round, position: index + 1 }, state);
    }
    if (options.slo !== undefined && round >= settings.rounds) {
      await searchSlos(context, record, options.slo, sloSubjects(plan), open);
    }
  } finally {
    if (isFirst) addSubject(record, open);
    else addSeconds(record, open);
    await open.close();
  }
}

/** Returns the load points of a source. Its first round checks the parity of the endpoints. */
async function loadPointPlan(
  { context, record, endpoints, batchSizes, loads, reference }: BenchOptions,
  open: OpenTarget,
  state: TargetState,
): Promise<readonly PlannedLoadPoint[]> {
  const isFirst = state.endpointsWithParity === undefined;
  const onNotice = (text: string) => {
    if (isFirst) context.onEvent({ kind: "notice", text });
  };
  const chosen = chooseEndpoints(endpoints, open, onNotice);
  const onNote = noteOnce(record, context);
  if (isFirst) {
    await tryCounters(context, chosen, onNote);
    const accepted = await gateParity(context, record, chosen, reference);
    state.endpointsWithParity = new Set(accepted.map(endpointKey));
  }
  return chosen
    .filter((measured) => state.endpointsWithParity?.has(endpointKey(measured)))
    .flatMap((measured) =>
      acceptedBatches(measured.target, batchSizes, onNotice).flatMap((batch) =>
        loads.map((load): PlannedLoadPoint => {
          const options = { batch, load, readGpus: open.readGpus, onNote };
          return { ...measured, options };
        }),
      ),
    );
}

async function measurePlanned(
  { context, record }: BenchOptions,
  loadPoint: PlannedLoadPoint,
  position: Pick<LoadPointOptions, "round" | "position">,
  { failedLoadPoints }: TargetState,
): Promise<void> {
  const key = planKey(loadPoint);
  if (failedLoadPoints.has(key)) return;
  context.signal.throwIfAborted();
  const id = loadPointId(loadPoint.endpoint, loadPoint.options);
  context.onEvent({ kind: "phase", environment: loadPoint.target.environment, text: id });
  const options = { ...loadPoint.options, ...position };
  const failure = await recordLoadPoint(context, record, loadPoint, options);
  if (failure === undefined) return;
  record.failures.push(`${id}: ${failure}`);
  failedLoadPoints.add(key);
}

/** Endpoints and batch sizes of the load points, each combination once. */
function sloSubjects(loadPoints: readonly PlannedLoadPoint[]): readonly SloSubject[] {
  const subjects = loadPoints.map(({ target, endpoint, options: { batch } }) => ({
    target,
    endpoint,
    batch,
  }));
  return [
    ...new Map(
      subjects.map((subject) => [`${endpointKey(subject)} ${subject.batch}`, subject]),
    ).values(),
  ];
}

function endpointKey({ target, endpoint }: MeasuredEndpoint): string {
  return JSON.stringify([target.environment, target.service, benchEndpointName(endpoint)]);
}

const planKey = ({ target, endpoint, options }: PlannedLoadPoint) =>
  gridKey({ ...target, id: loadPointId(endpoint, options) });

function gridKey({
  environment,
  service,
  id,
}: Pick<LoadPoint, "environment" | "service" | "id">): string {
  return JSON.stringify([environment, service, id]);
}

/** Batch sizes that a target accepts: Triton at most the maximum of the model, the embed API that of a request, which it splits. */
function acceptedBatches(
  { endpoint, spec }: TargetEndpoint,
  sizes: readonly number[],
  onNotice: (text: string) => void,
): readonly number[] {
  const isEmbed = sendsImageFiles(endpoint);
  const maximum = isEmbed ? maxImagesPerRequest : spec.batching.maximum;
  const accepted = sizes.filter((size) => size <= maximum);
  if (accepted.length < sizes.length) {
    const owner = isEmbed ? "a request" : spec.name;
    onNotice(`${endpoint}: batch sizes above ${maximum}, the maximum of ${owner}, are left out`);
  }
  return accepted;
}

/** Default settings, short enough to try on a laptop. */
export const defaultSettings = {
  rounds: 5,
  windowSeconds: 0.5,
  windows: 4,
  warmupSeconds: 0.5,
  durationSeconds: 12,
  seed: 1,
  p99MinimumSamples,
} as const;
