import { existsSync, rmSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { type Artefact, readArtefact } from "../artefact/artefact.ts";
import { environmentModel } from "../artefact/environment-model.ts";
import { makeScratchFolder } from "../artefact/scratch-folder.ts";
import { workloadsBehind } from "../artefact/simulated-process.ts";
import { type RunningInstance, requirePorts, startSimulation } from "../artefact/simulation.ts";
import type { SimulationPlan } from "../artefact/simulation-types.ts";
import type { EnvironmentSubject, VerifyRecord } from "../bench/record/record.ts";
import { metricsSource } from "../bench/run/instance-metrics.ts";
import { type EnvironmentFile, planFor, subjectOf } from "../bench/run/local-environment.ts";
import {
  type Preprocess,
  type Reference,
  type ReferenceModel,
  References,
  readSamples,
} from "../bench/run/reference.ts";
import { openService, type ServiceUnderTest } from "../bench/run/service-under-test.ts";
import {
  type CheckedEnvironment,
  type CheckOptions,
  CheckRun,
  recordOf,
  sampleLimit,
} from "./check-run.ts";
import { checkBatching } from "./checks/batching.ts";
import { checkStop } from "./checks/stop.ts";
import { checkStart, checkWiring } from "./checks/wiring.ts";

export interface VerifyOptions extends CheckOptions {
  readonly environments: readonly EnvironmentFile[];
  /** Starts clipstack's server: program, arguments, and the server's file last. */
  readonly serverCommand: readonly string[];
  /** The project's model repository, for volumes of other hosts. */
  readonly modelRepository: string;
  /** ONNX file in place of every model; absent: what the artefacts mount. */
  readonly modelFile?: string;
  /** Folder of sample images. */
  readonly samples: string;
  readonly preprocess: Preprocess;
  /**
   * No start takes longer, whatever budget was synthesized, in seconds.
   *
   * @default 120
   */
  readonly startLimitSeconds?: number;
}

const defaultStartLimitSeconds = 120;
/**
 * Run each environment on this machine and check it; one after the other, because they may use the same ports.
 *
 * @throws {UserError} what is wrong before anything has started: a file, an option, a port that is taken.
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
    for (const one of prepared) {
      options.signal.throwIfAborted();
      const reference = await references.of(one.model);
      const run = new CheckRun(one.artefact.environment.name, "simulation", reference, options);
      const subject = await runEmbedded(one, run, reference, options);
      environments.push({ subject, model: one.model, run });
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

/** One environment, from the start of its processes to their end. */
async function runEmbedded(
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
    await checkAll(run, services, plan, running.instances, reference);
  } finally {
    signal.removeEventListener("abort", stopNow);
    await Promise.all(services.flatMap((s) => [s.closeTransports(), s.http.close()]));
    await running.stop();
  }
  return subjectOf(artefact, environment, plan.notes, began);
}

async function checkAll(
  run: CheckRun,
  services: readonly ServiceUnderTest[],
  plan: SimulationPlan,
  all: readonly RunningInstance[],
  reference: Reference,
): Promise<void> {
  for (const service of services) run.report(checkWiring(service, plan));
  for (const service of services) run.report(await checkStart(service));
  const ready = services.filter((service) => service.instances.every(({ start }) => start.ok));
  await run.requests(ready, services, (service) =>
    checkBatching(service, batchedAt(service, all).map(metricsSource), reference),
  );
  // a gateway before the Tritons that it needs
  const order = [...services].sort((a, b) => kindOrder(a) - kindOrder(b));
  await run.family("stop", order, ready, (service) => checkStop(service, reference));
}

function kindOrder(service: ServiceUnderTest): number {
  return service.workload.service.kind === "embed" ? 0 : 1;
}

/** Where the batches of a service are made: in its own processes, or in the Tritons behind a gateway. */
function batchedAt(
  { workload }: ServiceUnderTest,
  all: readonly RunningInstance[],
): readonly RunningInstance[] {
  const tritons = workloadsBehind(
    workload,
    all.map(({ instance }) => instance.workload),
  );
  const counting = tritons.length > 0 ? tritons : [workload];
  return all.filter(({ instance }) => counting.includes(instance.workload));
}
