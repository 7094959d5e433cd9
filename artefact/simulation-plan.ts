import { join } from "node:path";
import { type Environment, requestedModel, type Service } from "../contract/environment.ts";
import type { Modality } from "../contract/model-spec.ts";
import { UserError } from "../contract/user-error.ts";
import type { Artefact } from "./artefact.ts";
import { clusterProxies, localEndpoint } from "./simulated-endpoints.ts";
import {
  baselineProcessEnv,
  type EmbedContext,
  embedEnv,
  modelRepositoryOf,
  remoteWorkloads,
  tritonOverrides,
  tritonProcessEnv,
} from "./simulated-process.ts";
import {
  portCollisions,
  portFaults,
  readiness,
  type SimulatedServer,
  simulatedServer,
} from "./simulated-server.ts";
import { repositoryPlan, simulatedVolumes } from "./simulated-volumes.ts";
import type {
  Fault,
  Instance,
  Listener,
  ProxyPlan,
  SimulationPlan,
  SimulationPlanOptions,
} from "./simulation-types.ts";
import { hasHostName, type Workload } from "./workload.ts";

/** Process with its ports, before its paths and upstream addresses are resolved. */
interface Draft extends SimulatedServer {
  readonly name: string;
  readonly listeners: readonly Listener[];
}

/** Plans the processes, ports, environment variables and command lines that simulate one environment. */
export function planSimulation(artefact: Artefact, options: SimulationPlanOptions): SimulationPlan {
  const faults: Fault[] = [];
  const notes = new Set(containersNotRun(artefact));
  const remote = artefact.workloads.flatMap((workload) => {
    const models = towersOf(workload.service, artefact.environment).map(({ folder }) => folder);
    return remoteWorkloads(workload, models);
  });
  for (const { name } of remote) {
    notes.add(`${name} is on another host: a Triton emulator runs in its place`);
  }
  const workloads = [...artefact.workloads, ...remote];
  const shift = (port: number) => shiftPort(port, options.portOffset);
  const servers = workloads
    .filter((workload) => canRun(workload, options, notes))
    .map((workload) => simulatedServer(workload, faults));
  const drafts = servers.flatMap((server) => draftsOf(server, shift, options.freePort));
  for (const server of servers) {
    const { workload } = server;
    faults.push(...workload.faults.map((message) => ({ workload, message })));
    faults.push(...portFaults(server));
  }
  faults.push(...portCollisions(workloads));

  const localPorts = (host: string, port: number) => localPortsOf(drafts, host, port);
  const instances = drafts.map((draft): Instance => {
    const volumes = simulatedVolumes(draft.workload, options, notes);
    const { listeners } = draft;
    const context = { listeners, volumes, workloads, localPorts, faults, notes };
    return instanceOf(draft, artefact.environment, options, context);
  });

  const proxyTo = (workload: Workload, internal: number, port: number): ProxyPlan => ({
    workload,
    port,
    backends: instances
      .filter((instance) => instance.workload === workload)
      .flatMap(({ listeners }) => listeners.filter((it) => it.internal === internal))
      .map(({ local }) => local),
  });
  const publishing = workloads
    .filter(({ kind }) => kind === "deployment")
    .flatMap((workload) =>
      workload.published.map(({ internal, external }) =>
        proxyTo(workload, internal, shift(external)),
      ),
    );
  const inCluster = clusterProxies(workloads, proxyTo, options.freePort);
  return {
    instances,
    proxies: [...publishing, ...inCluster.values()],
    targets: servers.flatMap((server) =>
      server.workload.service.endpoints.map((endpoint) =>
        localEndpoint(server, endpoint, { shift, clusterProxies: inCluster, faults }),
      ),
    ),
    faults,
    notes: [...notes],
    hostPorts: hostPortsOf(instances, publishing),
  };
}

/** Returns whether a workload can run on this machine, and adds a note otherwise. */
function canRun(
  { service, name }: Workload,
  { noPytorch }: SimulationPlanOptions,
  notes: Set<string>,
): boolean {
  if (service.kind !== "baseline" || noPytorch === undefined) return true;
  notes.add(`${name} is not run: ${noPytorch}`);
  return false;
}

function containersNotRun({ otherContainers, volumeFillers }: Artefact): readonly string[] {
  return otherContainers.map((address) =>
    volumeFillers.includes(address)
      ? `${address} is not run: the files that it puts into its volume are read from the artefact`
      : `${address} implements no service and is not run`,
  );
}

/** One process for each replica, with a local port for each container port. */
function draftsOf(
  server: SimulatedServer,
  shift: (port: number) => number,
  freePort: () => number,
): readonly Draft[] {
  const { workload, listens } = server;
  const isContainer = workload.kind === "container";
  return Array.from({ length: workload.replicas }, (_, replica) => ({
    ...server,
    name: isContainer ? workload.name : `${workload.name} #${replica + 1}`,
    listeners: listens.map((listening): Listener => {
      const published = workload.published.find((port) => port.internal === listening.internal);
      const isDirect = isContainer && published !== undefined;
      return { ...listening, local: isDirect ? shift(published.external) : freePort() };
    }),
  }));
}

function localPortsOf(drafts: readonly Draft[], host: string, port: number): readonly number[] {
  const named = drafts.filter(({ workload }) => hasHostName(workload, host));
  // all replicas of a Deployment, like a Service, which may have another port than the container
  const behind = named[0]?.workload.kind === "container" ? named.slice(0, 1) : named;
  return behind.flatMap(({ workload, listeners }) => {
    const { internal = port } = workload.inCluster.find((it) => it.external === port) ?? {};
    return listeners.filter((it) => it.internal === internal).map(({ local }) => local);
  });
}

function instanceOf(
  { workload, name, role, flags, listeners }: Draft,
  environment: Environment,
  { temporaryFolder, modelFiles }: SimulationPlanOptions,
  context: EmbedContext,
): Instance {
  const common = {
    workload,
    name,
    role,
    listeners,
    ...readiness(workload, role, listeners),
    graceSeconds: workload.graceSeconds,
  };
  const { volumes } = context;
  const mount = flags?.["model-repository"] ?? modelRepositoryOf(workload);
  const towers = towersOf(workload.service, environment);
  const repository =
    mount === undefined
      ? undefined
      : repositoryPlan(
          mount,
          towers.map(({ folder }) => folder),
          volumes,
          join(temporaryFolder, name.replaceAll(/[^\w.-]+/g, "-")),
          Object.fromEntries(
            towers.flatMap(({ model, modality, folder }) => {
              const file = modelFiles?.get(model)?.[modality];
              return file === undefined ? [] : [[folder, file]];
            }),
          ),
        );
  if (role === "baseline") {
    const [model = ""] = workload.service.models;
    const env = baselineProcessEnv(workload, modelFiles?.get(model)?.image, context);
    return { ...common, args: [], env };
  }
  if (flags === undefined) {
    return {
      ...common,
      args: [],
      env: embedEnv(workload, repository?.folder, context),
      repository,
    };
  }
  const folder = repository?.folder ?? volumes.hostPath(flags["model-repository"]);
  return {
    ...common,
    env: tritonProcessEnv(workload),
    args: [...workload.command, ...tritonOverrides(flags, listeners, folder)],
    repository,
  };
}

/** Towers that a service runs, with their folders in its model repository. */
function towersOf(
  service: Service,
  { models }: Environment,
): readonly { readonly model: string; readonly modality: Modality; readonly folder: string }[] {
  return service.models.flatMap((model) => {
    const towers = models.find(({ name }) => name === model)?.towers ?? {};
    return (["image", "text"] as const)
      .filter((modality) => towers[modality] !== undefined)
      .map((modality) => ({ model, modality, folder: requestedModel(service, model, modality) }));
  });
}

function hostPortsOf(
  instances: readonly Instance[],
  publishing: readonly ProxyPlan[],
): SimulationPlan["hostPorts"] {
  return [
    ...instances
      .filter(({ workload }) => workload.kind === "container")
      .flatMap(({ workload, name, listeners }) =>
        listeners
          .filter(({ internal }) => workload.published.some((port) => port.internal === internal))
          .map(({ local }) => ({ port: local, neededBy: name })),
      ),
    ...publishing.map(({ workload, port }) => ({ port, neededBy: workload.name })),
  ];
}

/** Port of this machine after `--port-offset`. */
export function shiftPort(port: number, offset: number): number {
  const shifted = port + offset;
  if (shifted < 1 || shifted > 65_535) {
    throw new UserError(`--port-offset: port ${port} + ${offset} must be 1 to 65535`);
  }
  return shifted;
}
