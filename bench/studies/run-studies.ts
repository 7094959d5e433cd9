import type { EndpointName } from "../../contract/environment.ts";
import { UserError } from "../../contract/user-error.ts";
import {
  type BenchPath,
  type BenchRecord,
  benchPathName,
  type Conditions,
  type StudyId,
  studyIds,
} from "../record/bench-record.ts";
import type { EnvironmentSubject } from "../record/record.ts";
import {
  type AskedPath,
  addSubject,
  type BenchContext,
  choosePaths,
  gateParity,
  measureCell,
  noteOnce,
  tryCounters,
} from "../run/bench-run.ts";
import type { OpenTargets } from "../run/bench-target.ts";
import { type TargetsSource, withTargets } from "../run/bench-targets.ts";
import { reason } from "../run/http-client.ts";
import type { ReferenceImage } from "../run/reference.ts";
import type { ColdStart } from "./cold-start.ts";
import {
  studyBatch,
  studyConcurrency,
  studyLink,
  studyProtocol,
  studySerialization,
} from "./load-studies.ts";
import { readMemoryOfAll, studyMemory } from "./memory-study.ts";
import type { profileOperators } from "./operators.ts";
import { modelControlArgs, studyQueueDelay } from "./queue-delay-study.ts";
import { studyScaling, studyTopology } from "./scale-studies.ts";
import { type StudyGrid, type StudyPath, type StudyRun, StudyUnavailable } from "./study-run.ts";

/** One environment, and the ways to it that studies need. */
export interface StudyEnvironment {
  readonly name: string;
  /** Protocol paths of its services. */
  readonly offers: readonly EndpointName[];
  /** What the record says of it; absent where nothing is known but addresses. */
  readonly subject?: () => EnvironmentSubject;
  readonly source: (change: SourceChange) => TargetsSource;
  /**
   * Start its services again and again, each start told to `onStart`; gives notes.
   *
   * @throws {StudyUnavailable} where they cannot be started from here
   */
  readonly coldStarts: (onStart: (start: ColdStart) => void) => Promise<readonly string[]>;
  /** Memory of a service that does not run on this machine. */
  readonly readMemory?: StudyRun["readMemory"];
  /** Profiles of its models. */
  readonly profiles: readonly (() => ReturnType<typeof profileOperators>)[];
  /**
   * The environment with other GPUs, or in another topology; where that is another record, its cells are in this one.
   *
   * @throws {StudyUnavailable} where it has none
   */
  readonly variants: (
    study: "scaling" | "topology",
    change: SourceChange,
  ) => Promise<{
    readonly variants: readonly EnvironmentVariant[];
    readonly notes: readonly string[];
  }>;
}

export interface SourceChange {
  /** Protocol paths that are needed: other services need not run. */
  readonly paths: readonly EndpointName[];
  /** Whether an embedded Triton gets the models of the payload variants. */
  readonly variants: boolean;
  /**
   * Options that an embedded Triton gets besides.
   *
   * @default - none
   */
  readonly tritonArgs?: readonly string[];
}

export interface EnvironmentVariant {
  readonly conditions: Required<Pick<Conditions, "gpus" | "topology">>;
  readonly source: TargetsSource;
}

export interface RunStudiesOptions {
  readonly studies: readonly StudyId[];
  /** Whether the studies were named: one that cannot be made is a failure then, and else a note. */
  readonly named: boolean;
  readonly environments: readonly StudyEnvironment[];
  /** Paths to measure; none: those that say most in each study. */
  readonly paths: readonly AskedPath[];
  readonly context: BenchContext;
  readonly grid: StudyGrid;
  /** Images with their embeddings by the local model. */
  readonly reference: readonly ReferenceImage[];
  /** Cells, results, notes and failures are added to it as they are made. */
  readonly record: BenchRecord;
}

/** Studies that load an environment as it is: it is started once for all of them. */
const onTargets = {
  batch: studyBatch,
  concurrency: studyConcurrency,
  protocol: studyProtocol,
  serialization: studySerialization,
  link: studyLink,
} as const satisfies Partial<Record<StudyId, (run: StudyRun) => Promise<void>>>;

type LoadedStudy = keyof typeof onTargets | "memory";

function isOnTargets(id: StudyId): id is LoadedStudy {
  return id === "memory" || id in onTargets;
}

/**
 * Make studies of environments, one after the other. What fails does not end the run: it is in the record.
 *
 * @throws the signal's reason when it was interrupted; what was measured until then is in the record.
 */
export async function runStudies(options: RunStudiesOptions): Promise<void> {
  const { environments } = options.record.subject;
  for (const environment of options.environments) {
    const place = environments.length;
    const before = environment.subject?.();
    if (before !== undefined) environments.push(before);
    try {
      await studyEnvironment(environment, options);
    } finally {
      const after = environment.subject?.();
      const notes = environments[place]?.notes ?? [];
      if (after !== undefined) environments[place] = { ...after, notes };
    }
  }
}

async function studyEnvironment(
  environment: StudyEnvironment,
  options: RunStudiesOptions,
): Promise<void> {
  const { studies, record, context } = options;
  const wanted = (study: StudyId) => studies.includes(study);
  const attempt = (study: string, work: () => Promise<void>) =>
    attemptStudy(study, environment.name, options, work);
  const needed = (...of: readonly StudyId[]): SourceChange => {
    const paths = of.flatMap((study) => pathsFor(study, options.paths));
    return {
      paths: [...new Set(paths.map(({ path }) => path))],
      variants: paths.some(isVariant),
    };
  };
  const phase = (text: string) =>
    context.onEvent({ kind: "phase", environment: environment.name, text });

  if (wanted("operators")) {
    await attempt("operators", async () => {
      if (environment.profiles.length === 0) {
        throw new StudyUnavailable("there is no model file here to profile");
      }
      for (const profile of environment.profiles) {
        phase("profile the operators");
        record.studies.push(await profile());
      }
    });
  }
  if (wanted("cold-start")) {
    await attempt("cold-start", async () => {
      const starts: ColdStart[] = [];
      const notes: string[] = [];
      try {
        notes.push(...(await environment.coldStarts((start) => starts.push(start))));
      } finally {
        if (starts.length > 0) {
          record.studies.push({
            study: "cold-start",
            environment: environment.name,
            starts,
            notes,
          });
        }
      }
    });
  }
  const requireOffered = (study: StudyId): void => {
    const { paths } = needed(study);
    if (paths.some((path) => environment.offers.includes(path))) return;
    throw new StudyUnavailable(`it offers none of ${paths.join(", ")}`);
  };
  const loaded: LoadedStudy[] = [];
  for (const id of studyIds) {
    if (!(isOnTargets(id) && wanted(id))) continue;
    await attempt(id, async () => {
      requireOffered(id);
      loaded.push(id);
    });
  }
  // models that its containers do not have run only where they are measured
  for (const variants of [false, true]) {
    const group = loaded.filter((study) => needed(study).variants === variants);
    if (group.length === 0) continue;
    await attempt(group.join(", "), () =>
      openTargets(environment, environment.source(needed(...group)), options, async (run, open) => {
        // now: the first request lets buffers grow
        const rest = group.includes("memory")
          ? await readMemoryOfAll(open, environment.readMemory)
          : undefined;
        for (const study of group) {
          await attempt(study, async () => {
            if (study !== "memory") await onTargets[study](await run(study));
            else if (rest !== undefined) await studyMemory(await run(study), rest);
          });
        }
      }),
    );
  }
  if (wanted("queue-delay")) {
    await attempt("queue-delay", async () => {
      requireOffered("queue-delay");
      await openTargets(
        environment,
        environment.source({ ...needed("queue-delay"), tritonArgs: modelControlArgs }),
        options,
        async (run) => studyQueueDelay(await run("queue-delay")),
      );
    });
  }
  for (const study of ["scaling", "topology"] as const) {
    if (!wanted(study)) continue;
    await attempt(study, async () => {
      requireOffered(study);
      const { variants, notes } = await environment.variants(study, needed(study));
      record.studies.push({ study, environment: environment.name, notes: [...notes] });
      for (const { conditions, source } of variants) {
        await openTargets(environment, source, options, async (run) => {
          const make = study === "scaling" ? studyScaling : studyTopology;
          await make({ run: await run(study), conditions });
        });
      }
    });
  }
}

/** A study that fails leaves the others to be made. */
async function attemptStudy(
  study: string,
  environment: string,
  { record, context, named }: RunStudiesOptions,
  work: () => Promise<void>,
): Promise<void> {
  try {
    await work();
  } catch (error) {
    context.signal.throwIfAborted();
    if (!(error instanceof StudyUnavailable || error instanceof UserError)) throw error;
    const line = `${study} of ${environment}: ${error.message}`;
    if (named || error instanceof UserError) record.failures.push(line);
    else record.notes.push(`Left out: ${line}.`);
  }
}

/** Open a source; `use` gets what makes a study's run on it, with the paths that answer rightly. */
async function openTargets(
  { readMemory }: StudyEnvironment,
  source: TargetsSource,
  options: RunStudiesOptions,
  use: (run: (study: StudyId) => Promise<StudyRun>, open: OpenTargets) => Promise<void>,
): Promise<void> {
  const { context, record } = options;
  const onPhase = (text: string) => context.onEvent({ kind: "phase", text });
  await withTargets(source, { signal: context.signal, onPhase }, async (open) => {
    const passed = new Map<string, boolean>();
    try {
      await use(
        async (study) => ({
          ...runOf(open, await goodPaths(study, open, options, passed), options),
          readMemory,
        }),
        open,
      );
    } finally {
      addOnce(record, open);
    }
  });
}

/**
 * Paths of a study whose answers are those of the local reference.
 *
 * @param passed - Results by path: each is compared once, however many studies measure it.
 */
async function goodPaths(
  study: StudyId,
  open: OpenTargets,
  { context, record, paths, reference }: RunStudiesOptions,
  passed: Map<string, boolean>,
): Promise<readonly StudyPath[]> {
  const chosen = choosePaths(pathsFor(study, paths), open, () => {});
  await tryCounters(context, chosen, noteOnce(record, context));
  const good: StudyPath[] = [];
  for (const at of chosen) {
    const key = `${at.target.service} ${benchPathName(at.path)}`;
    const is = passed.get(key) ?? (await gateParity(context, record, [at], reference)).length > 0;
    passed.set(key, is);
    if (is) good.push(at);
  }
  if (good.length === 0) throw new UserError("no path answers rightly: nothing is timed");
  return good;
}

const asked = (
  path: BenchPath["path"],
  payload: BenchPath["payload"] = "fp32",
  serialization: BenchPath["serialization"] = "binary",
): AskedPath => ({ path, payload, serialization, byName: false });

const protocolPaths: readonly AskedPath[] = [
  asked("embed-http", "encoded"),
  asked("onnx-http"),
  asked("onnx-grpc"),
  asked("trt-http"),
  asked("trt-grpc"),
];

/** What each study measures where nothing was asked for. */
const usualPaths: Readonly<Partial<Record<StudyId, readonly AskedPath[]>>> = {
  "queue-delay": [asked("onnx-http"), asked("trt-http")],
  serialization: [asked("onnx-http"), asked("onnx-http", "fp32", "json")],
  // each payload once: a link does not care who computes
  link: [
    asked("embed-http", "encoded"),
    asked("onnx-http"),
    asked("onnx-http", "u8"),
    asked("onnx-http", "encoded"),
  ],
  scaling: [asked("embed-http", "encoded")],
  topology: [asked("embed-http", "encoded")],
};

/** All paths that studies measure. */
export function pathsOfStudies(
  studies: readonly StudyId[],
  given: readonly AskedPath[],
): readonly AskedPath[] {
  return studies.flatMap((study) => pathsFor(study, given));
}

function isVariant({ path, payload }: AskedPath): boolean {
  return path !== "embed-http" && payload !== "fp32";
}

function pathsFor(study: StudyId, given: readonly AskedPath[]): readonly AskedPath[] {
  if (given.length === 0) return usualPaths[study] ?? protocolPaths;
  if (study !== "serialization") return given;
  // whoever asks what JSON costs on a path means both
  const json = given
    .filter(({ path, payload }) => path.endsWith("-http") && payload === "fp32")
    .map(({ path, payload }) => asked(path, payload, "json"));
  const known = new Set(given.map(benchPathName));
  return [...given, ...json.filter((it) => !known.has(benchPathName(it)))];
}

function runOf(
  open: OpenTargets,
  paths: readonly StudyPath[],
  { context, grid, record }: RunStudiesOptions,
): StudyRun {
  const [first] = open.targets;
  const environment = first?.environment ?? "";
  const onNote = noteOnce(record, context);
  return {
    environment,
    open,
    context,
    grid,
    paths,
    async measure(study, { target, path }, options) {
      context.signal.throwIfAborted();
      context.onEvent({ kind: "phase", environment, text: `${study}: ${benchPathName(path)}` });
      const given = { readGpus: open.readGpus, onNote, ...options, study };
      try {
        const cell = await measureCell(context, target, path, given);
        record.cells.push(cell);
        context.onEvent({ kind: "cell", cell });
      } catch (error) {
        context.signal.throwIfAborted();
        record.failures.push(
          `${study} of ${environment}: ${benchPathName(path)}, batch ${options.batch}: ${reason(error)}`,
        );
      }
      context.signal.throwIfAborted();
    },
    fail(line) {
      record.failures.push(line);
      context.onEvent({ kind: "notice", text: `✘ ${line}` });
    },
    keep(result) {
      record.studies.push(result);
      return result;
    },
  };
}

/** An environment is started more than once: what is known of it is said once. */
function addOnce(record: BenchRecord, open: OpenTargets): void {
  const known = record.subject.environments;
  const environments = open.subject.environments.filter((opened) => {
    const same = known.find(({ name }) => name === opened.name);
    same?.notes.push(...opened.notes.filter((note) => !same.notes.includes(note)));
    return same === undefined;
  });
  const notes = open.notes.filter((note) => !record.notes.includes(note));
  addSubject(record, { ...open, subject: { ...open.subject, environments }, notes });
}
