import { rmSync } from "node:fs";
import { join } from "node:path";
import { readArtefact } from "../../artefact/artefact.ts";
import { makeScratchFolder } from "../../artefact/scratch-folder.ts";
import { workloadsBehind } from "../../artefact/simulated-process.ts";
import {
  type RunningInstance,
  requireFreePorts,
  type ServerCommands,
} from "../../artefact/simulation.ts";
import type { Instance, ModelFiles, SimulationPlan } from "../../artefact/simulation-types.ts";
import type { Workload } from "../../artefact/workload.ts";
import { describe } from "../../artefact/workload.ts";
import type { EndpointName, Environment } from "../../contract/environment.ts";
import { gpuLayout, modelConfig } from "../../contract/model-config.ts";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { printModelConfig } from "../../contract/print-model-config.ts";
import { modelControlKeyVariable } from "../../contract/triton-flags.ts";
import { tritonModelName } from "../../contract/triton-models.ts";
import { UserError } from "../../contract/user-error.ts";
import { metricsSource } from "../readings/instance-metrics.ts";
import { softwareHere } from "../readings/software.ts";
import {
  type EnvironmentFile,
  planFor,
  startServices,
  subjectOf,
} from "../service/local-environment.ts";
import { orClose, type TargetService } from "../service/target-service.ts";
import { controlHeaderOf, isSelected, type OpenOptions, openServices } from "./open-services.ts";
import type { OpenTarget } from "./open-target.ts";

/** Local simulation of an environment: processes of clipstack's server in place of its containers. */
export interface SimulatedSource extends ServerCommands {
  readonly kind: "simulated";
  readonly environment: EnvironmentFile;
  /** Reason why the PyTorch baseline cannot run on this machine. @default - it can run */
  readonly noPytorch?: string;
  /** The project's model repository. It replaces volumes of other hosts and has the models of payload formats other than float32. */
  readonly modelRepository: string;
  /** ONNX files in place of those that the artefact mounts. */
  readonly modelFiles?: ModelFiles;
  /** ONNX file of the uint8 model. If set, the Triton server with ONNX Runtime also serves the models of payload formats other than float32. */
  readonly u8ModelFile?: string;
  /** Added to every port of this machine. */
  readonly portOffset: number;
  /**
   * Appended to the command of each Triton server; the last occurrence of an option counts.
   *
   * @default - none
   */
  readonly tritonArgs?: readonly string[];
  /**
   * Endpoints to open; services that none of them needs are not started.
   *
   * @default - all endpoints
   */
  readonly endpoints?: readonly EndpointName[];
}

/** Upper bound of a start, whatever the synthesized health check allows. */
const startLimitSeconds = 180;

/** Starts the simulation of an environment. */
export async function openSimulation(
  source: SimulatedSource,
  options: OpenOptions,
): Promise<OpenTarget> {
  const scratch = makeScratchFolder();
  const removeScratch = () => rmSync(scratch, { recursive: true, force: true });
  try {
    const target = await openIn(scratch, source, options);
    return {
      ...target,
      close: () => target.close().finally(removeScratch),
    };
  } catch (error) {
    removeScratch();
    throw error;
  }
}

/** @param scratch - Folder for the files of the simulation. */
async function openIn(
  scratch: string,
  source: SimulatedSource,
  { tower, signal, onPhase }: OpenOptions,
): Promise<OpenTarget> {
  const startedMs = performance.now();
  const { environment, serverCommand, pytorch } = source;
  const artefact = readArtefact(environment.file, environment.displayPath);
  const { name } = artefact.environment;
  const notes: string[] = [];
  const complete = await planFor(artefact, environment, source, join(scratch, "repositories"));
  const needed = selectNeeded(complete, source.endpoints, name);
  const plan = withPayloadModels(needed, tower.spec, source, notes);
  if (plan.faults.length > 0) {
    const lines = plan.faults.map(({ workload, message }) => `${describe(workload)}: ${message}`);
    throw new UserError(lines.join("\n"));
  }
  await requireFreePorts([{ environment: name, plan }]);
  onPhase(`starting ${plan.instances.map((instance) => instance.name).join(", ")}`);
  const workloads = artefact.workloads.filter((workload) =>
    plan.instances.some((instance) => instance.workload === workload),
  );
  const started = await startServices({ ...artefact, workloads }, plan, {
    serverCommand,
    pytorch,
    signal,
    startLimitSeconds,
  });
  const instancesBehind = ({ workload }: TargetService): readonly RunningInstance[] => {
    const counted = [workload, ...workloadsBehind(workload, workloads)];
    return started.instances.filter(({ instance }) => counted.includes(instance.workload));
  };
  return orClose(started, async () => {
    requireStarted(started.instances);
    return openServices(started, tower, source.endpoints, {
      target: "simulation",
      reach: (service) => ({
        metrics: instancesBehind(service)
          .map(metricsSource)
          .filter(({ url }) => url !== undefined),
        pids: instancesBehind(service).map(({ child }) => child.pid),
        controlHeader: controlHeaderOf(
          service.workload.command,
          service.workload.env[modelControlKeyVariable],
        ),
      }),
      environments: () => [subjectOf(artefact, environment, plan.notes, startedMs)],
      software: async ({ workload }) =>
        workload.service.kind === "baseline" ? undefined : softwareHere(),
      notes: [...notes, ...simulationNotes(artefact.environment)],
    });
  });
}

function simulationNotes({ name, gpu, accelerator }: Environment): readonly string[] {
  const simulated = `${name}: local processes of clipstack's server replaced its containers`;
  return accelerator === "cpu" || gpu === undefined
    ? [`${simulated}.`]
    : [
        `${simulated}, on this machine's CPU. Its ${gpu.count} × ${gpu.name} were not used: the record does not describe their throughput or cost.`,
      ];
}

function requireStarted(instances: readonly RunningInstance[]): void {
  const failed = instances.flatMap(({ instance, start }) =>
    start.ok ? [] : [`${instance.name} ${start.message}`],
  );
  if (failed.length > 0) throw new UserError(failed.join("\n"));
}

/** Returns the plan with only the services that offer the endpoints, and the Triton servers behind these services. */
function selectNeeded(
  plan: SimulationPlan,
  endpoints: readonly EndpointName[] | undefined,
  environment: string,
): SimulationPlan {
  const offers = ({ workload }: { readonly workload: Workload }) =>
    workload.service.endpoints.some(
      ({ name }) => name !== undefined && isSelected(name, endpoints),
    );
  const all = plan.instances.map(({ workload }) => workload);
  const offering = plan.instances.filter(offers).map(({ workload }) => workload);
  if (offering.length === 0) {
    throw new UserError(
      `${environment} offers none of ${endpoints?.join(", ") ?? "the endpoints"}`,
    );
  }
  const needed = new Set([
    ...offering,
    ...offering.flatMap((workload) => workloadsBehind(workload, all)),
  ]);
  const instances = plan.instances.filter(({ workload }) => needed.has(workload));
  const names = new Set([
    ...instances.map(({ name }) => name),
    ...[...needed].map(({ name }) => name),
  ]);
  return {
    ...plan,
    instances,
    proxies: plan.proxies.filter(({ workload }) => needed.has(workload)),
    faults: plan.faults.filter(({ workload }) => needed.has(workload)),
    targets: plan.targets.filter(({ workload }) => needed.has(workload)),
    hostPorts: plan.hostPorts.filter(({ neededBy }) => names.has(neededBy)),
  };
}

/** Returns the plan with additional Triton options and, if requested, the models of payload formats other than float32. */
function withPayloadModels(
  plan: SimulationPlan,
  spec: ModelSpec,
  { tritonArgs = [], u8ModelFile, modelRepository }: SimulatedSource,
  notes: string[],
): SimulationPlan {
  const kinds = payloadKinds.map((modelKind) => tritonModelName(spec, modelKind));
  const [u8Model = "", preprocessModel = "", jpegModel] = kinds;
  const instances = plan.instances.map((instance): Instance => {
    if (instance.role !== "triton") return instance;
    const { name, repository, workload } = instance;
    const args = [...instance.args, ...tritonArgs];
    const isExplicit = args.includes("--model-control-mode=explicit");
    if (
      u8ModelFile === undefined ||
      workload.service.backend !== "onnxruntime" ||
      repository === undefined
    ) {
      return { ...instance, args };
    }
    notes.push(
      `${name}: the simulation also serves ${u8Model} and ${jpegModel}, which the container lacks.`,
    );
    return {
      ...instance,
      args: isExplicit ? [...args, ...kinds.map((model) => `--load-model=${model}`)] : args,
      repository: {
        ...repository,
        parts: [
          ...repository.parts,
          ...payloadKinds.map((modelKind) => ({
            path: tritonModelName(spec, modelKind),
            files: { "config.pbtxt": printModelConfig(modelConfig(spec, modelKind, gpuLayout(0))) },
          })),
          { path: `${jpegModel}/1`, files: { ".keep": "" } },
          {
            path: `${preprocessModel}/1`,
            source: join(modelRepository, tritonModelName(defaultModel, "preprocess"), "1"),
          },
        ],
        replacements: { ...repository.replacements, [u8Model]: u8ModelFile },
      },
    };
  });
  return { ...plan, instances };
}

/** Models of the payload formats other than float32: pixels, then the steps and the ensemble for image files. */
const payloadKinds = ["u8", "preprocess", "jpeg"] as const;
