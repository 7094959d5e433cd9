import { dirname, isAbsolute, join, normalize, posix } from "node:path";
import { embedPaths } from "../contract/embed-api.ts";
import type { Endpoint } from "../contract/environment.ts";
import { oipPaths } from "../contract/oip-paths.ts";
import { modelRepositoryMount, serverEnv } from "../contract/server-env.ts";
import {
  parseTritonArgs,
  type ResolvedTritonFlags,
  renderTritonCommand,
} from "../contract/triton-flags.ts";
import { UserError } from "../contract/user-error.ts";
import type { Artefact, Volume, Workload } from "./artefact.ts";
import { clusterAddress } from "./cluster-address.ts";
import { parseAs } from "./parse.ts";
import { evaluatePath } from "./terraform-text.ts";

/** Address that everything of the embedded runtime listens on. */
export const loopback = "127.0.0.1";

/** The processes that stand in for the containers of one environment. Nothing has started yet. */
export interface SimulationPlan {
  readonly instances: readonly Instance[];
  readonly proxies: readonly ProxyPlan[];
  /** What in the artefact does not fit together. Each is a failed check. */
  readonly faults: readonly Fault[];
  /** What differs from the real thing on purpose; part of the record. */
  readonly notes: readonly string[];
  /** Every endpoint of the environment, and where it is on this machine. */
  readonly targets: readonly Target[];
  /** Ports of this machine that the plan needs, and for whom. */
  readonly hostPorts: readonly { readonly port: number; readonly neededBy: string }[];
}

/** One process: a container, or one replica of a Deployment. */
export interface Instance {
  readonly workload: Workload;
  /** For people: the container's name, or the Deployment's with the replica's number. */
  readonly name: string;
  readonly role: "embed" | "triton";
  /** Arguments of the server. */
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly listeners: readonly Listener[];
  /** URL that the synthesized health check asks, on this machine; the role's own where there is none. */
  readonly readyUrl: string;
  readonly readyBudgetSeconds: number;
  readonly graceSeconds: number;
  /** A model repository to put together before the start; absent where a folder is used as it lies. */
  readonly repository?: RepositoryPlan;
}

/** A model repository to put together, because its parts come from several folders or the model from another file. */
export interface RepositoryPlan {
  readonly folder: string;
  /** What lies where below the folder (`""`: the whole of it), outer parts first, as they are mounted. */
  readonly parts: readonly RepositoryPart[];
  /** ONNX file in place of every model's own. */
  readonly modelFile?: string;
}

export interface RepositoryPart {
  readonly path: string;
  /** Folder of this machine. */
  readonly source?: string;
  /** Texts, by their path in it. */
  readonly files?: Readonly<Record<string, string>>;
}

export type ListenerProtocol = "embed-http" | "oip-http" | "oip-grpc" | "metrics";

export interface Listener {
  readonly protocol: ListenerProtocol;
  /** Port inside the container. */
  readonly internal: number;
  /** Port of this machine. */
  readonly local: number;
}

/** Stands in for a Service: connections to one port, spread over replicas. */
export interface ProxyPlan {
  readonly workload: Workload;
  readonly port: number;
  readonly backends: readonly number[];
}

export interface Fault {
  readonly workload: Workload;
  readonly message: string;
}

/** One endpoint of the environment, as the embedded runtime offers it. */
export interface Target {
  readonly workload: Workload;
  readonly endpoint: Endpoint;
  /** On this machine: `http://127.0.0.1:port`, or `127.0.0.1:port` for gRPC. Absent where nothing leads there. */
  readonly url?: string;
}

export interface SimulationPlanOptions {
  /** Folder of `cdk.tf.json`: what `path.root` stands for. */
  readonly moduleFolder: string;
  /** The project's own model repository, for paths that are meant for another host. */
  readonly modelRepository: string;
  /** Whether a folder or file is there. */
  readonly exists: (path: string) => boolean;
  /** ONNX file that replaces the model of every service; absent: what the artefact mounts. */
  readonly modelFile?: string;
  /** Where model repositories are put together. */
  readonly temporaryFolder: string;
  /** Added to every port of the machine. */
  readonly portOffset: number;
  /** A free port of this machine, another one with each call. */
  readonly freePort: () => number;
}

/** Work out the processes, ports, environment and command lines that stand in for one environment. */
export function planSimulation(artefact: Artefact, options: SimulationPlanOptions): SimulationPlan {
  const faults: Fault[] = [];
  const notes = new Set(
    artefact.otherContainers.map((it) =>
      artefact.volumeFillers.includes(it)
        ? `${it} is not run: what it puts into its volume is taken as it is`
        : `${it} is no service, and is not run`,
    ),
  );
  const shift = (port: number) => shiftPort(port, options.portOffset);
  const servers = artefact.workloads.map((workload) => serverOf(workload, faults));

  const drafts = servers.flatMap((server) => {
    const { workload } = server;
    return Array.from({ length: workload.replicas }, (_, replica) => ({
      ...server,
      name: workload.kind === "container" ? workload.name : `${workload.name} #${replica + 1}`,
      listeners: server.listens.map((listen): Listener => {
        const published = workload.published.find((port) => port.internal === listen.internal);
        const direct = workload.kind === "container" && published !== undefined;
        return { ...listen, local: direct ? shift(published.external) : options.freePort() };
      }),
    }));
  });

  for (const { workload, listens } of servers) {
    faults.push(...workload.faults.map((message) => ({ workload, message })));
    faults.push(...portFaults(workload, listens));
    faults.push(...reloadFaults(workload, listens));
  }
  faults.push(...collisions(artefact.workloads));

  const localsOf = (host: string, port: number): readonly number[] => {
    const own = drafts.filter(({ workload }) => answersTo(workload, host));
    // of a Deployment every replica, as a Service spreads them; its port may be another than theirs
    const of = own[0]?.workload.kind === "container" ? own.slice(0, 1) : own;
    return of.flatMap(({ workload, listeners }) => {
      const { internal = port } = workload.inCluster.find((it) => it.external === port) ?? {};
      return listeners.filter((it) => it.internal === internal).map(({ local }) => local);
    });
  };

  const instances = drafts.map((draft): Instance => {
    const { workload, role, listeners } = draft;
    const mounts = mountsOf(workload, options, notes);
    const ready = readiness(workload, role, listeners);
    const common = {
      workload,
      name: draft.name,
      role,
      listeners,
      readyUrl: ready.url,
      readyBudgetSeconds: ready.budgetSeconds,
      graceSeconds: workload.graceSeconds,
    };
    if (draft.flags !== undefined) {
      const scratch = join(options.temporaryFolder, draft.name.replaceAll(/[^\w.-]+/g, "-"));
      const model = workload.service.model;
      const repository = repositoryFor(draft.flags, model, mounts, scratch, options.modelFile);
      const folder = repository?.folder ?? mounts.place(draft.flags["model-repository"]);
      return {
        ...common,
        env: workload.env,
        args: [...workload.command, ...tritonOverrides(draft.flags, listeners, folder)],
        repository,
      };
    }
    return {
      ...common,
      args: [],
      env: embedEnv(workload, listeners, mounts, localsOf, artefact, faults, notes, options),
    };
  });

  const proxyTo = (workload: Workload, internal: number, port: number): ProxyPlan => ({
    workload,
    port,
    backends: instances.flatMap((instance) =>
      instance.workload !== workload
        ? []
        : instance.listeners.filter((l) => l.internal === internal).map((l) => l.local),
    ),
  });
  const proxies = artefact.workloads.flatMap((workload) =>
    workload.kind === "container"
      ? []
      : workload.published.map(({ internal, external }) =>
          proxyTo(workload, internal, shift(external)),
        ),
  );
  // what only the cluster reaches has no port of this machine: any will do
  const inside = new Map<string, ProxyPlan>();
  for (const workload of artefact.workloads) {
    for (const { url } of workload.service.endpoints) {
      const address = clusterAddress(url);
      const port = workload.inCluster.find(({ external }) => external === address?.port);
      if (address === undefined || port === undefined || inside.has(hostOf(url))) continue;
      if (!answersTo(workload, address.service)) continue;
      inside.set(hostOf(url), proxyTo(workload, port.internal, options.freePort()));
    }
  }

  return {
    instances,
    proxies: [...proxies, ...inside.values()],
    targets: artefact.workloads.flatMap((workload) => {
      const listens = servers.find((server) => server.workload === workload)?.listens ?? [];
      return workload.service.endpoints.map((endpoint) =>
        targetOf(workload, endpoint, listens, shift, inside, faults),
      );
    }),
    faults,
    notes: [...notes],
    hostPorts: [
      ...instances.flatMap(({ workload, name, listeners }) =>
        listeners
          .filter(({ internal }) => workload.published.some((port) => port.internal === internal))
          .filter(() => workload.kind === "container")
          .map(({ local }) => ({ port: local, neededBy: name })),
      ),
      ...proxies.map(({ workload, port }) => ({ port, neededBy: workload.name })),
    ],
  };
}

/** Host and port of one of `TRITON_GRPC_URLS`. */
function upstreamOf(target: string): { readonly host: string; readonly port: number } {
  const [host = "", port] = target
    .trim()
    .replace(/^dns:\/\/\/?/, "")
    .split(":");
  return { host, port: Number(port) };
}

/** Tritons that a gateway forwards to; none for a service that computes itself. */
export function workloadsBehind(gateway: Workload, all: readonly Workload[]): readonly Workload[] {
  const hosts = (gateway.env.TRITON_GRPC_URLS ?? "").split(",").map((it) => upstreamOf(it).host);
  return all.filter((it) => hosts.some((host) => answersTo(it, host)));
}

/** A port of this machine, moved by `--port-offset`. */
export function shiftPort(port: number, offset: number): number {
  const shifted = port + offset;
  if (shifted < 1 || shifted > 65_535) {
    throw new UserError(`--port-offset: port ${port} + ${offset} must be 1 to 65535`);
  }
  return shifted;
}

interface Server {
  readonly workload: Workload;
  readonly role: "embed" | "triton";
  readonly flags?: ResolvedTritonFlags;
  readonly listens: readonly { readonly protocol: ListenerProtocol; readonly internal: number }[];
}

/** What a container's command and environment make of the server: its role and the ports it listens on. */
function serverOf(workload: Workload, faults: Fault[]): Server {
  const [program, ...args] = workload.command;
  if (program === "tritonserver") {
    let flags: ResolvedTritonFlags;
    try {
      flags = parseTritonArgs(args);
    } catch (error) {
      throw new UserError(
        `${describe(workload)}: command: ${error instanceof Error ? error.message : String(error)}`,
      );
    }
    const metrics = { protocol: "metrics", internal: flags["metrics-port"] } as const;
    return {
      workload,
      role: "triton",
      flags,
      listens: [
        { protocol: "oip-http", internal: flags["http-port"] },
        { protocol: "oip-grpc", internal: flags["grpc-port"] },
        ...(flags["allow-metrics"] ? [metrics] : []),
      ],
    };
  }
  if (program !== undefined) {
    throw new UserError(
      `${describe(workload)}: command must be empty or start with 'tritonserver', got '${workload.command.join(" ")}'`,
    );
  }
  if (workload.service.kind === "triton") {
    faults.push({ workload, message: "is a Triton, but its command is not 'tritonserver …'" });
  }
  const { PORT } = parseAs(serverEnv, workload.env, `${describe(workload)}: env`);
  return {
    workload,
    role: "embed",
    listens: [{ protocol: "embed-http", internal: PORT }],
  };
}

/** For messages: Terraform address and name. */
export function describe(workload: Workload): string {
  const kind = workload.kind === "container" ? "container" : "Deployment";
  return `${workload.address} (${kind} '${workload.name}')`;
}

function portFaults(workload: Workload, listens: Server["listens"]): readonly Fault[] {
  const ports = listens.map(({ internal }) => internal).join(", ");
  const listening = (port: number) => listens.some(({ internal }) => internal === port);
  return [
    ...workload.published
      .filter(({ internal }) => !listening(internal))
      .map(({ internal, external }) => ({
        workload,
        message: `publishes ${external} for its port ${internal}, but listens on ${ports}`,
      })),
    ...workload.probes.flatMap(({ kind, http, text }) =>
      http === undefined || listening(http.port)
        ? []
        : [
            {
              workload,
              message: `its ${kind} asks port ${http.port} (${text}), but it listens on ${ports}`,
            },
          ],
    ),
  ];
}

/** Where another configuration is loaded by somebody else than the server that reads it. */
function reloadFaults(workload: Workload, listens: Server["listens"]): readonly Fault[] {
  const http = listens.find(({ protocol }) => protocol === "oip-http")?.internal;
  const own = [workload.name, ...workload.aliases].map((name) => `http://${name}:${http}`);
  return workload.volumes
    .flatMap(({ contents }) => contents?.reloads ?? [])
    .filter(({ url }) => !own.includes(url))
    .map(({ by, url }) => ({
      workload,
      message: `${by} has ${url} load its configuration, but it listens on ${own[0]}`,
    }));
}

/** Two workloads that want one port of the machine. */
function collisions(workloads: readonly Workload[]): readonly Fault[] {
  const owners = new Map<number, Workload>();
  return workloads.flatMap((workload) =>
    workload.published.flatMap(({ external }) => {
      const owner = owners.get(external);
      owners.set(external, owner ?? workload);
      return owner === undefined
        ? []
        : [{ workload, message: `publishes port ${external}, as does ${describe(owner)}` }];
    }),
  );
}

/** Path of the server's own readiness, where no health check says one. */
const readyPaths = { embed: embedPaths.readyz, triton: oipPaths.ready } as const;

function readiness(
  workload: Workload,
  role: "embed" | "triton",
  listeners: readonly Listener[],
): { readonly url: string; readonly budgetSeconds: number } {
  const order = ["health check", "readiness probe", "startup probe", "liveness probe"];
  const budgetSeconds = Math.max(30, ...workload.probes.map((probe) => probe.budgetSeconds));
  for (const kind of order) {
    const http = workload.probes.find((probe) => probe.kind === kind)?.http;
    const local = listeners.find((listener) => listener.internal === http?.port)?.local;
    if (http !== undefined && local !== undefined) {
      return { url: `http://${loopback}:${local}${http.path}`, budgetSeconds };
    }
  }
  const local = listeners[0]?.local ?? 0;
  return { url: `http://${loopback}:${local}${readyPaths[role]}`, budgetSeconds };
}

/** Folders of this machine in place of a container's volumes. */
interface Mounts {
  /** What is behind a path of the container. */
  place(containerPath: string): string;
  /** Every volume at or below a path of the container, outer ones first. */
  below(containerPath: string): readonly RepositoryPart[];
}

function mountsOf(workload: Workload, options: SimulationPlanOptions, notes: Set<string>): Mounts {
  const standIn = (reason: string, tail: string): string => {
    notes.add(`${workload.name}: ${reason}; the project's model repository stands in for it`);
    return join(options.modelRepository, tail);
  };
  const inRepository = (containerPath: string): string =>
    posix.relative(modelRepositoryMount, containerPath);

  const sourceOf = (volume: Volume): string => {
    const { containerPath, hostPath } = volume;
    const tail = inRepository(containerPath);
    if (hostPath === undefined) {
      return standIn(`the volume at ${containerPath} is on another host`, tail);
    }
    const folder = evaluatePath(hostPath, options.moduleFolder);
    if (folder !== undefined && isAbsolute(folder)) {
      const path = normalize(folder);
      if (options.exists(path) || isBelow(path, options.modelRepository)) return path;
      // the same folder below another root
      const names = path.split(/[\\/]/);
      const same = names
        .map((_, i) => names.slice(i).join("/"))
        .find((end) => end !== "" && options.exists(join(options.modelRepository, end)));
      return standIn(`${path} is not on this machine`, same ?? tail);
    }
    return standIn(`only Terraform knows ${hostPath}`, tail);
  };

  return {
    place(containerPath) {
      const volume = workload.volumes
        .filter((one) => isBelow(containerPath, one.containerPath))
        .sort((a, b) => b.containerPath.length - a.containerPath.length)[0];
      if (volume === undefined) {
        if (!isBelow(containerPath, modelRepositoryMount)) return containerPath;
        const reason = `no volume is mounted at ${posix.dirname(containerPath)}`;
        return standIn(reason, inRepository(containerPath));
      }
      return join(sourceOf(volume), posix.relative(volume.containerPath, containerPath));
    },
    below: (containerPath) =>
      workload.volumes
        .filter((volume) => isBelow(volume.containerPath, containerPath))
        .sort((a, b) => a.containerPath.length - b.containerPath.length)
        .map((volume): RepositoryPart => {
          const path = posix.relative(containerPath, volume.containerPath);
          // a volume of files alone is what the artefact says, and nothing stands in for it
          return volume.contents !== undefined && volume.hostPath === undefined
            ? { path, files: volume.contents.files }
            : { path, source: sourceOf(volume) };
        }),
  };
}

function isBelow(path: string, folder: string): boolean {
  const relative = posix.relative(folder, path);
  return relative === "" || !relative.startsWith("..");
}

/** What has to be put together for `--model-repository`; nothing where one volume holds it all. */
function repositoryFor(
  flags: ResolvedTritonFlags,
  model: string,
  mounts: Mounts,
  folder: string,
  modelFile: string | undefined,
): RepositoryPlan | undefined {
  const mount = flags["model-repository"];
  const parts = mounts.below(mount);
  const whole = parts.length === 0 || (parts.length === 1 && parts[0]?.path === "");
  if (whole && modelFile === undefined) return undefined;
  if (whole) {
    return {
      folder,
      parts: parts.length > 0 ? parts : [{ path: "", source: mounts.place(mount) }],
      modelFile,
    };
  }
  const version = posix.join(model, "1");
  // a configuration without weights: the image holds them
  const inImage =
    modelFile === undefined &&
    parts.some(({ path }) => isBelow(path, model)) &&
    !parts.some(({ path }) => isBelow(version, path))
      ? [dirname(mounts.place(posix.join(mount, version, "model.onnx")))]
      : [];
  return {
    folder,
    parts: [...parts, ...inImage.map((source) => ({ path: version, source }))],
    modelFile,
  };
}

/** Added at the end of the synthesized command, where the last of two options counts. */
function tritonOverrides(
  flags: ResolvedTritonFlags,
  listeners: readonly Listener[],
  folder: string,
): readonly string[] {
  const local = (protocol: ListenerProtocol, fallback: number) =>
    listeners.find((listener) => listener.protocol === protocol)?.local ?? fallback;
  const [, ...options] = renderTritonCommand({
    "model-repository": folder,
    "http-address": loopback,
    "http-port": local("oip-http", flags["http-port"]),
    "grpc-address": loopback,
    "grpc-port": local("oip-grpc", flags["grpc-port"]),
    "metrics-address": loopback,
    "metrics-port": local("metrics", flags["metrics-port"]),
  });
  return options;
}

function embedEnv(
  workload: Workload,
  listeners: readonly Listener[],
  mounts: Mounts,
  localsOf: (host: string, port: number) => readonly number[],
  artefact: Artefact,
  faults: Fault[],
  notes: Set<string>,
  options: SimulationPlanOptions,
): Readonly<Record<string, string>> {
  const env: Record<string, string> = {
    ...workload.env,
    HOST: loopback,
    PORT: String(listeners[0]?.local ?? 0),
  };
  if (isExpression(env.API_KEY)) {
    // only Terraform knows it; the loopback interface needs none
    delete env.API_KEY;
    notes.add(`${workload.name}: asks for no key, which only Terraform knows`);
  }
  const parsed = serverEnv.parse(workload.env);
  if (parsed.BACKEND === "onnxruntime") {
    env.MODEL_PATH = options.modelFile ?? mounts.place(parsed.MODEL_PATH);
    if (parsed.EXECUTION_PROVIDER === "cuda") {
      env.EXECUTION_PROVIDER = "cpu";
      notes.add(`${workload.name}: computes on the CPU in place of CUDA`);
    }
    return env;
  }
  env.TRITON_GRPC_URLS = parsed.TRITON_GRPC_URLS.flatMap((target) => {
    const { host, port } = upstreamOf(target);
    const owner = artefact.workloads.find((it) => answersTo(it, host));
    const locals = localsOf(host, port);
    if (owner === undefined) {
      faults.push({
        workload,
        message: `TRITON_GRPC_URLS names '${target}', but no container is called '${host}'`,
      });
    } else if (locals.length === 0) {
      faults.push({
        workload,
        message: `TRITON_GRPC_URLS names '${target}', but ${describe(owner)} does not listen on ${port}`,
      });
    } else if (!sharesNetwork(workload, owner)) {
      faults.push({
        workload,
        message: `TRITON_GRPC_URLS names '${target}', but ${describe(owner)} is on no network with it`,
      });
    }
    return locals.length === 0 ? [target] : locals.map((local) => `${loopback}:${local}`);
  }).join(",");
  return env;
}

/** Whether a value is one that Terraform fills in. */
function isExpression(value: string | undefined): boolean {
  return /\$\{(?!\{)/.test(value ?? "");
}

/** Whether a workload is called so by others. */
function answersTo(workload: Workload, host: string): boolean {
  return workload.name === host || workload.aliases.includes(host);
}

function sharesNetwork(a: Workload, b: Workload): boolean {
  if (a.kind === "deployment" || b.kind === "deployment") return true;
  return a.networks.some((network) => b.networks.includes(network));
}

/** Where an endpoint of the environment is on this machine; a fault where no container publishes it. */
function targetOf(
  workload: Workload,
  endpoint: Endpoint,
  listens: Server["listens"],
  shift: (port: number) => number,
  inside: ReadonlyMap<string, ProxyPlan>,
  faults: Fault[],
): Target {
  const address = clusterAddress(endpoint.url);
  const port = address?.port ?? Number(/:(\d+)\/?$/.exec(endpoint.url)?.[1] ?? Number.NaN);
  const ports = address === undefined ? workload.published : workload.inCluster;
  const published = ports.find(({ external }) => external === port);
  const proxy = inside.get(hostOf(endpoint.url));
  if (published === undefined || (address !== undefined && proxy === undefined)) {
    const own = ports.map(({ external }) => external).join(", ") || "no port";
    faults.push({
      workload,
      message: `publishes ${own}, but the environment's ${endpoint.protocol} endpoint is ${endpoint.url}`,
    });
    return { workload, endpoint };
  }
  const listen = listens.find(({ internal }) => internal === published.internal);
  // a published port that nobody listens on is a fault of its own
  if (listen === undefined) return { workload, endpoint };
  if (!speaks(listen.protocol, endpoint.protocol)) {
    faults.push({
      workload,
      message: `answers ${listen.protocol} at ${endpoint.url}, but the environment says ${endpoint.protocol}`,
    });
    return { workload, endpoint };
  }
  const local = `${loopback}:${proxy?.port ?? shift(port)}`;
  return {
    workload,
    endpoint,
    url: endpoint.protocol === "oip-grpc" ? local : `http://${local}`,
  };
}

/** Host and port of an endpoint, as the endpoints of one Service share them. */
function hostOf(url: string): string {
  return url.replace(/^[a-z]+:\/{2,3}/, "").replace(/\/$/, "");
}

/** The embed server answers its API and its metrics on one port. */
function speaks(listener: ListenerProtocol, wanted: Endpoint["protocol"]): boolean {
  return listener === wanted || (listener === "embed-http" && wanted === "metrics");
}
