import { BenchError } from "../src/bench-error.ts";
import {
  type BenchPath,
  type BenchRecord,
  type Conditions,
  type StudyId,
  studyIds,
} from "../src/bench-record.ts";
import type { BenchContext } from "../src/bench-run.ts";
import type { OpenTargets, TargetsSource } from "../src/bench-targets.ts";
import type { ColdStart } from "./cold-start.ts";
import {
  studyBatch,
  studyConcurrency,
  studyLink,
  studyProtocol,
  studySerialization,
} from "./load-studies.ts";
import { studyMemory } from "./memory-study.ts";
import type { profileOperators } from "./operators.ts";
import { modelControlArgs, studyQueueDelay } from "./queue-delay-study.ts";
import { studyScaling, studyTopology } from "./scale-studies.ts";
import {
  conditionWords,
  type StudyGrid,
  type StudyPath,
  type StudyRun,
  StudyUnavailable,
} from "./study-run.ts";

/** One environment, and the ways to it that studies need. */
export interface StudyEnvironment {
  readonly name: string;
  /** @param tritonArgs - Options that an embedded Triton gets besides. */
  readonly source: (tritonArgs?: readonly string[]) => TargetsSource;
  /**
   * Start its services again and again, each start told to `onStart`.
   *
   * @default - it cannot be started: the study is unavailable
   */
  readonly coldStarts?: (onStart: (start: ColdStart) => void) => Promise<readonly string[]>;
  /** Models to profile. */
  readonly profiles: readonly (() => ReturnType<typeof profileOperators>)[];
  /** The environment as it would be with other GPUs or in another topology. @throws {StudyUnavailable} */
  readonly variants: (study: "scaling" | "topology") => Promise<readonly EnvironmentVariant[]>;
}

export interface EnvironmentVariant {
  readonly conditions: Required<Pick<Conditions, "gpus" | "topology">>;
  readonly source: TargetsSource;
}

/** Parts of the bench that measure; as functions, so that the studies know nothing of processes. */
export interface StudyTools {
  withTargets<Result>(
    source: TargetsSource,
    use: (open: OpenTargets) => Promise<Result>,
  ): Promise<Result>;
  /** Of the paths that targets offer those that were asked for and answer rightly; what is wrong is in the record. */
  choosePaths(study: StudyId | undefined, open: OpenTargets): Promise<readonly StudyPath[]>;
  measure: (
    at: StudyPath,
    options: Parameters<StudyRun["measure"]>[2] & { readonly study: StudyId },
    readGpus: OpenTargets["readGpus"],
  ) => Promise<BenchRecord["cells"][number]>;
}

export interface RunStudiesOptions {
  readonly studies: readonly StudyId[];
  /** Whether the studies were named: one that cannot be made is a failure then, and else a note. */
  readonly named: boolean;
  readonly environments: readonly StudyEnvironment[];
  readonly context: BenchContext;
  readonly grid: StudyGrid;
  readonly tools: StudyTools;
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
  memory: studyMemory,
} as const satisfies Partial<Record<StudyId, (run: StudyRun) => Promise<void>>>;

/**
 * Make studies of environments, one after the other. Ends early, without an error, when the signal says so: what was measured
 * until then is in the record.
 */
export async function runStudies(options: RunStudiesOptions): Promise<void> {
  const { record, context, environments } = options;
  try {
    for (const environment of environments) await studyEnvironment(environment, options);
  } catch (error) {
    if (!context.signal.aborted) throw error;
    record.interrupted = true;
  }
}

async function studyEnvironment(
  environment: StudyEnvironment,
  options: RunStudiesOptions,
): Promise<void> {
  const { studies, record, context, tools } = options;
  const wanted = (study: StudyId) => studies.includes(study);
  const attempt = (study: StudyId, work: () => Promise<void>) =>
    attemptStudy(study, environment.name, options, work);

  if (wanted("operators")) {
    await attempt("operators", async () => {
      if (environment.profiles.length === 0) {
        throw new StudyUnavailable("operators: there is no model file here to profile");
      }
      for (const profile of environment.profiles) {
        context.onEvent({
          kind: "phase",
          environment: environment.name,
          text: "profile the operators",
        });
        record.studies.push(await profile());
      }
    });
  }
  if (wanted("cold-start")) {
    await attempt("cold-start", async () => {
      if (environment.coldStarts === undefined) {
        throw new StudyUnavailable("cold-start: these services cannot be started from here");
      }
      const result = {
        study: "cold-start" as const,
        environment: environment.name,
        starts: [] as ColdStart[],
        notes: [] as string[],
      };
      record.studies.push(result);
      result.notes.push(...(await environment.coldStarts((start) => result.starts.push(start))));
    });
  }

  const loaded = studyIds.filter(
    (id): id is keyof typeof onTargets => id in onTargets && wanted(id),
  );
  if (loaded.length > 0) {
    await tools.withTargets(environment.source(), async (open) => {
      addSubject(record, open);
      for (const study of loaded) {
        await attempt(study, async () =>
          onTargets[study](await runOn(environment.name, open, study, options)),
        );
      }
    });
  }
  if (wanted("queue-delay")) {
    await attempt("queue-delay", () =>
      tools.withTargets(environment.source(modelControlArgs), async (open) => {
        addSubject(record, open);
        await studyQueueDelay(await runOn(environment.name, open, "queue-delay", options));
      }),
    );
  }
  for (const study of ["scaling", "topology"] as const) {
    if (!wanted(study)) continue;
    await attempt(study, async () => {
      const variants = await environment.variants(study);
      record.studies.push({ study, environment: environment.name, notes: [] });
      for (const { conditions, source } of variants) {
        await tools.withTargets(source, async (open) => {
          addSubject(record, open);
          const run = await runOn(environment.name, open, study, options);
          await (study === "scaling" ? studyScaling : studyTopology)({ run, conditions });
        });
      }
    });
  }
}

/** A study that fails leaves the others to be made. */
async function attemptStudy(
  study: StudyId,
  environment: string,
  { record, context, named }: RunStudiesOptions,
  work: () => Promise<void>,
): Promise<void> {
  try {
    await work();
  } catch (error) {
    if (context.signal.aborted) throw error;
    if (!(error instanceof StudyUnavailable || error instanceof BenchError)) throw error;
    const line = `${environment}: ${error.message.startsWith(`${study}: `) ? "" : `${study}: `}${error.message}`;
    if (named || !(error instanceof StudyUnavailable)) record.failures.push(line);
    else record.notes.push(`Left out: ${line}.`);
  }
}

async function runOn(
  environment: string,
  open: OpenTargets,
  study: StudyId,
  { context, grid, tools, record }: RunStudiesOptions,
): Promise<StudyRun> {
  const paths = await tools.choosePaths(study, open);
  return {
    environment,
    open,
    context,
    grid,
    paths,
    async measure(of, at, options) {
      context.signal.throwIfAborted();
      const measured = await tools.measure(at, { ...options, study: of }, open.readGpus);
      const cell = { ...measured, id: uniqueId(record, measured, options.conditions ?? {}) };
      record.cells.push(cell);
      context.signal.throwIfAborted();
      return cell;
    },
    keep(result) {
      record.studies.push(result);
      return result;
    },
  };
}

/** Two studies may measure the same load, and a record holds a name once. */
function uniqueId(
  { cells }: BenchRecord,
  { id, study }: BenchRecord["cells"][number],
  conditions: Conditions,
): string {
  const words = conditionWords(conditions).filter((word) => !id.includes(word));
  const named = [id, ...words].join(", ");
  const taken = (name: string) => cells.some((cell) => cell.id === name);
  if (!taken(named)) return named;
  const ofStudy = `${named} (${study})`;
  for (let n = 2; ; n++) {
    const name = n === 2 ? ofStudy : `${ofStudy} ${n - 1}`;
    if (!taken(name)) return name;
  }
}

/** What is known of the subject once it runs: the same environment may be started more than once. */
function addSubject({ subject, notes }: BenchRecord, open: OpenTargets): void {
  for (const environment of open.subject.environments) {
    if (!subject.environments.some(({ name }) => name === environment.name)) {
      subject.environments.push(environment);
    }
  }
  for (const server of open.subject.servers) {
    if (!subject.servers.some(({ service }) => service === server.service)) {
      subject.servers.push(server);
    }
  }
  subject.gpu ??= open.subject.gpu;
  subject.price ??= open.subject.price;
  for (const note of open.notes) if (!notes.includes(note)) notes.push(note);
}

/** Paths of a list, by what a request carries. */
export function samePath(a: BenchPath, b: BenchPath): boolean {
  return a.path === b.path && a.payload === b.payload && a.serialization === b.serialization;
}
