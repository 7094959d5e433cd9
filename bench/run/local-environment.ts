import { existsSync } from "node:fs";
import { dirname, resolve } from "node:path";
import type { Artefact } from "../../artefact/artefact.ts";
import { freePorts } from "../../artefact/free-ports.ts";
import { planSimulation } from "../../artefact/simulation-plan.ts";
import type { SimulationPlan } from "../../artefact/simulation-types.ts";
import { describe } from "../../artefact/workload.ts";
import type { EnvironmentSubject } from "../record/record.ts";

export interface EnvironmentFile {
  /** Path of `cdk.tf.json`. */
  readonly file: string;
  /** How it is shown. */
  readonly displayPath: string;
  readonly editedByHand: boolean;
}

export interface LocalEnvironmentOptions {
  /** Added to every published port. */
  readonly portOffset: number;
  /** The project's model repository, for volumes of other hosts. */
  readonly modelRepository: string;
  /** ONNX file in place of every model; absent: what the artefacts mount. */
  readonly modelFile?: string;
}

/** Listeners that need a free port are at most these for one replica. */
const portsPerReplica = 3;

/** The processes that stand in for an environment, on free ports where it publishes none. */
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
    modelFile: options.modelFile,
    exists: existsSync,
    temporaryFolder,
    portOffset: options.portOffset,
    freePort: () => free.pop() ?? 0,
  });
}

/**
 * Subject of a record: one environment, wherever it ran.
 *
 * @param beganMs - Start of its run, on the clock of `performance.now()`.
 */
export function subjectOf(
  { environment, workloads, sha256 }: Artefact,
  { displayPath, editedByHand }: EnvironmentFile,
  notes: readonly string[],
  beganMs: number,
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
    })),
    notes: [...notes],
    seconds: Math.round((performance.now() - beganMs) / 100) / 10,
  };
}
