import { benchEndpointName } from "../../contract/bench-endpoint.ts";
import { UserError } from "../../contract/user-error.ts";
import type { OpenTarget } from "../../target/open/open-target.ts";
import type { ReferenceItem } from "../../target/reference/reference.ts";
import { openTarget, type TargetSource } from "../../target/target.ts";
import type { BenchContext } from "../measure/bench-events.ts";
import type { MeasuredEndpoint } from "../measure/choose-endpoints.ts";
import {
  chooseEndpoints,
  gateParity,
  type RequestedEndpoint,
} from "../measure/choose-endpoints.ts";
import { noteOnce, recordLoadPoint, tryCounters } from "../measure/measure-load-point.ts";
import type { BenchRecord } from "../record/bench-record.ts";
import type { StudyId } from "../record/study-result.ts";
import { addSubject } from "../run/compose-record.ts";
import { readIdleMemory } from "./memory-study.ts";
import type { LoadStudy, Study, StudyEnvironment, StudyGrid, StudyRun } from "./study.ts";
import { endpointsOf } from "./study-endpoints.ts";

export interface RunStudiesOptions {
  readonly studies: readonly StudyId[];
  /** Whether the studies were requested by name: an unavailable one is then a failure, otherwise a note. */
  readonly named: boolean;
  readonly environments: readonly StudyEnvironment[];
  /** Endpoints to measure; empty: the defaults of each study. */
  readonly endpoints: readonly RequestedEndpoint[];
  readonly context: BenchContext;
  readonly grid: StudyGrid;
  /** Images with their embeddings by the local model. */
  readonly reference: readonly ReferenceItem[];
  /** Receives load points, results, notes and failures as they are produced. */
  readonly record: BenchRecord;
}

/**
 * Opens a source, and calls `use` with a function that creates the run of a study on it.
 *
 * @param group - Studies that will run.
 * @param round - Number of the round, from 1; the parity of endpoints is checked in the first.
 */
export async function openStudies(
  { readMemory, deployment }: StudyEnvironment,
  group: readonly Study[],
  source: TargetSource,
  options: RunStudiesOptions,
  round: number,
  use: (runOf: (study: Study) => Promise<StudyRun>) => Promise<void>,
): Promise<void> {
  const { context, record } = options;
  const onPhase = (text: string) => context.onEvent({ kind: "phase", text });
  const { tower, signal } = context;
  const open = await openTarget(source, { tower, signal, onPhase });
  const passed = round === 1 ? new Map<string, boolean>() : passedBefore(record);
  try {
    // before the parity check, because the first request makes buffers grow
    const idleMemory = group.some(readsIdleMemory)
      ? await readIdleMemory(open, readMemory)
      : undefined;
    await use(async (study) => ({
      ...createRun(open, await endpointsWithParity(study, open, options, passed), options, round),
      readMemory,
      idleMemory,
      deployment,
    }));
  } finally {
    addSubjectOnce(record, open);
    await open.close();
  }
}

function readsIdleMemory(study: Study): boolean {
  return (study as LoadStudy).readsIdleMemory === true;
}

/** Parity results of the first round. */
function passedBefore({ parity }: BenchRecord): Map<string, boolean> {
  return new Map(
    parity.map((result) => [`${result.service} ${benchEndpointName(result)}`, result.passed]),
  );
}

/**
 * Endpoints of a study whose embeddings match the local reference.
 *
 * @param passed - Results by endpoint, because each is checked once for all studies.
 */
async function endpointsWithParity(
  study: Study,
  open: OpenTarget,
  { context, record, endpoints, reference }: RunStudiesOptions,
  passed: Map<string, boolean>,
): Promise<readonly MeasuredEndpoint[]> {
  const chosen = chooseEndpoints(endpointsOf(study, endpoints), open, () => {});
  await tryCounters(context, chosen, noteOnce(record, context));
  const verified: MeasuredEndpoint[] = [];
  for (const measured of chosen) {
    const key = `${measured.target.service} ${benchEndpointName(measured.endpoint)}`;
    const isPassed =
      passed.get(key) ?? (await gateParity(context, record, [measured], reference)).length > 0;
    passed.set(key, isPassed);
    if (isPassed) verified.push(measured);
  }
  if (verified.length === 0) {
    throw new UserError("no endpoint passed the parity check");
  }
  return verified;
}

function createRun(
  open: OpenTarget,
  endpoints: readonly MeasuredEndpoint[],
  { context, grid, record }: RunStudiesOptions,
  round: number,
): StudyRun {
  const [first] = open.targets;
  const environment = first?.environment ?? "";
  const onNote = noteOnce(record, context);
  return {
    environment,
    open,
    context,
    grid,
    round,
    endpoints,
    model: record.subject.model,
    async measure(study, measured, options) {
      context.signal.throwIfAborted();
      const name = benchEndpointName(measured.endpoint);
      context.onEvent({ kind: "phase", environment, text: `${study}: ${name}` });
      const pointOptions = { readGpus: open.readGpus, onNote, round, ...options, study };
      const failure = await recordLoadPoint(context, record, measured, pointOptions);
      if (failure === undefined) return;
      record.failures.push(
        `${study} of ${environment}: ${name}, batch ${options.batch}: ${failure}`,
      );
    },
    fail(line) {
      record.failures.push(line);
      context.onEvent({ kind: "notice", text: `✘ ${line}` });
    },
    addResult(result) {
      if (round === 1) record.studies.push(result);
      return result;
    },
    addLoadPoints(loadPoints) {
      record.loadPoints.push(...loadPoints);
    },
  };
}

/** Adds the opened environments to the record; of one that is in the record already, only the new notes. */
function addSubjectOnce(record: BenchRecord, open: OpenTarget): void {
  const known = record.subject.environments;
  const environments = open.subject.environments.filter((opened) => {
    const same = known.find(({ name }) => name === opened.name);
    same?.notes.push(...opened.notes.filter((note) => !same.notes.includes(note)));
    return same === undefined;
  });
  const notes = open.notes.filter((note) => !record.notes.includes(note));
  addSubject(record, { ...open, subject: { ...open.subject, environments }, notes });
}
