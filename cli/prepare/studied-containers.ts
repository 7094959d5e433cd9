import type { Artefact } from "../../artefact/artefact.ts";
import type { Workload } from "../../artefact/workload.ts";
import {
  type ColdStartOptions,
  measureStart,
  type StartableService,
} from "../../bench/studies/cold-start.ts";
import type { MemoryReading } from "../../bench/studies/memory.ts";
import { requestedModel } from "../../contract/environment.ts";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { quantity } from "../../contract/quantity.ts";
import { UserError } from "../../contract/user-error.ts";
import type { DeployedEnvironment } from "../../target/service/deployed-environment.ts";
import { Docker, ifReachable } from "../host/docker-command.ts";
import { isUnknown, type RunOnHost, runnerFor } from "../host/host-facts.ts";

/** Operations on deployed containers through their Docker endpoint. */
export interface StudiedContainers {
  /** Restarts each container while the others keep running and measures its start. @returns Notes. */
  measure(options: ColdStartOptions): Promise<readonly string[]>;
  /** Resident memory of a service, as reported by Docker, and its GPU memory, as reported by `nvidia-smi`. */
  readMemory(service: string): Promise<MemoryReading>;
}

/** Containers of an environment; `undefined` for an environment in a cluster. */
export function studiedContainers(
  environment: DeployedEnvironment,
  artefact: Artefact,
  signal: AbortSignal,
): StudiedContainers | undefined {
  const { deployed } = environment;
  if (deployed.namespace !== undefined) return undefined;
  const docker = new Docker(deployed.where, signal);
  const onHost = runnerFor(deployed.where);
  const containers = artefact.workloads
    .filter(({ kind }) => kind === "container")
    // Triton servers before the gateway that depends on them
    .sort((a, b) => startOrder(a) - startOrder(b));
  return {
    async measure(options) {
      const access = await environment.openAccess();
      try {
        for (let round = 1; round <= options.rounds; round++) {
          for (const workload of containers) {
            const { name, service } = workload;
            const endpoints = deployed.services.find(
              ({ name }) => name === service.name,
            )?.endpoints;
            const http = endpoints?.find(({ name }) => name?.endsWith("-http"));
            if (http === undefined) continue;
            options.onPhase(`stop and start ${name}, round ${round} of ${options.rounds}`);
            await run(docker, "stop", name);
            const started = startable(
              workload,
              options.spec,
              access.url(http.url),
              environment.apiKey,
              docker,
            );
            options.onStart(await measureStart(started, round, options));
          }
        }
      } finally {
        // after an interruption, a container may be stopped
        const cleanup = new Docker(deployed.where);
        for (const { name } of containers) await run(cleanup, "start", name).catch(() => {});
        await access.close();
      }
      return [
        "Each container was restarted while the others kept running; times start at the start command.",
      ];
    },
    async readMemory(service) {
      const name = containers.find((container) => container.service.name === service)?.name;
      if (name === undefined) return {};
      const reading = Promise.all([
        readResident(docker, name),
        deployed.accelerator === "gpu" ? readGpuMemory(docker, onHost, name) : undefined,
      ]);
      const [residentMiB, gpuMemoryMiB] = (await ifReachable(reading)) ?? [];
      return { residentMiB, gpuMemoryMiB };
    },
  };
}

async function readResident(docker: Docker, name: string): Promise<number | undefined> {
  const { exitCode, stdout } = await docker.run(
    ...["stats", "--no-stream", "--format", "{{.MemUsage}}", name],
  );
  return exitCode === 0 ? mebibytes(stdout) : undefined;
}

/** GPU memory of a container's processes, by process id on the host; `undefined` if `nvidia-smi` does not list processes. */
async function readGpuMemory(
  docker: Docker,
  onHost: RunOnHost,
  name: string,
): Promise<number | undefined> {
  const [processes, used] = await Promise.all([
    docker.run("top", name, "-eo", "pid"),
    onHost("nvidia-smi", ["--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]),
  ]);
  if (processes.exitCode !== 0 || isUnknown(used) || used.exitCode !== 0) return undefined;
  const pids = new Set(processes.stdout.split("\n").map((line) => line.trim()));
  const usedMiB = used.stdout.split("\n").flatMap((line) => {
    const [pid = "", mib = ""] = line.split(",").map((cell) => cell.trim());
    return pids.has(pid) && /^\d+$/.test(mib) ? [Number(mib)] : [];
  });
  return usedMiB.length === 0 ? undefined : usedMiB.reduce((sum, mib) => sum + mib, 0);
}

function startOrder({ service }: Workload): number {
  return service.kind === "triton" ? 0 : 1;
}

async function run(docker: Docker, command: "start" | "stop", name: string): Promise<void> {
  const { exitCode, stderr } = await docker.run(command, name);
  if (exitCode === 0) return;
  throw new UserError(`docker ${command} ${name} failed: ${stderr.trim().split("\n").at(-1)}`);
}

function startable(
  { name, service, probes }: Workload,
  spec: ModelSpec,
  url: string,
  apiKey: string | undefined,
  docker: Docker,
): StartableService {
  let failure: string | undefined;
  return {
    service: service.name,
    role: service.kind,
    url,
    spec,
    model: requestedModel(service, spec.name),
    apiKey: service.authorization === undefined ? undefined : apiKey,
    budgetSeconds: Math.max(60, ...probes.map(({ budgetSeconds }) => budgetSeconds)),
    // not awaited, because the time starts at the command
    async start() {
      run(docker, "start", name).catch((error: Error) => {
        failure = error.message;
      });
    },
    ended: () => failure,
  };
}

/** Parses memory in `docker stats`: `1.943GiB / 15.6GiB`; `undefined` for a stopped container (`0B / 0B`). */
export function mebibytes(text: string): number | undefined {
  const [used = ""] = text.split("B");
  const mib = quantity(used) / 2 ** 20;
  return mib > 0 ? mib : undefined;
}
