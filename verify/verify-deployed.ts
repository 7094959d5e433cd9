import { existsSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { type Artefact, readArtefact } from "../artefact/artefact.ts";
import type { ClusterInspection } from "../artefact/cluster-objects.ts";
import { environmentModel } from "../artefact/environment-model.ts";
import { planSimulation } from "../artefact/simulation-plan.ts";
import type { SimulationPlan } from "../artefact/simulation-types.ts";
import type { EnvironmentSubject, VerifyRecord } from "../bench/record/record.ts";
import {
  type DeployedEnvironment,
  podsOf,
  servicesBehind,
  servicesOfDeployed,
  sourceOf,
} from "../bench/run/deployed-environment.ts";
import { subjectOf } from "../bench/run/local-environment.ts";
import {
  type Preprocess,
  type Reference,
  type ReferenceModel,
  References,
  readSamples,
} from "../bench/run/reference.ts";
import { resultOf, type ServiceUnderTest } from "../bench/run/service-under-test.ts";
import type { Environment } from "../contract/environment.ts";
import { UserError } from "../contract/user-error.ts";
import {
  type CheckedEnvironment,
  type CheckOptions,
  CheckRun,
  recordOf,
  sampleLimit,
} from "./check-run.ts";
import { checkBatching } from "./checks/batching.ts";
import { checkControllers, checkObject, checkPods } from "./checks/cluster.ts";
import {
  checkContainer,
  checkContainerState,
  checkDeployedService,
  checkEngine,
  checkWeights,
  declaredBlocks,
} from "./checks/container.ts";
import { checkWiring } from "./checks/wiring.ts";

export interface VerifyDeployedOptions extends CheckOptions {
  readonly environments: readonly DeployedEnvironment[];
  readonly samples: string;
  readonly preprocess: Preprocess;
}

/**
 * Check environments where they are deployed: the requests of the embedded runtime, and the containers as they are. What
 * runs goes on running.
 */
export async function verifyDeployed(options: VerifyDeployedOptions): Promise<VerifyRecord> {
  const startedAt = new Date();
  const artefacts = options.environments.map((it) => readArtefact(it.file, it.displayPath));
  const samples = readSamples(options.samples, sampleLimit);
  const references = new References(samples, options.preprocess, (text) =>
    options.onEvent({ kind: "phase", text }),
  );
  const environments: CheckedEnvironment[] = [];
  for (const [index, environment] of options.environments.entries()) {
    options.signal.throwIfAborted();
    const artefact = artefacts[index] as Artefact;
    const moduleFolder = dirname(resolve(environment.file));
    const model = await options.chooseModel(environmentModel(artefact, moduleFolder, existsSync));
    const reference = await references.of(model);
    const run = new CheckRun(artefact.environment.name, "deployed", reference, options);
    const subject = await runDeployed(environment, artefact, run, reference, model);
    environments.push({ subject, model, run });
  }
  return recordOf(startedAt, "deployed", samples, environments, options);
}

async function runDeployed(
  environment: DeployedEnvironment,
  artefact: Artefact,
  run: CheckRun,
  reference: Reference,
  model: ReferenceModel,
): Promise<EnvironmentSubject> {
  const began = performance.now();
  const { deployed } = environment;
  const moduleFolder = dirname(resolve(environment.file));
  const plan = planOf(artefact, moduleFolder);
  const { objects } = artefact;
  run.phase(objects.length > 0 ? "look at the cluster" : "look at the containers");
  const blocks = declaredBlocks(artefact, environment.state);
  const inspection = await environment.inspect(blocks.map(({ declared }) => declared.name));
  // before anything is compared with the reference: a failure here explains the others
  run.report(checkWeights(run.environment, blocks, inspection, model));
  const cluster = objects.length > 0 ? await environment.inspectObjects(objects) : undefined;
  const reach = await environment.reach();
  const services = servicesOfDeployed(environment, artefact, reach);
  try {
    for (const service of services) {
      const { name } = service.workload.service;
      const differs = checkDeployedService(
        service,
        deployed.services.find((it) => it.name === name),
      );
      run.report([...differs, ...checkWiring(service, plan)]);
    }
    run.report(unknownServices(artefact, deployed));
    const states = blocks.map((block) => checkContainerState(run.environment, block, inspection));
    run.report(states);
    for (const block of blocks) {
      run.report(
        checkContainer(run.environment, block, inspection, environment.state, moduleFolder),
      );
    }
    const podStates =
      cluster === undefined ? [] : services.map((service) => checkPods(service, cluster));
    run.report(podStates);
    if (cluster !== undefined) {
      for (const object of objects)
        run.report(checkObject(run.environment, object, cluster, environment.isApplied));
      run.report(checkControllers(run.environment, objects, cluster));
    }
    const down = new Set([
      ...states.filter(({ outcome }) => outcome === "fail").map(({ service }) => service),
      // as long as one pod is ready, the Service answers
      ...podStates.filter(({ measured }) => measured.ready === 0).map(({ service }) => service),
    ]);
    const ready = services.filter((it) => !down.has(it.workload.service.name));
    await run.family("endpoints", ready, ready, checkEngine);
    await run.requests(ready, services, (service) =>
      batching(service, services, reference, cluster),
    );
    run.report(
      services.map((service) =>
        resultOf(
          service,
          "stop",
          "skip",
          "a deployed service is not stopped: only with --target simulation",
        ),
      ),
    );
  } finally {
    await Promise.all(services.flatMap((it) => [it.closeTransports(), it.http.close()]));
    await reach.close();
  }
  return subjectOf(artefact, environment, reach.notes, began);
}

/** What the file says of itself; no process is started from it. */
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

function unknownServices(artefact: Artefact, deployed: Environment) {
  return deployed.services
    .filter(({ name }) => artefact.environment.services.every((it) => it.name !== name))
    .map(({ name, resources }) => ({
      id: "wiring" as const,
      environment: artefact.environment.name,
      service: name,
      resource: resources.container ?? resources.deployment ?? resources.release ?? name,
      outcome: "fail" as const,
      message: "is deployed, but is not in the synthesized file",
      measured: {},
    }));
}

/** Where the batches of a service are counted: its own metrics, or those of the Tritons behind a gateway. */
async function batching(
  service: ServiceUnderTest,
  services: readonly ServiceUnderTest[],
  reference: Reference,
  cluster: ClusterInspection | undefined,
) {
  const behind = servicesBehind(service, services);
  const counting = behind.length > 0 ? behind : [service];
  for (const { workload } of [service, ...counting]) {
    const pods = podsOf(workload, cluster);
    if (pods < 2) continue;
    const message = `${pods} pods of ${workload.name} answer at one address: their metrics cannot be told apart from here`;
    return [resultOf(service, "batching", "skip", message)];
  }
  return checkBatching(service, counting.map(sourceOf), reference, false);
}

/** Fails when a service asks for a key and there is none. */
export function requireKeys(
  environment: Environment,
  apiKey: string | undefined,
  variable: string,
): void {
  const asking = environment.services.find(({ authorization }) => authorization !== undefined);
  if (asking === undefined || apiKey !== undefined) return;
  throw new UserError(
    `${variable} must be set: ${environment.name}/${asking.name} asks for a key, the value of TF_VAR_${asking.name.replaceAll("-", "_")}_api_key at its deployment`,
  );
}
