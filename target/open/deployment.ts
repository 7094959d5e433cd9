import { readArtefact } from "../../artefact/artefact.ts";
import type { EndpointName } from "../../contract/environment.ts";
import { modelControlKeyVariable } from "../../contract/triton-flags.ts";
import type { GpuReading } from "../readings/gpu-use.ts";
import { onnxRuntimeFolder, softwareOfContainer } from "../readings/software.ts";
import {
  type DeployedEnvironment,
  metricsOfDeployed,
  openDeployedServices,
} from "../service/deployed-environment.ts";
import { subjectOf } from "../service/local-environment.ts";
import { orClose } from "../service/target-service.ts";
import { controlHeaderOf, type OpenOptions, openServices } from "./open-services.ts";
import type { OpenTarget } from "./open-target.ts";

/** Deployed environment: its containers or pods. */
export interface DeployedSource {
  readonly kind: "deployed";
  readonly environment: DeployedEnvironment;
  /** @default - all endpoints */
  readonly endpoints?: readonly EndpointName[];
  /** Runs `nvidia-smi` on the environment's host. */
  readonly readGpus?: () => Promise<readonly GpuReading[]>;
  /** Version of the NVIDIA driver on the environment's host. */
  readonly readDriver?: () => Promise<string | undefined>;
  /** Names in a folder of a container; empty if unknown. */
  readonly listFiles?: (
    container: string,
    folder: string,
  ) => Promise<readonly string[] | undefined>;
}

export async function openDeployment(
  { environment, endpoints, readGpus, readDriver, listFiles }: DeployedSource,
  { tower, onPhase }: OpenOptions,
): Promise<OpenTarget> {
  const startedMs = performance.now();
  const artefact = readArtefact(environment.file, environment.displayPath);
  const { deployed } = environment;
  onPhase(`connecting to ${deployed.name}`);
  const running = await openDeployedServices(environment, artefact);
  const { services } = running;
  return orClose(running, async () => {
    const cluster =
      artefact.objects.length > 0 ? await environment.inspectObjects(artefact.objects) : undefined;
    const { gpu } = deployed;
    const containers =
      deployed.namespace === undefined
        ? await environment.inspect(artefact.workloads.map(({ name }) => name))
        : undefined;
    const configOf = (name: string) =>
      containers?.ok === true ? containers.containers.get(name)?.Config : undefined;
    return openServices(running, tower, endpoints, {
      target: "deployed",
      reach: (service) => ({
        metrics: metricsOfDeployed(service, services, cluster),
        apiKey: service.apiKey,
        pids: [],
        controlHeader: controlHeaderOf(
          configOf(service.workload.name)?.Cmd ?? [],
          configOf(service.workload.name)
            ?.Env.find((line) => line.startsWith(`${modelControlKeyVariable}=`))
            ?.slice(modelControlKeyVariable.length + 1),
        ),
      }),
      software: async ({ workload: { name } }) => {
        const config = configOf(name);
        if (config === undefined) return undefined;
        return softwareOfContainer(config.Env, (await listFiles?.(name, onnxRuntimeFolder)) ?? []);
      },
      driver: await readDriver?.(),
      environments: () => [subjectOf(artefact, environment, running.notes, startedMs)],
      gpu: gpu && { name: gpu.name, count: gpu.count, vramMiB: gpu.vramMiB },
      price: gpu && {
        usdPerHour: gpu.usdPerHour,
        date: gpu.priceDate ?? new Date(startedMs).toISOString().slice(0, "2026-11-21".length),
        source: `settings of ${deployed.name}`,
      },
      readGpus,
      notes: running.notes.map((note) => `${deployed.name}: ${note}.`),
    });
  });
}
