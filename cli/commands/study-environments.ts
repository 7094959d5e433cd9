import { rmSync } from "node:fs";
import { join, relative } from "node:path";
import { type Artefact, readArtefact } from "../../artefact/artefact.ts";
import { makeScratchFolder } from "../../artefact/scratch-folder.ts";
import { requirePorts } from "../../artefact/simulation.ts";
import { readBenchRecord } from "../../bench/record/bench-record.ts";
import { coldStarts } from "../../bench/studies/cold-start.ts";
import { profileOperators } from "../../bench/studies/operators.ts";
import { loadPointsOf } from "../../bench/studies/other-record.ts";
import {
  type EnvironmentVariant,
  type SourceChange,
  type StudyEnvironment,
  StudyUnavailable,
} from "../../bench/studies/study.ts";
import type { EndpointName, Environment } from "../../contract/environment.ts";
import { gpuLayout } from "../../contract/model-config.ts";
import { sessionOptions } from "../../inference/session/onnx-session.ts";
import type { DeployedSource } from "../../target/open/deployed-targets.ts";
import type { AddressesSource } from "../../target/open/endpoint-targets.ts";
import type { SimulatedSource } from "../../target/open/simulated-targets.ts";
import { loadImages } from "../../target/requests/load-items.ts";
import {
  type EnvironmentFile,
  planFor,
  subjectOf,
} from "../../target/service/local-environment.ts";
import type { EnvironmentSubject } from "../../target/subject/subject.ts";
import { project } from "../shared/project.ts";
import {
  type EnvironmentVariants,
  openVariants,
  type SettingChange,
} from "./environment-variants.ts";
import type { PreparedBench } from "./run-bench.ts";
import { studiedContainers } from "./studied-containers.ts";

export interface StudyEnvironmentsOptions {
  /** Number of measured cold starts. */
  readonly rounds: number;
  /** Batch sizes at which operators are profiled. */
  readonly profileBatches: readonly number[];
  /** Execution provider for profiling. */
  readonly executionProvider: "cpu" | "cuda";
  /** Record file of another deployment. */
  readonly against?: string;
  /** Whether deployed containers may be stopped and started. */
  readonly mayRestart: boolean;
}

type Topology = EnvironmentVariant["conditions"]["topology"];

/** Calls `use` with the environments to study and removes their temporary files. */
export async function withStudyEnvironments<Result>(
  prepared: PreparedBench,
  options: StudyEnvironmentsOptions,
  use: (environments: readonly StudyEnvironment[]) => Promise<Result>,
): Promise<Result> {
  const variants = openVariants();
  const scratch = makeScratchFolder();
  try {
    return await use(
      prepared.sources.map((source) => {
        if (source.kind === "simulated") {
          return simulated(source, prepared, options, variants, scratch);
        }
        return source.kind === "deployed"
          ? deployed(source, prepared, options)
          : endpoints(source, prepared, options);
      }),
    );
  } finally {
    variants.remove();
    rmSync(scratch, { recursive: true, force: true });
  }
}

function endpoints(
  source: AddressesSource,
  prepared: PreparedBench,
  options: StudyEnvironmentsOptions,
): StudyEnvironment {
  const name = "addresses";
  return {
    name,
    offers: source.endpoints.map(({ endpoint }) => endpoint),
    source: ({ endpoints }) => ({
      ...source,
      endpoints: source.endpoints.filter(({ endpoint }) => endpoints.includes(endpoint)),
    }),
    coldStarts: unavailable("of addresses nothing can be started from here"),
    profiles: profiles(name, ["model"], prepared, options),
    variants: unavailable("addresses have one set of GPUs"),
  };
}

function unavailable(message: string) {
  return async (): Promise<never> => {
    throw new StudyUnavailable(message);
  };
}

function simulated(
  source: SimulatedSource,
  prepared: PreparedBench,
  { rounds, ...options }: StudyEnvironmentsOptions,
  variants: EnvironmentVariants,
  scratch: string,
): StudyEnvironment {
  const { environment } = source;
  const artefact = readArtefact(environment.file, environment.displayPath);
  const { name } = artefact.environment;
  return {
    name,
    offers: endpointNamesIn(artefact.environment),
    subject: subjects(environment, artefact),
    source: (change) => changed(source, change),
    async coldStarts(onStart) {
      const plan = await planFor(artefact, environment, source, join(scratch, name));
      await requirePorts([{ environment: name, plan }]);
      const { context } = prepared;
      await coldStarts(plan, source, {
        rounds,
        spec: prepared.spec,
        image: loadImages(prepared.context.items)[0]!,
        signal: context.signal,
        onPhase: (text) => context.onEvent({ kind: "phase", environment: name, text }),
        onStart,
      });
      return [
        "Local processes of clipstack's server, started sequentially with a warm file cache. Pulling images and building TensorRT engines are not included.",
      ];
    },
    profiles: profiles(name, servicesOf(artefact.environment), prepared, options),
    variants: (study, change) =>
      (study === "scaling" ? scalingVariants : topologyVariants)(
        name,
        changed(source, change),
        variants,
      ),
  };
}

/** Returns the environment's subject in the record, with the elapsed time. */
function subjects(file: EnvironmentFile, artefact: Artefact): () => EnvironmentSubject {
  const startedMs = performance.now();
  return () => subjectOf(artefact, file, [], startedMs);
}

function changed(
  source: SimulatedSource,
  { endpoints, variants, tritonArgs }: SourceChange,
): SimulatedSource {
  const u8ModelFile = variants ? source.u8ModelFile : undefined;
  return { ...source, endpoints, tritonArgs, u8ModelFile };
}

function deployed(
  source: DeployedSource,
  prepared: PreparedBench,
  options: StudyEnvironmentsOptions,
): StudyEnvironment {
  const { deployed: environment } = source.environment;
  const { name } = environment;
  const artefact = readArtefact(source.environment.file, source.environment.displayPath);
  const { context, record } = prepared;
  const containers = studiedContainers(source.environment, artefact, context.signal);
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
      return containers.measure({
        rounds: options.rounds,
        spec: prepared.spec,
        image: loadImages(context.items)[0]!,
        signal: context.signal,
        onPhase: (text) => context.onEvent({ kind: "phase", environment: name, text }),
        onStart,
      });
    },
    readMemory: containers?.readMemory,
    profiles: profiles(name, servicesOf(environment), prepared, options),
    async variants(study, { endpoints }) {
      if (options.against === undefined) {
        throw new StudyUnavailable("requires a record of another deployment: --against");
      }
      const path = relative("", options.against);
      const other = readBenchRecord(options.against);
      record.loadPoints.push(...loadPointsOf(study, other, path, record.subject.model));
      const conditions = {
        gpus: environment.gpu?.count ?? 1,
        topology: topologyOf(environment),
      };
      return {
        variants: [{ conditions, source: { ...source, endpoints } }],
        notes: [
          `Load points labelled (${path}) are from that record, measured ${other.startedAt}.`,
        ],
      };
    },
  };
}

function topologyOf({ services, namespace }: Environment): Topology {
  const perGpu = namespace !== undefined || services.some(({ name }) => /^triton-\d+$/.test(name));
  return perGpu ? "per-gpu" : "instance-group";
}

/** Services that run the original model file. */
function servicesOf({ services }: Environment): readonly string[] {
  const tritons = services.filter(({ kind }) => kind === "triton");
  return (tritons.length > 0 ? tritons : services).map(({ name }) => name);
}

function endpointNamesIn({ services }: Environment): readonly EndpointName[] {
  return services.flatMap(({ endpoints: all }) => all.flatMap(({ name }) => name ?? []));
}

const profileCommand = [process.execPath, join(project, "inference/session/profile-session.mjs")];
/** Total number of images of a profile. */
const profiledImages = 160;

/** Profiles of the original model and of the embed server's optimised model. */
function profiles(
  environment: string,
  services: readonly string[],
  { modelFile, record, context }: PreparedBench,
  {
    profileBatches,
    executionProvider,
  }: Pick<StudyEnvironmentsOptions, "profileBatches" | "executionProvider">,
): StudyEnvironment["profiles"] {
  const { name } = record.subject.model;
  const { signal } = context;
  const profile = (service: string, model: string, modelPath: string, batch: number) =>
    profileOperators({
      environment,
      service,
      model,
      modelPath,
      command: profileCommand,
      sessionOptions: sessionOptions({ executionProvider }),
      batch,
      runs: Math.min(50, Math.max(3, Math.round(profiledImages / batch))),
      signal,
    });
  return [
    ...profileBatches.map((batch) => () => profile(services.join(", "), name, modelFile, batch)),
  ];
}

const cpuNote =
  "Local processes simulated the GPUs and shared this machine's cores. The result shows that each process receives load, not how GPUs scale.";

function requireMultiGpu(name: string, variants: EnvironmentVariants): void {
  if (variants.settingOf(name, ["stack"]) === "multi-gpu") return;
  throw new StudyUnavailable("requires an environment of the stack multi-gpu (--environment)");
}

/** Topologies with the configured GPUs and the gateway's upstream Triton. */
function topologySettings(name: string, variants: EnvironmentVariants) {
  const setting = (...path: string[]) => variants.settingOf(name, path);
  const backend = setting("embed", "upstream") === "triton-trt" ? "tensorrt" : "onnxruntime";
  const group = backend === "onnxruntime" ? "tritonOnnx" : "tritonTrt";
  const gpusOf = (key: string): readonly unknown[] => {
    const gpus = setting(key, "gpus");
    return Array.isArray(gpus) ? gpus : gpuLayout(Number(setting("host", "count") ?? 4)).gpus;
  };
  return {
    chosen: (setting("topology") ?? "instance-group") as Topology,
    gpus: { "instance-group": gpusOf(group), "per-gpu": gpusOf("perGpu") },
    changes: (topology: Topology, gpus: readonly unknown[]): readonly SettingChange[] => [
      { path: ["topology"], value: topology },
      ...(topology === "instance-group"
        ? [{ path: [group, "gpus"], value: gpus }]
        : [
            { path: ["perGpu", "gpus"], value: gpus },
            { path: ["perGpu", "backend"], value: backend },
          ]),
    ],
  };
}

function synthesizedNote({ source }: EnvironmentVariant): string {
  const path = source.kind === "simulated" ? source.environment.displayPath : "";
  return `Synthesized for this load: ${path}.`;
}

async function scalingVariants(
  name: string,
  source: SimulatedSource,
  variants: EnvironmentVariants,
): ReturnType<StudyEnvironment["variants"]> {
  requireMultiGpu(name, variants);
  const { chosen, gpus, changes } = topologySettings(name, variants);
  const all = gpus[chosen];
  const counts = [...new Set([1, Math.ceil(all.length / 2), all.length])];
  const synthesized: EnvironmentVariant[] = [];
  for (const count of counts) {
    const environment = await variants.synthesize(name, changes(chosen, all.slice(0, count)));
    synthesized.push({
      conditions: { gpus: count, topology: chosen },
      source: { ...source, environment },
    });
  }
  return { variants: synthesized, notes: [cpuNote, ...synthesized.map(synthesizedNote)] };
}

async function topologyVariants(
  name: string,
  source: SimulatedSource,
  variants: EnvironmentVariants,
): ReturnType<StudyEnvironment["variants"]> {
  requireMultiGpu(name, variants);
  const { gpus, changes } = topologySettings(name, variants);
  const synthesized: EnvironmentVariant[] = [];
  for (const topology of ["instance-group", "per-gpu"] as const) {
    const environment = await variants.synthesize(name, changes(topology, gpus[topology]));
    synthesized.push({
      conditions: { gpus: gpus[topology].length, topology },
      source: { ...source, environment },
    });
  }
  return { variants: synthesized, notes: [cpuNote, ...synthesized.map(synthesizedNote)] };
}
