import { readArtefact } from "../../artefact/artefact.ts";
import type { ModelFiles } from "../../artefact/simulation-types.ts";
import type { BenchEvent } from "../../bench/measure/bench-events.ts";
import type { RequestedEndpoint } from "../../bench/measure/choose-endpoints.ts";
import type { BenchRecord } from "../../bench/record/bench-record.ts";
import type { ServiceKind } from "../../contract/environment.ts";
import { isLoopback } from "../../contract/loopback.ts";
import { UserError } from "../../contract/user-error.ts";
import { projectRepository } from "../../model-tools/files/folders.ts";
import { isSelected } from "../../target/open/open-services.ts";
import type { TargetSource } from "../../target/target.ts";
import { deployedEnvironments } from "../cluster/deployed-environments.ts";
import { driverVersion, gpuReader } from "../host/gpu-reader.ts";
import { pytorchFor } from "../model/pytorch-baseline.ts";
import {
  environmentFiles,
  filesWithHelm,
  type SynthesizedFile,
  synthesizeUnlessEdited,
} from "../shared/artefact.ts";
import { defaultEnvironment } from "../shared/default-environment.ts";
import { endpointsOf, serversOf } from "../shared/endpoint-address.ts";
import type { BenchArguments } from "./bench-options.ts";
import { simulationServer } from "./choose-model.ts";

/** What the options select: a simulation, a deployment or addresses. */
export function targetOf({ target, url }: BenchArguments): BenchRecord["subject"]["target"] {
  return url === undefined ? (target ?? "simulation") : "addresses";
}

type OnEvent = (event: BenchEvent) => void;

export interface SourceOptions {
  /** Endpoints to measure; if absent, all existing ones. */
  readonly endpoints?: readonly RequestedEndpoint[];
  readonly signal: AbortSignal;
  readonly onEvent: OnEvent;
  readonly modelFiles?: ModelFiles;
  readonly u8ModelFile?: string;
}

/** Synthesized files of the environments to measure; none if addresses are given. */
export async function environmentsOf(
  names: readonly string[],
  args: BenchArguments,
  onEvent: OnEvent,
): Promise<readonly SynthesizedFile[]> {
  const onNotice = (text: string) => onEvent({ kind: "notice", text });
  if (args.url !== undefined) {
    if (names.length > 0 || args.target !== undefined) {
      throw new UserError("--url cannot be combined with environments or --target");
    }
    return [];
  }
  if (args.metricsUrl !== undefined) {
    throw new UserError(
      "--metrics-url requires --url, because environments declare their metrics addresses",
    );
  }
  const environments = names.length === 0 ? [defaultEnvironment("single-gpu")] : names;
  if (args.synth && targetOf(args) === "simulation") {
    await synthesizeUnlessEdited(environments, {
      onNotice,
      onSynthesize: () => onEvent({ kind: "phase", text: "synthesize" }),
    });
  }
  return filesWithHelm(environments, environmentFiles(environments), onNotice);
}

/** Where the requests of a run go: one source per environment, or one for the addresses. */
export async function sourcesOf(
  files: readonly SynthesizedFile[],
  args: BenchArguments,
  { modelFiles, u8ModelFile, endpoints, signal, onEvent }: SourceOptions,
): Promise<readonly TargetSource[]> {
  const onNotice = (text: string) => onEvent({ kind: "notice", text });
  if (args.url !== undefined) {
    const apiKey = process.env.INFERENCE_API_KEY?.trim() || undefined;
    const servers = serversOf(args.url);
    if (servers !== undefined) {
      return servers.map((url) => ({ kind: "server", url, protocol: args.protocol, apiKey }));
    }
    const addresses = endpointsOf(args.url);
    const here = addresses.every(({ url }) => isLoopback(hostOf(url))) ? thisHost : undefined;
    return [
      {
        kind: "addresses",
        endpoints: addresses,
        metrics: args.metricsUrl ?? [],
        apiKey,
        ...(args.precision === "fp16" && { precision: args.precision }),
        readGpus: here && gpuReader(here, [], signal),
        readDriver: here && (() => driverVersion(here, [], signal)),
      },
    ];
  }
  const names = endpoints && [...new Set(endpoints.map(({ endpoint }) => endpoint))];
  if (targetOf(args) === "simulation") {
    const measured = isSelected("pytorch-http", names) ? files : [];
    const baseline = await pytorchFor(measured, { onProgress: onNotice, signal });
    if (baseline.noPytorch !== undefined) {
      const line = `pytorch-http cannot be measured: ${baseline.noPytorch}`;
      if (endpoints?.some(isNamedBaseline)) throw new UserError(line);
      onNotice(line);
    }
    return files.map((environment) => ({
      kind: "simulated",
      environment,
      serverCommand: simulationServer,
      ...baseline,
      modelRepository: projectRepository,
      modelFiles,
      u8ModelFile,
      portOffset: args.portOffset,
      endpoints: names,
    }));
  }
  const environments = files.map(({ name }) => name);
  const deployed = await deployedEnvironments(environments, files, {
    portOffset: args.portOffset,
    signal,
    onNotice,
  });
  return deployed.map((environment) => {
    const { workloads } = readArtefact(environment.file, environment.displayPath);
    const containers = workloads
      .filter(({ kind }) => kind === "container")
      // Triton's image contains nvidia-smi; other containers with a GPU get it from the runtime
      .sort((a, b) => rank(a.service.kind) - rank(b.service.kind))
      .map(({ name }) => name);
    return {
      kind: "deployed",
      environment,
      endpoints: names,
      readGpus: gpuReader(environment.deployed, containers, signal),
      readDriver: () => driverVersion(environment.deployed, containers, signal),
      listFiles: (container, folder) => environment.runInContainer(container, ["ls", folder]),
    };
  });
}

/** This machine as the host of services, for its GPUs. */
const thisHost = { accelerator: "gpu", where: "unix:///var/run/docker.sock" } as const;

/** @param url - Also `host:port`. */
function hostOf(url: string): string {
  return new URL(url.includes("://") ? url : `grpc://${url}`).hostname;
}

const isNamedBaseline = ({ endpoint, byName }: RequestedEndpoint) =>
  endpoint === "pytorch-http" && byName;

const rank = (kind: ServiceKind) => (kind === "triton" ? 0 : 1);
