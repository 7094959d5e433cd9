import { existsSync, rmSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { type Artefact, readArtefact } from "../artefact/artefact.ts";
import { environmentModel } from "../artefact/environment-model.ts";
import { makeScratchFolder } from "../artefact/scratch-folder.ts";
import { requirePorts, startSimulation } from "../artefact/simulation.ts";
import type { SimulationPlan } from "../artefact/simulation-types.ts";
import type { EnvironmentSubject, VerifyRecord } from "../bench/record/record.ts";
import { type EnvironmentFile, planFor, subjectOf } from "../bench/run/local-environment.ts";
import {
  type Preprocess,
  type Reference,
  type ReferenceModel,
  References,
  readSamples,
} from "../bench/run/reference.ts";
import { openService } from "../bench/run/service-under-test.ts";
import {
  type CheckedEnvironment,
  type CheckOptions,
  CheckRun,
  recordOf,
  sampleLimit,
} from "./check-run.ts";

export interface VerifyOptions extends CheckOptions {
  readonly environments: readonly EnvironmentFile[];
  /** Command that starts the server: program, arguments, server file last. */
  readonly serverCommand: readonly string[];
  /** Model repository of the project, in place of volumes of other hosts. */
  readonly modelRepository: string;
  /** ONNX file in place of every model. @default - the mounted files */
  readonly modelFile?: string;
  /** Folder of sample images. */
  readonly samples: string;
  readonly preprocess: Preprocess;
  /**
   * Maximum start time in seconds, even if the synthesized one is longer.
   *
   * @default 120
   */
  readonly startLimitSeconds?: number;
}

const defaultStartLimitSeconds = 120;

/**
 * Starts each environment as local simulation and checks it, one after the other, because they may use the same ports.
 *
 * @throws {UserError} before anything has started, if a file or an option is invalid or a port is in use.
 */
export async function verify(options: VerifyOptions): Promise<VerifyRecord> {
  const startedAt = new Date();
  const scratch = makeScratchFolder();
  try {
    const prepared: Prepared[] = [];
    for (const [index, environment] of options.environments.entries()) {
      const artefact = readArtefact(environment.file, environment.displayPath);
      const plan = await planFor(artefact, environment, options, join(scratch, String(index)));
      const own = environmentModel(artefact, dirname(resolve(environment.file)), existsSync);
      prepared.push({ ...environment, artefact, plan, model: await options.chooseModel(own) });
    }
    await requirePorts(
      prepared.map(({ artefact, plan }) => ({ environment: artefact.environment.name, plan })),
    );

    const samples = readSamples(options.samples, sampleLimit);
    const references = new References(samples, options.preprocess, (text) =>
      options.onEvent({ kind: "phase", text }),
    );
    const environments: CheckedEnvironment[] = [];
    for (const environment of prepared) {
      options.signal.throwIfAborted();
      const reference = await references.forModel(environment.model);
      const run = new CheckRun(environment.artefact.environment.name, options);
      const subject = await runSimulation(environment, run, reference, options);
      environments.push({ subject, model: environment.model, run });
    }
    return await recordOf(startedAt, "simulation", samples, environments, options);
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

interface Prepared extends EnvironmentFile {
  readonly artefact: Artefact;
  readonly plan: SimulationPlan;
  readonly model: ReferenceModel;
}

/** Starts the processes of one environment, runs the checks, and stops the processes. */
async function runSimulation(
  environment: Prepared,
  run: CheckRun,
  reference: Reference,
  { serverCommand, signal, startLimitSeconds = defaultStartLimitSeconds }: VerifyOptions,
): Promise<EnvironmentSubject> {
  const began = performance.now();
  const { artefact, plan } = environment;
  run.phase(`start ${plan.instances.map(({ name }) => name).join(", ")}`);
  const running = await startSimulation(plan, { serverCommand, signal, startLimitSeconds });
  const services = artefact.workloads.map((workload) =>
    openService(
      run.environment,
      workload,
      running.instances.filter(({ instance }) => instance.workload === workload),
      plan.targets.filter((target) => target.workload === workload),
    ),
  );
  const stopNow = () => void running.stop();
  signal.addEventListener("abort", stopNow, { once: true });
  try {
    await run.run({ target: "simulation", services, plan, reference });
  } finally {
    signal.removeEventListener("abort", stopNow);
    await Promise.all(services.flatMap((s) => [s.closeTransports(), s.http.close()]));
    await running.stop();
  }
  return subjectOf(artefact, environment, plan.notes, began);
}
