import { existsSync } from "node:fs";
import { dirname, resolve } from "node:path";
import type { Artefact } from "../../artefact/artefact.ts";
import { freePorts } from "../../artefact/free-ports.ts";
import { type RunningInstance, startSimulation } from "../../artefact/simulation.ts";
import { planSimulation } from "../../artefact/simulation-plan.ts";
import type { ModelFiles, SimulationPlan } from "../../artefact/simulation-types.ts";
import { describe } from "../../artefact/workload.ts";
import type { EnvironmentSubject } from "../subject/subject.ts";
import { openService, type RunningServices } from "./target-service.ts";

export interface EnvironmentFile {
  /** Path of `cdk.tf.json`. */
  readonly file: string;
  /** Path in messages and records. */
  readonly displayPath: string;
  readonly editedByHand: boolean;
}

export interface LocalEnvironmentOptions {
  /** Added to every published port. */
  readonly portOffset: number;
  /** Model repository of the project, used for volumes of other hosts. */
  readonly modelRepository: string;
  /** ONNX files in place of the mounted ones. */
  readonly modelFiles?: ModelFiles;
  /** Reason why the PyTorch baseline cannot run on this machine. @default - it can run */
  readonly noPytorch?: string;
}

/** Maximum number of free ports required per replica. */
const portsPerReplica = 3;

/** Plans the local simulation of an environment; unpublished ports are replaced with free ones. */
export async function planFor(
  artefact: Artefact,
  { file }: EnvironmentFile,
  options: LocalEnvironmentOptions,
  temporaryFolder: string,
): Promise<SimulationPlan> {
  const replicas = artefact.workloads.reduce((sum, workload) => sum + workload.replicas, 0);
  const endpoints = artefact.workloads.flatMap(({ service }) => service.endpoints);
  const published = artefact.workloads.flatMap((workload) => workload.published);
  const needed = new Set(published.map(({ external }) => external + options.portOffset));
  const free = [...(await freePorts(replicas * portsPerReplica + endpoints.length, needed))];
  return planSimulation(artefact, {
    moduleFolder: dirname(resolve(file)),
    modelRepository: options.modelRepository,
    modelFiles: options.modelFiles,
    noPytorch: options.noPytorch,
    exists: existsSync,
    temporaryFolder,
    portOffset: options.portOffset,
    freePort: () => free.pop() ?? 0,
  });
}

/**
 * Subject of a record for one environment.
 *
 * @param startedMs - Start of the run, on the clock of `performance.now()`.
 */
export function subjectOf(
  { environment, workloads, sha256 }: Artefact,
  { displayPath, editedByHand }: EnvironmentFile,
  notes: readonly string[],
  startedMs: number,
): EnvironmentSubject {
  const { name, where, accelerator, gpu } = environment;
  return {
    name,
    where,
    accelerator,
    gpu: gpu === undefined ? undefined : `${gpu.count} × ${gpu.name}`,
    artefact: { file: displayPath, sha256, editedByHand },
    services: workloads.map((workload) => ({
      name: workload.service.name,
      kind: workload.service.kind,
      backend: workload.service.backend,
      server: workload.service.server,
      resource: describe(workload),
      processes: workload.replicas,
      limits: workload.limits,
    })),
    notes: [...notes],
    seconds: Math.round((performance.now() - startedMs) / 100) / 10,
  };
}

/** Services of a local simulation, with the processes that run them. */
export interface StartedServices extends RunningServices {
  readonly instances: readonly RunningInstance[];
  /** Stops the processes at once, for an interrupt. */
  stop(): Promise<void>;
}

/** Starts the processes of a plan, one or more for each workload. */
export async function startServices(
  { environment: { name, models }, workloads }: Pick<Artefact, "environment" | "workloads">,
  plan: SimulationPlan,
  options: Parameters<typeof startSimulation>[1],
): Promise<StartedServices> {
  const running = await startSimulation(plan, options);
  const services = workloads.map((workload) =>
    openService(
      name,
      workload,
      models,
      running.instances.filter(({ instance }) => instance.workload === workload),
      plan.targets.filter((target) => target.workload === workload),
    ),
  );
  return {
    services,
    instances: running.instances,
    stop: () => running.stop(),
    async close() {
      await Promise.all(services.map((service) => service.close()));
      await running.stop();
    },
  };
}
