import { rmSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { type Artefact, readArtefact } from "../artefact/artefact.ts";
import { makeScratchFolder } from "../artefact/scratch-folder.ts";
import { requireFreePorts, type ServerCommands } from "../artefact/simulation.ts";
import type { ModelFiles, SimulationPlan } from "../artefact/simulation-types.ts";
import type { VerifyRecord } from "../bench/record/record.ts";
import type { Modality } from "../contract/model-spec.ts";
import { UserError } from "../contract/user-error.ts";
import { type ReferenceModel, referenceModels } from "../target/reference/reference.ts";
import { References, type Samples } from "../target/reference/references.ts";
import {
  type EnvironmentFile,
  planFor,
  startServices,
  subjectOf,
} from "../target/service/local-environment.ts";
import type { EnvironmentSubject } from "../target/subject/subject.ts";
import { type CheckedEnvironment, type CheckOptions, CheckRun, recordOf } from "./check-run.ts";

export interface VerifyOptions extends CheckOptions, ServerCommands {
  readonly environments: readonly EnvironmentFile[];
  /** Reason why the PyTorch baseline cannot run on this machine; it is skipped. @default - it can run */
  readonly noPytorch?: string;
  /** Model repository of the project, in place of volumes of other hosts. */
  readonly modelRepository: string;
  /** Whether the services of an environment run the chosen files instead of the mounted ones. */
  readonly replaceModels: (environment: string) => boolean;
  /** Whether an environment without the files of its models is skipped. @default - it is an error */
  readonly skipUnavailable?: boolean;
  /**
   * Maximum start time in seconds, even if the synthesized one is longer.
   *
   * @default 120
   */
  readonly startLimitSeconds?: number;
}

const defaultStartLimitSeconds = 120;

/** Starts each environment as local simulation and checks it, one after the other, because they may use the same ports. */
export async function verify(options: VerifyOptions): Promise<VerifyRecord> {
  const startedAt = new Date();
  const scratch = makeScratchFolder();
  try {
    const prepared: Prepared[] = [];
    const unavailable: CheckedEnvironment[] = [];
    for (const [index, environment] of options.environments.entries()) {
      const artefact = readArtefact(environment.file, environment.displayPath);
      const models = await modelsOf(artefact, environment, options).catch((error: Error) => {
        if (!(options.skipUnavailable === true && error instanceof UserError)) throw error;
        unavailable.push(skipped(artefact, environment, error.message, options));
        return undefined;
      });
      if (models === undefined) continue;
      const replaces = options.replaceModels(artefact.environment.name);
      const plan = await planFor(
        artefact,
        environment,
        { ...options, modelFiles: replaces ? modelFilesOf(models) : undefined },
        join(scratch, String(index)),
      );
      prepared.push({ ...environment, artefact, plan, models });
    }
    await requireFreePorts(
      prepared.map(({ artefact, plan }) => ({ environment: artefact.environment.name, plan })),
    );

    const references = new References((text) => options.onEvent({ kind: "phase", text }));
    const environments: CheckedEnvironment[] = [];
    for (const environment of prepared) {
      options.signal.throwIfAborted();
      const samples = await references.forModels(environment.models);
      const run = new CheckRun(environment.artefact.environment.name, options);
      const subject = await runSimulation(environment, run, samples, options);
      environments.push({ subject, models: environment.models, run });
    }
    const checked = [...environments, ...unavailable];
    return await recordOf(startedAt, "simulation", references, checked, options);
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

function modelsOf(artefact: Artefact, { file }: EnvironmentFile, { chooseModel }: CheckOptions) {
  return referenceModels(artefact, dirname(resolve(file)), chooseModel);
}

/** Environment whose checks are skipped because the files of its models are unavailable. */
function skipped(
  artefact: Artefact,
  environment: EnvironmentFile,
  message: string,
  options: CheckOptions,
): CheckedEnvironment {
  const run = new CheckRun(artefact.environment.name, options);
  run.skip("start", artefact.workloads, message);
  return { subject: subjectOf(artefact, environment, [], performance.now()), models: [], run };
}

export function modelFilesOf(models: readonly ReferenceModel[]): ModelFiles {
  const files = new Map<string, Partial<Record<Modality, string>>>();
  for (const { spec, modality, file } of models) {
    files.set(spec.name, { ...files.get(spec.name), [modality]: file });
  }
  return files;
}

interface Prepared extends EnvironmentFile {
  readonly artefact: Artefact;
  readonly plan: SimulationPlan;
  readonly models: readonly ReferenceModel[];
}

/** Starts the processes of one environment, runs the checks, and stops the processes. */
async function runSimulation(
  environment: Prepared,
  run: CheckRun,
  samples: Samples,
  { serverCommand, pytorch, signal, startLimitSeconds = defaultStartLimitSeconds }: VerifyOptions,
): Promise<EnvironmentSubject> {
  const began = performance.now();
  const { artefact, plan } = environment;
  run.phase(`start ${plan.instances.map(({ name }) => name).join(", ")}`);
  const target = await startServices(artefact, plan, {
    serverCommand,
    pytorch,
    signal,
    startLimitSeconds,
  });
  const stopNow = () => void target.stop();
  signal.addEventListener("abort", stopNow, { once: true });
  try {
    await run.run({ target: "simulation", services: target.services, plan, ...samples });
  } finally {
    signal.removeEventListener("abort", stopNow);
    await target.close();
  }
  return subjectOf(artefact, environment, plan.notes, began);
}
