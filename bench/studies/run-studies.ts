import { UserError } from "../../contract/user-error.ts";
import { shuffled } from "../measure/shuffled.ts";
import { openStudies, type RunStudiesOptions } from "./open-study.ts";
import { studies } from "./registry.ts";
import {
  type EnvironmentStudy,
  type LoadStudy,
  type Study,
  type StudyEnvironment,
  StudyUnavailable,
} from "./study.ts";
import { neededBy } from "./study-endpoints.ts";

/**
 * Runs studies of environments, one environment after another. Failures are recorded and do not end the run.
 *
 * @throws the signal's reason after an interrupt; the record has the results until then.
 */
export async function runStudies(options: RunStudiesOptions): Promise<void> {
  const { environments } = options.record.subject;
  for (const environment of options.environments) {
    const index = environments.length;
    const before = environment.subject?.();
    if (before !== undefined) environments.push(before);
    try {
      await studyEnvironment(environment, options);
    } finally {
      const after = environment.subject?.();
      const notes = environments[index]?.notes ?? [];
      if (after !== undefined) environments[index] = { ...after, notes };
    }
  }
}

async function studyEnvironment(
  environment: StudyEnvironment,
  options: RunStudiesOptions,
): Promise<void> {
  const requested = studies.filter(({ id }) => options.studies.includes(id));
  const load = requested.filter((study): study is LoadStudy => study.kind === "load");
  const [firstLoad] = load;
  for (const study of requested) {
    if (study.kind === "environment") await runEnvironmentStudy(study, environment, options);
    else if (study === firstLoad) await runLoadStudies(load, environment, options);
  }
}

async function runEnvironmentStudy(
  study: EnvironmentStudy,
  environment: StudyEnvironment,
  options: RunStudiesOptions,
): Promise<void> {
  const { record, context } = options;
  await attempt(study.id, environment, options, () =>
    study.run({
      environment,
      record,
      needed: neededBy([study], options.endpoints),
      onPhase: (text) => context.onEvent({ kind: "phase", environment: environment.name, text }),
      requireOffered: () => requireOffered(study, environment, options),
      open: (source, use) =>
        openStudies(environment, [study], source, options, 1, async (runOf) =>
          use(await runOf(study)),
        ),
    }),
  );
}

/** Runs the studies that share one start of the environment. */
async function runLoadStudies(
  all: readonly LoadStudy[],
  environment: StudyEnvironment,
  options: RunStudiesOptions,
): Promise<void> {
  const offered: LoadStudy[] = [];
  for (const study of all) {
    await attempt(study.id, environment, options, async () => {
      requireOffered(study, environment, options);
      offered.push(study);
    });
  }
  for (let round = 1; round <= options.context.settings.rounds; round++) {
    await runLoadRound(offered, environment, options, round);
  }
}

/** One round of studies that share one start of the environment, in random order after the first. */
async function runLoadRound(
  all: readonly LoadStudy[],
  environment: StudyEnvironment,
  options: RunStudiesOptions,
  round: number,
): Promise<void> {
  const group =
    round === 1
      ? all
      : shuffled(
          all.filter(({ readsIdleMemory }) => readsIdleMemory !== true),
          options.context.settings.seed + round,
        );
  if (group.length === 0) return;
  const source = environment.source(neededBy(group, options.endpoints));
  await attempt(group.map(({ id }) => id).join(", "), environment, options, () =>
    openStudies(environment, group, source, options, round, async (runOf) => {
      for (const study of group) {
        await attempt(study.id, environment, options, async () => study.run(await runOf(study)));
      }
    }),
  );
}

function requireOffered(
  study: Study,
  environment: StudyEnvironment,
  options: RunStudiesOptions,
): void {
  if (
    study.kind === "load" &&
    study.requiresDeployment === true &&
    environment.deployment === undefined
  ) {
    throw new StudyUnavailable(
      "requires a deployed environment (--target deployed), because simulated GPUs share the cores of this machine",
    );
  }
  const { endpoints } = neededBy([study], options.endpoints);
  if (endpoints.some((endpoint) => environment.offers.includes(endpoint))) return;
  throw new StudyUnavailable(`none of ${endpoints.join(", ")} is available`);
}

/** Records the failure of a study, so that the others run. */
async function attempt(
  study: string,
  environment: StudyEnvironment,
  { record, context, named }: RunStudiesOptions,
  work: () => Promise<void>,
): Promise<void> {
  try {
    await work();
  } catch (error) {
    context.signal.throwIfAborted();
    if (!(error instanceof StudyUnavailable || error instanceof UserError)) throw error;
    const line = `${study} of ${environment.name}: ${error.message}`;
    if (named || error instanceof UserError) record.failures.push(line);
    else record.notes.push(`Skipped: ${line}.`);
  }
}
