import { mkdirSync, rmSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { readArtefact, type Workload } from "../../artefact/artefact.ts";
import { makeScratchFolder } from "../../artefact/scratch-folder.ts";
import { type RunningInstance, requirePorts, startSimulation } from "../../artefact/simulation.ts";
import {
  describe,
  type Instance,
  type SimulationPlan,
  workloadsBehind,
} from "../../artefact/simulation-plan.ts";
import { embedPaths } from "../../contract/embed-api.ts";
import type { EndpointName, Environment } from "../../contract/environment.ts";
import {
  openclipPreprocess,
  openclipVitB32,
  openclipVitB32Jpeg,
  openclipVitB32Trt,
  openclipVitB32U8,
} from "../../contract/model-signature.ts";
import {
  modelControlHeaderOf,
  parseTritonArgs,
  type RequiredHeader,
} from "../../contract/triton-flags.ts";
import { UserError } from "../../contract/user-error.ts";
import { modelFor } from "../load/prepare.ts";
import type { BenchPath, BenchRecord, Payload } from "../record/bench-record.ts";
import {
  type DeployedEnvironment,
  metricsOfDeployed,
  servicesOfDeployed,
} from "./deployed-environment.ts";
import type { GpuReading } from "./gpu-use.ts";
import { reason } from "./http-client.ts";
import { type MetricsSource, metricsSource } from "./instance-metrics.ts";
import { type EnvironmentFile, planFor, subjectOf } from "./local-environment.ts";
import { serverVersion } from "./server-version.ts";
import {
  openService,
  type PathTarget,
  pathsOf,
  type ServiceUnderTest,
} from "./service-under-test.ts";

/** One address where embeddings can be asked for, while it runs. */
export interface BenchTarget {
  readonly environment: string;
  readonly service: string;
  readonly path: EndpointName;
  /** `http://host:port`, or `host:port` for gRPC; reachable from here. */
  readonly url: string;
  /** Model name in requests; of the payload variants it is this with `_u8` and `_jpeg` in place of a backend's suffix. */
  readonly model: string;
  /** What the server takes: it was asked for the models of the payload variants. */
  readonly payloads: readonly Payload[];
  /** Sent as `Authorization: Bearer …` to this address only. */
  readonly apiKey?: string;
  /**
   * Where the processes behind it count what they do, one for each; empty where that is not known. Of a gateway, its own
   * and those of the Tritons that it asks.
   */
  readonly metrics: readonly MetricsSource[];
  /** `http://host:port` of the same Triton: model control and statistics. */
  readonly controlUrl?: string;
  /** Header that its model control API requires; absent if it requires none, or if that is unknown. */
  readonly controlHeader?: RequiredHeader;
  /** Processes on this machine behind it (local simulation only). */
  readonly pids: readonly number[];
}

/** Everything that a run measures, while it runs. */
export interface OpenTargets {
  readonly runtime: BenchRecord["subject"]["runtime"];
  readonly targets: readonly BenchTarget[];
  readonly subject: Pick<BenchRecord["subject"], "environments" | "servers" | "gpu" | "price">;
  /** Asks the GPUs of the environment's host, where there is a way to. */
  readonly readGpus?: () => Promise<readonly GpuReading[]>;
  /** Whole sentences for the record. */
  readonly notes: readonly string[];
}

/** Where a run finds what it measures: one environment, or addresses. */
export type TargetsSource = SimulatedSource | DeployedSource | EndpointsSource;

/** Local processes of clipstack's server in place of the environment's containers. */
export interface SimulatedSource {
  readonly kind: "embedded";
  readonly environment: EnvironmentFile;
  /** Starts clipstack's server: program, arguments, and the server's file last. */
  readonly serverCommand: readonly string[];
  /** The project's model repository, for volumes of other hosts and for the models of the payload variants. */
  readonly modelRepository: string;
  /** ONNX file in place of every model; absent: what the artefact mounts. */
  readonly modelFile?: string;
  /** ONNX file of the model that takes pixels; with it the ONNX Triton gets the models of the payload variants too. */
  readonly u8ModelFile?: string;
  /** Added to every port of this machine. */
  readonly portOffset: number;
  /**
   * Added to the command of each Triton, where the last of two options counts.
   *
   * @default - none
   */
  readonly tritonArgs?: readonly string[];
  /**
   * Protocol paths to reach; a service that none of them needs is not started.
   *
   * @default - all of them
   */
  readonly paths?: readonly EndpointName[];
}

/** Containers or pods where they are deployed. */
export interface DeployedSource {
  readonly kind: "deployed";
  readonly environment: DeployedEnvironment;
  readonly paths?: readonly EndpointName[];
  /** `nvidia-smi` on the environment's host. */
  readonly readGpus?: () => Promise<readonly GpuReading[]>;
}

/** Addresses given by hand. */
export interface EndpointsSource {
  readonly kind: "endpoints";
  readonly endpoints: readonly { readonly path: EndpointName; readonly url: string }[];
  /** Metrics pages: of the embed server, the ONNX Triton, the TensorRT Triton. */
  readonly metrics: readonly { readonly backend: "embed" | "onnx" | "trt"; readonly url: string }[];
  readonly apiKey?: string;
}

export interface WithTargetsOptions {
  readonly signal: AbortSignal;
  /** What is under way, for people. */
  readonly onPhase: (text: string) => void;
}

/** No start takes longer, whatever budget was synthesized. */
const startLimitSeconds = 180;
const timeoutMs = 30_000;

/**
 * Run `use` while the targets of a source can be reached. What was started for it is stopped afterwards.
 *
 * @throws {UserError} one line, where they cannot be reached.
 */
export async function withTargets<Result>(
  source: TargetsSource,
  options: WithTargetsOptions,
  use: (open: OpenTargets) => Promise<Result>,
): Promise<Result> {
  switch (source.kind) {
    case "embedded":
      return withSimulation(source, options, use);
    case "deployed":
      return withDeployed(source, options, use);
    case "endpoints":
      return withEndpoints(source, options, use);
  }
}

/** What can be asked of a target: its path with each payload that it takes, and as JSON over HTTP. */
export function benchPathsOf({ path, payloads }: Pick<BenchTarget, "path" | "payloads">) {
  return payloads.flatMap((payload): BenchPath[] => [
    { path, payload, serialization: "binary" },
    ...(path.endsWith("-http") && payload === "fp32"
      ? [{ path, payload, serialization: "json" } as const]
      : []),
  ]);
}

async function withSimulation<Result>(
  source: SimulatedSource,
  { signal, onPhase }: WithTargetsOptions,
  use: (open: OpenTargets) => Promise<Result>,
): Promise<Result> {
  const began = performance.now();
  const { environment, serverCommand } = source;
  const artefact = readArtefact(environment.file, environment.shown);
  const { name } = artefact.environment;
  const scratch = makeScratchFolder();
  try {
    const notes: string[] = [];
    const whole = await planFor(artefact, environment, source, join(scratch, "repositories"));
    const plan = withMore(neededPart(whole, source.paths, name), source, scratch, notes);
    if (plan.faults.length > 0) {
      const lines = plan.faults.map(({ workload, message }) => `${describe(workload)}: ${message}`);
      throw new UserError(lines.join("\n"));
    }
    await requirePorts([{ environment: name, plan }]);
    onPhase(`start ${plan.instances.map((instance) => instance.name).join(", ")}`);
    const running = await startSimulation(plan, { serverCommand, signal, startLimitSeconds });
    try {
      requireStarted(running.instances);
      const workloads = artefact.workloads.filter((workload) =>
        plan.instances.some((instance) => instance.workload === workload),
      );
      const services = workloads.map((workload) => {
        const own = running.instances.filter(({ instance }) => instance.workload === workload);
        const targets = plan.targets.filter((target) => target.workload === workload);
        return openService(name, workload, own, targets);
      });
      const counting = ({ workload }: ServiceUnderTest): readonly RunningInstance[] => {
        const counted = [workload, ...workloadsBehind(workload, workloads)];
        return running.instances.filter(({ instance }) => counted.includes(instance.workload));
      };
      return await useServices(services, source.paths, use, {
        runtime: "embedded",
        reach: (service) => ({
          metrics: counting(service)
            .map(metricsSource)
            .filter(({ url }) => url !== undefined),
          pids: counting(service).map(({ child }) => child.pid),
          controlHeader: controlHeaderOf(service.workload.command),
        }),
        environments: () => [subjectOf(artefact, environment, plan.notes, began)],
        notes: [...notes, ...simulationNotes(artefact.environment)],
      });
    } finally {
      await running.stop();
    }
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

function simulationNotes({ name, gpu, accelerator }: Environment): readonly string[] {
  return accelerator === "cpu" || gpu === undefined
    ? [`${name}: local processes of clipstack's server stood in for its containers.`]
    : [
        `${name}: local processes of clipstack's server stood in for its containers, on this machine's CPU. Its ${gpu.count} × ${gpu.name} did not run: nothing here is their speed or their cost.`,
      ];
}

function requireStarted(instances: readonly RunningInstance[]): void {
  const failed = instances.flatMap(({ instance, start }) =>
    start.ok ? [] : [`${instance.name} ${start.message}`],
  );
  if (failed.length > 0) throw new UserError(failed.join("\n"));
}

/** Of a plan the services that offer one of the paths, and the Tritons behind them. */
function neededPart(
  plan: SimulationPlan,
  paths: readonly EndpointName[] | undefined,
  environment: string,
): SimulationPlan {
  const offers = ({ workload }: { readonly workload: Workload }) =>
    workload.service.endpoints.some(({ name }) => name !== undefined && isAsked(name, paths));
  const all = plan.instances.map(({ workload }) => workload);
  const asked = plan.instances.filter(offers).map(({ workload }) => workload);
  if (asked.length === 0) {
    throw new UserError(
      `${environment} offers none of ${paths?.join(", ") ?? "the protocol paths"}`,
    );
  }
  const needed = new Set([...asked, ...asked.flatMap((it) => workloadsBehind(it, all))]);
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

function isAsked(path: EndpointName, paths: readonly EndpointName[] | undefined): boolean {
  return paths === undefined || paths.includes(path);
}

/** The plan with more options for Tritons, and with the models of the payload variants where they are asked for. */
function withMore(
  plan: SimulationPlan,
  { tritonArgs = [], u8ModelFile, modelFile, modelRepository }: SimulatedSource,
  scratch: string,
  notes: string[],
): SimulationPlan {
  const linked = (name: string, file: string): string => {
    const folder = join(scratch, "files", name);
    mkdirSync(folder, { recursive: true });
    symlinkSync(file, join(folder, "model.onnx"));
    return folder;
  };
  const u8 = u8ModelFile === undefined ? undefined : linked(openclipVitB32U8.name, u8ModelFile);
  const own = u8 === undefined || modelFile === undefined ? undefined : linked("own", modelFile);
  const instances = plan.instances.map((instance): Instance => {
    if (instance.role !== "triton") return instance;
    const { repository } = instance;
    const { model, backend } = instance.workload.service;
    const args = [...instance.args, ...tritonArgs];
    const isExplicit = args.includes("--model-control-mode=explicit");
    if (u8 === undefined || backend !== "onnxruntime" || repository === undefined) {
      return { ...instance, args };
    }
    notes.push(
      `${instance.name}: ${openclipVitB32U8.name} and ${openclipVitB32Jpeg.name} were added to its models, which its container does not have.`,
    );
    const variants = [openclipVitB32U8, openclipPreprocess, openclipVitB32Jpeg];
    return {
      ...instance,
      args: isExplicit ? [...args, ...variants.map(({ name }) => `--load-model=${name}`)] : args,
      repository: {
        folder: repository.folder,
        parts: [
          ...repository.parts,
          ...(own === undefined ? [] : [{ path: `${model}/1`, source: own }]),
          ...variants.map(({ name }) => ({ path: name, source: join(modelRepository, name) })),
          { path: `${openclipVitB32U8.name}/1`, source: u8 },
        ],
      },
    };
  });
  return { ...plan, instances };
}

async function withDeployed<Result>(
  { environment, paths, readGpus }: DeployedSource,
  { onPhase }: WithTargetsOptions,
  use: (open: OpenTargets) => Promise<Result>,
): Promise<Result> {
  const began = performance.now();
  const artefact = readArtefact(environment.file, environment.shown);
  const { deployed } = environment;
  onPhase(`reach ${deployed.name}`);
  const reach = await environment.reach();
  try {
    const services = servicesOfDeployed(environment, artefact, reach);
    const cluster =
      artefact.objects.length > 0 ? await environment.inspectObjects(artefact.objects) : undefined;
    const { gpu } = deployed;
    const containers =
      deployed.namespace === undefined
        ? await environment.inspect(artefact.workloads.map(({ name }) => name))
        : undefined;
    const commandOf = (name: string) =>
      containers?.ok === true ? (containers.containers.get(name)?.Config.Cmd ?? []) : [];
    return await useServices(services, paths, use, {
      runtime: "deployed",
      reach: (service) => ({
        metrics: metricsOfDeployed(service, services, cluster),
        apiKey: service.apiKey,
        pids: [],
        controlHeader: controlHeaderOf(commandOf(service.workload.name)),
      }),
      environments: () => [subjectOf(artefact, environment, reach.notes, began)],
      gpu: gpu && { name: gpu.name, count: gpu.count, vramMiB: gpu.vramMiB },
      price: gpu && {
        usdPerHour: gpu.usdPerHour,
        date: gpu.priceDate,
        source: `${deployed.name}, its settings`,
      },
      readGpus,
      notes: reach.notes.map((note) => `${deployed.name}: ${note}.`),
    });
  } finally {
    await reach.close();
  }
}

/** The services that may be behind addresses given by hand. */
const knownServices = [
  {
    name: "embed",
    kind: "embed",
    backend: "onnxruntime",
    prefix: "embed",
    model: openclipVitB32.name,
  },
  {
    name: "triton-onnx",
    kind: "triton",
    backend: "onnxruntime",
    prefix: "onnx",
    model: openclipVitB32.name,
  },
  {
    name: "triton-trt",
    kind: "triton",
    backend: "tensorrt",
    prefix: "trt",
    model: openclipVitB32Trt.name,
  },
] as const;

async function withEndpoints<Result>(
  { endpoints, metrics, apiKey }: EndpointsSource,
  { onPhase }: WithTargetsOptions,
  use: (open: OpenTargets) => Promise<Result>,
): Promise<Result> {
  onPhase(`reach ${endpoints.map(({ url }) => url).join(", ")}`);
  const services = knownServices.flatMap(({ prefix, ...known }) => {
    const own = endpoints.filter(({ path }) => path.startsWith(prefix));
    if (own.length === 0) return [];
    const workload: Workload = {
      service: {
        ...known,
        resources: {},
        endpoints: own.map(({ path, url }) => ({ protocol: protocolOf(path), name: path, url })),
      },
      address: "",
      kind: "container",
      name: known.name,
      command: [],
      env: {},
      published: [],
      inCluster: [],
      volumes: [],
      probes: [],
      replicas: 1,
      graceSeconds: 0,
      aliases: [],
      networks: [],
      faults: [],
    };
    const targets = workload.service.endpoints.map((endpoint) => ({
      workload,
      endpoint,
      url: endpoint.url,
    }));
    const key = known.kind === "embed" ? apiKey : undefined;
    return [openService(endpointsName, workload, [], targets, key)];
  });
  return useServices(services, undefined, use, {
    runtime: "endpoints",
    reach: (service) => ({
      metrics: metrics
        .filter(({ backend }) => service.workload.name.endsWith(backend))
        .map(({ url }) => ({ name: url, role: service.workload.service.kind, url })),
      apiKey: service.apiKey,
      pids: [],
    }),
    environments: () => [],
    notes: [
      `The addresses were given by hand (${endpoints.map(({ path, url }) => `${path} ${url}`).join(", ")}): what is behind them is what they say themselves.`,
    ],
  });
}

/** Header that the model control API of the Triton with this command line requires. */
function controlHeaderOf([program, ...args]: readonly string[]): RequiredHeader | undefined {
  if (program !== "tritonserver") return undefined;
  try {
    return modelControlHeaderOf(parseTritonArgs(args), "http-restricted-api");
  } catch {
    // a real Triton has options that the emulator lacks
    return undefined;
  }
}

/** In place of an environment's name, where addresses were given by hand. */
export const endpointsName = "endpoints";

function protocolOf(path: EndpointName) {
  if (path === "embed-http") return "embed-http";
  return path.endsWith("-grpc") ? "oip-grpc" : "oip-http";
}

/** How services are reached, beyond what they know themselves. */
interface Surroundings {
  readonly runtime: OpenTargets["runtime"];
  readonly reach: (
    service: ServiceUnderTest,
  ) => Pick<BenchTarget, "metrics" | "pids" | "apiKey" | "controlHeader">;
  readonly environments: () => OpenTargets["subject"]["environments"];
  readonly gpu?: OpenTargets["subject"]["gpu"];
  readonly price?: OpenTargets["subject"]["price"];
  readonly readGpus?: OpenTargets["readGpus"];
  readonly notes: readonly string[];
}

async function useServices<Result>(
  services: readonly ServiceUnderTest[],
  paths: readonly EndpointName[] | undefined,
  use: (open: OpenTargets) => Promise<Result>,
  { runtime, reach, environments, gpu, price, readGpus, notes }: Surroundings,
): Promise<Result> {
  try {
    const targets: BenchTarget[] = [];
    const servers: OpenTargets["subject"]["servers"] = [];
    for (const service of services) {
      const { name, model } = service.workload.service;
      const offered = pathsOf(service).filter(({ path }) => isAsked(path, paths));
      if (offered.length === 0) continue;
      const controlUrl = service.targets.find(
        ({ endpoint }) => endpoint.protocol === "oip-http",
      )?.url;
      for (const target of offered) {
        await requireLive(service, target);
        targets.push({
          environment: service.environment,
          service: name,
          path: target.path,
          url: target.url,
          model,
          payloads: await payloadsOf(service, target, model),
          controlUrl,
          ...reach(service),
        });
      }
      servers.push({ service: name, ...nameAndVersion(await serverVersion(service)) });
    }
    return await use({
      runtime,
      targets,
      subject: {
        // told at the end, how long it took
        get environments() {
          return environments();
        },
        servers,
        gpu,
        price,
      },
      readGpus,
      notes,
    });
  } finally {
    await Promise.all(services.flatMap((it) => [it.closeTransports(), it.http.close()]));
  }
}

/** Before anything is measured: an address that nobody answers at is one line. */
async function requireLive(service: ServiceUnderTest, target: PathTarget): Promise<void> {
  const { path, url } = target;
  const live =
    path === "embed-http"
      ? await service.http.send(`${url}${embedPaths.healthz}`, { timeoutMs }).then(
          ({ status }) => status === 200,
          () => false,
        )
      : await service.transport(target).live({ timeoutMs });
  if (!live) throw new UserError(`${service.environment}: ${path} does not answer at ${url}`);
}

/** `triton 2.51.0`, `clipstack embed API 0.1.0` */
function nameAndVersion(text: string | undefined): { name: string; version: string } {
  const [, name, version] = /^(.*) (\S+)$/.exec(text ?? "") ?? [];
  return { name: name ?? "unknown", version: version ?? "unknown" };
}

/** The payloads that a server takes: whether it has the models of the variants, it is asked. */
async function payloadsOf(
  service: ServiceUnderTest,
  target: PathTarget,
  model: string,
): Promise<readonly Payload[]> {
  if (target.path === "embed-http") return ["encoded"];
  // the variants run on ONNX Runtime, whatever the Triton's other model runs on
  if (target.path.startsWith("trt-")) return ["fp32"];
  const found: Payload[] = [];
  for (const payload of payloadOrder) {
    const name = modelFor(model, payload);
    try {
      const transport = service.transport(target);
      if (name === model || (await transport.ready(name, { timeoutMs }))) found.push(payload);
    } catch (error) {
      throw new UserError(`${target.path}: ${reason(error)}`);
    }
  }
  return found;
}

/** The usual payload first. */
const payloadOrder: readonly Payload[] = ["fp32", "u8", "encoded"];
