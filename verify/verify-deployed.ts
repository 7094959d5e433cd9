import { dirname, join, resolve } from "node:path";
import { type Artefact, readArtefact } from "../artefact/artefact.ts";
import { planSimulation } from "../artefact/simulation-plan.ts";
import type { SimulationPlan } from "../artefact/simulation-types.ts";
import type { VerifyRecord } from "../bench/record/record.ts";
import type { Environment } from "../contract/environment.ts";
import { UserError } from "../contract/user-error.ts";
import { type ReferenceModel, referenceModels } from "../target/reference/reference.ts";
import { References, type Samples } from "../target/reference/references.ts";
import {
  type DeployedEnvironment,
  openDeployedServices,
} from "../target/service/deployed-environment.ts";
import { subjectOf } from "../target/service/local-environment.ts";
import type { EnvironmentSubject } from "../target/subject/subject.ts";
import { type CheckedEnvironment, type CheckOptions, CheckRun, recordOf } from "./check-run.ts";
import { declaredBlocks } from "./checks/declared-blocks.ts";

export interface VerifyDeployedOptions extends CheckOptions {
  readonly environments: readonly DeployedEnvironment[];
}

/** Checks deployed environments: sends the requests of the simulation, and inspects containers and objects. Stops nothing. */
export async function verifyDeployed(options: VerifyDeployedOptions): Promise<VerifyRecord> {
  const startedAt = new Date();
  const artefacts = options.environments.map((it) => readArtefact(it.file, it.displayPath));
  const references = new References((text) => options.onEvent({ kind: "phase", text }));
  const environments: CheckedEnvironment[] = [];
  for (const [index, environment] of options.environments.entries()) {
    options.signal.throwIfAborted();
    const artefact = artefacts[index] as Artefact;
    const moduleFolder = dirname(resolve(environment.file));
    const models = await referenceModels(artefact, moduleFolder, options.chooseModel);
    const samples = await references.forModels(models);
    const run = new CheckRun(artefact.environment.name, options);
    const subject = await runDeployed(environment, artefact, run, samples, models);
    environments.push({ subject, models, run });
  }
  return recordOf(startedAt, "deployed", references, environments, options);
}

async function runDeployed(
  environment: DeployedEnvironment,
  declared: Artefact,
  run: CheckRun,
  samples: Samples,
  models: readonly ReferenceModel[],
): Promise<EnvironmentSubject> {
  const began = performance.now();
  const moduleFolder = dirname(resolve(environment.file));
  const artefact = environment.atAddresses ? withoutContainers(declared, environment) : declared;
  const { objects } = artefact;
  run.phase(objects.length > 0 ? "inspect the cluster" : "inspect the containers");
  const blocks = declaredBlocks(artefact, environment.state);
  const inspection = await environment.inspect(blocks.map(({ declared }) => declared.name));
  const cluster = objects.length > 0 ? await environment.inspectObjects(objects) : undefined;
  const target = await openDeployedServices(environment, artefact);
  try {
    await run.run({
      target: "deployed",
      services: target.services,
      plan: planOf(declared, moduleFolder),
      ...samples,
      deployment: { environment, artefact, blocks, inspection, cluster, moduleFolder, models },
    });
  } finally {
    await target.close();
  }
  return subjectOf(artefact, environment, target.notes, began);
}

/** Returns only the services of an artefact that can be reached, without the containers and objects, which cannot be inspected. */
function withoutContainers(artefact: Artefact, { deployed }: DeployedEnvironment): Artefact {
  const names = deployed.services.map(({ name }) => name);
  const workloads = artefact.workloads.filter(({ service }) => names.includes(service.name));
  return { ...artefact, workloads, containers: [], objects: [] };
}

/** Plans the simulation only for the faults of the synthesized file; no process is started. */
function planOf(artefact: Artefact, moduleFolder: string): SimulationPlan {
  let port = 0;
  return planSimulation(artefact, {
    moduleFolder,
    modelRepository: join(moduleFolder, "model_repository"),
    exists: () => false,
    temporaryFolder: moduleFolder,
    portOffset: 0,
    freePort: () => ++port,
  });
}

/** Throws if a service requires an API key and none is configured. */
export function requireKeys(
  environment: Environment,
  apiKey: string | undefined,
  variable: string,
): void {
  const protectedService = environment.services.find(
    ({ authorization }) => authorization !== undefined,
  );
  if (protectedService === undefined || apiKey !== undefined) return;
  throw new UserError(
    `${variable} must be set to the API key of ${environment.name}/${protectedService.name}, the value of TF_VAR_${protectedService.name.replaceAll("-", "_")}_api_key at its deployment or a key of the file in its setting keys`,
  );
}
