import { rmSync } from "node:fs";
import { join, relative } from "node:path";
import { type Artefact, readArtefact } from "../../artefact/artefact.ts";
import { makeScratchFolder } from "../../artefact/scratch-folder.ts";
import { requireFreePorts } from "../../artefact/simulation.ts";
import { readBenchRecord } from "../../bench/record/bench-record.ts";
import { type ColdStartOptions, coldStarts } from "../../bench/studies/cold-start.ts";
import {
  type StudiedDeployment,
  type StudyEnvironment,
  StudyUnavailable,
} from "../../bench/studies/study.ts";
import type { EndpointName, Environment } from "../../contract/environment.ts";
import { UserError } from "../../contract/user-error.ts";
import type { AddressesSource } from "../../target/open/addresses.ts";
import type { DeployedSource } from "../../target/open/deployment.ts";
import type { SimulatedSource } from "../../target/open/simulation.ts";
import { loadImages } from "../../target/requests/load-items.ts";
import {
  type EnvironmentFile,
  planFor,
  subjectOf,
} from "../../target/service/local-environment.ts";
import type { EnvironmentSubject } from "../../target/subject/subject.ts";
import type { PreparedBench } from "./run-bench.ts";
import { studiedContainers } from "./studied-containers.ts";

export interface StudyEnvironmentsOptions {
  /** Number of measured cold starts. */
  readonly rounds: number;
  /** Record file of another deployment. */
  readonly against?: string;
  /** Whether deployed containers may be stopped and started. */
  readonly mayRestart: boolean;
}

/** Calls `use` with the environments to study and removes their temporary files. */
export async function withStudyEnvironments<Result>(
  prepared: PreparedBench,
  options: StudyEnvironmentsOptions,
  use: (environments: readonly StudyEnvironment[]) => Promise<Result>,
): Promise<Result> {
  const scratch = makeScratchFolder();
  try {
    return await use(
      prepared.sources.map((source) => {
        if (source.kind === "simulated") {
          return simulated(source, prepared, options, scratch);
        }
        if (source.kind === "server")
          throw new UserError("sweep needs endpoints: ENDPOINT=ADDRESS");
        return source.kind === "deployed" ? deployed(source, prepared, options) : endpoints(source);
      }),
    );
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

function endpoints(source: AddressesSource): StudyEnvironment {
  const name = "addresses";
  return {
    name,
    offers: source.endpoints.map(({ endpoint }) => endpoint),
    source: ({ endpoints }) => ({
      ...source,
      endpoints: source.endpoints.filter(({ endpoint }) => endpoints.includes(endpoint)),
    }),
    async coldStarts() {
      throw new StudyUnavailable("of addresses nothing can be started from here");
    },
  };
}

function simulated(
  source: SimulatedSource,
  prepared: PreparedBench,
  { rounds }: StudyEnvironmentsOptions,
  scratch: string,
): StudyEnvironment {
  const { environment } = source;
  const artefact = readArtefact(environment.file, environment.displayPath);
  const { name } = artefact.environment;
  return {
    name,
    offers: endpointNamesIn(artefact.environment),
    subject: subjects(environment, artefact),
    source: (change) => ({ ...source, ...change }),
    async coldStarts(onStart) {
      const plan = await planFor(artefact, environment, source, join(scratch, name));
      await requireFreePorts([{ environment: name, plan }]);
      await coldStarts(plan, source, coldStartOptions(prepared, name, rounds, onStart));
      return [
        "Local processes of clipstack's server, started sequentially with a warm file cache. Pulling images and building TensorRT engines are not included.",
      ];
    },
  };
}

function coldStartOptions(
  { context, spec }: PreparedBench,
  environment: string,
  rounds: number,
  onStart: ColdStartOptions["onStart"],
): ColdStartOptions {
  const { items, signal, onEvent } = context;
  const onPhase = (text: string) => onEvent({ kind: "phase", environment, text });
  return { rounds, spec, image: loadImages(items)[0]!, signal, onPhase, onStart };
}

/** Returns the environment's subject in the record, with the elapsed time. */
function subjects(file: EnvironmentFile, artefact: Artefact): () => EnvironmentSubject {
  const startedMs = performance.now();
  return () => subjectOf(artefact, file, [], startedMs);
}

function deployed(
  source: DeployedSource,
  prepared: PreparedBench,
  options: StudyEnvironmentsOptions,
): StudyEnvironment {
  const { deployed: environment } = source.environment;
  const { name } = environment;
  const artefact = readArtefact(source.environment.file, source.environment.displayPath);
  const { signal } = prepared.context;
  const containers = studiedContainers(source.environment, artefact, signal);
  return {
    name,
    offers: endpointNamesIn(environment),
    subject: subjects(source.environment, artefact),
    source: ({ endpoints }) => ({ ...source, endpoints }),
    async coldStarts(onStart) {
      if (containers === undefined) {
        throw new StudyUnavailable("pods are not restarted from here");
      }
      if (!options.mayRestart) {
        throw new StudyUnavailable("restarting its containers requires --restart");
      }
      return containers.measure(coldStartOptions(prepared, name, options.rounds, onStart));
    },
    readMemory: containers?.readMemory,
    deployment: {
      gpus: environment.gpu?.count ?? 1,
      topology: topologyOf(environment),
      ...(options.against !== undefined && {
        against: {
          path: relative("", options.against),
          record: readBenchRecord(options.against),
        },
      }),
    },
  };
}

function topologyOf({ services, namespace }: Environment): StudiedDeployment["topology"] {
  const perGpu = namespace !== undefined || services.some(({ name }) => /^triton-\d+$/.test(name));
  return perGpu ? "per-gpu" : "instance-group";
}

function endpointNamesIn({ services }: Environment): readonly EndpointName[] {
  return services.flatMap(({ endpoints: all }) => all.flatMap(({ name }) => name ?? []));
}
