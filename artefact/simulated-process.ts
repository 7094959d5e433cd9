import {
  baselineEnv,
  modelRepositoryMount,
  type ServerEnvName,
  serverEnv,
  splitTarget,
} from "../contract/server/server-env.ts";
import { type ResolvedTritonFlags, renderTritonCommand } from "../contract/triton-flags.ts";
import type { SimulatedVolumes } from "./simulated-volumes.ts";
import { type Fault, type Listener, type ListenerProtocol, loopback } from "./simulation-types.ts";
import { describe, hasHostName, inlineModels, type Workload } from "./workload.ts";

/** Options appended to a synthesized Triton command; the last occurrence of an option counts. */
export function tritonOverrides(
  flags: ResolvedTritonFlags,
  listeners: readonly Listener[],
  repository: string,
): readonly string[] {
  const local = (protocol: ListenerProtocol, fallback: number) =>
    listeners.find((listener) => listener.protocol === protocol)?.local ?? fallback;
  const [, ...options] = renderTritonCommand({
    "model-repository": repository,
    "http-address": loopback,
    "http-port": local("oip-http", flags["http-port"]),
    "grpc-address": loopback,
    "grpc-port": local("oip-grpc", flags["grpc-port"]),
    "metrics-address": loopback,
    "metrics-port": local("metrics", flags["metrics-port"]),
  });
  return options;
}

/**
 * Environment variables of a Triton emulator. One that stands in for `tritonserver` has no bounds of its own, because `tritonserver` queues
 * every request: 16 clients with 32 float32 images each are 308 MB.
 */
export function tritonProcessEnv({ service, env }: Workload): Readonly<Record<string, string>> {
  return service.server === "emulator"
    ? env
    : { MAX_QUEUE_SIZE: "1000000", MAX_QUEUE_BYTES: String(8 * 2 ** 30), ...env };
}

export interface EmbedContext {
  readonly listeners: readonly Listener[];
  readonly volumes: SimulatedVolumes;
  readonly workloads: readonly Workload[];
  /** Local ports of the processes behind a host name and port of the environment. */
  readonly localPorts: (host: string, port: number) => readonly number[];
  /** Receives the faults of the synthesized file. */
  readonly faults: Fault[];
  /** Receives intended differences from the deployment. */
  readonly notes: Set<string>;
}

/** Model repository in the container of an embed server; `undefined` for a gateway and for a baseline. */
export function modelRepositoryOf({ service, env }: Workload): string | undefined {
  if (service.kind === "baseline") return undefined;
  const { BACKEND, MODEL_REPOSITORY } = serverEnv.parse(env);
  return BACKEND === "onnxruntime" ? MODEL_REPOSITORY : undefined;
}

/**
 * Environment variables of an embed server, with local paths and addresses.
 *
 * @param repository - Assembled model repository; if absent, the mounted one.
 */
export function embedEnv(
  workload: Workload,
  repository: string | undefined,
  context: EmbedContext,
): Readonly<Record<string, string>> {
  const { listeners, volumes, notes } = context;
  const env: Record<string, string> = {
    ...inlineModels(workload),
    HOST: loopback,
    PORT: String(listeners[0]?.local ?? 0),
  };
  if (isExpression(env.API_KEY)) {
    // the simulation listens on the loopback interface only
    delete env.API_KEY;
    notes.add(`${workload.name}: no authentication, because its key is known only to Terraform`);
  }
  if (hostFileVariables.some((name) => env[name] !== undefined)) {
    for (const name of hostFileVariables) delete env[name];
    notes.add(`${workload.name}: no keys and no TLS, because their files are on the host`);
  }
  const parsed = serverEnv.parse(workload.env);
  if (parsed.BACKEND === "onnxruntime") {
    env.MODEL_REPOSITORY = repository ?? volumes.hostPath(parsed.MODEL_REPOSITORY);
    if (parsed.EXECUTION_PROVIDER === "cuda") {
      env.EXECUTION_PROVIDER = "cpu";
      notes.add(`${workload.name}: runs the model on the CPU instead of CUDA`);
    }
    return env;
  }
  // no Triton server of the simulation has TLS
  for (const name of tlsVariables) delete env[name];
  env.TRITON_GRPC_URLS = parsed.TRITON_GRPC_URLS.flatMap((target) =>
    localUpstreams(workload, target, context),
  ).join(",");
  return env;
}

/** The simulation has no files of the host. */
const hostFileVariables = [
  "TLS_CERT_FILE",
  "TLS_KEY_FILE",
  "API_KEYS_FILE",
] as const satisfies ServerEnvName[];

const tlsVariables = [
  "TRITON_TLS_CA_FILE",
  "TRITON_TLS_CERT_FILE",
  "TRITON_TLS_KEY_FILE",
  "TRITON_TLS_SERVER_NAME",
] as const satisfies ServerEnvName[];

/**
 * Environment variables of the PyTorch baseline, with local paths.
 *
 * @param model - File in place of the mounted one.
 */
export function baselineProcessEnv(
  { name, env }: Workload,
  model: string | undefined,
  { listeners, volumes, notes }: Pick<EmbedContext, "listeners" | "volumes" | "notes">,
): Readonly<Record<string, string>> {
  const { MODEL_PATH, DEVICE } = baselineEnv.parse(env);
  if (DEVICE === "cuda") notes.add(`${name}: runs the model on the CPU instead of CUDA`);
  return {
    ...env,
    DEVICE: "cpu",
    HOST: loopback,
    PORT: String(listeners[0]?.local ?? 0),
    MODEL_PATH: model ?? volumes.hostPath(MODEL_PATH),
    END_WITH_PARENT: "true",
  };
}

/** Returns the local addresses that replace one of `TRITON_GRPC_URLS`. The address stays as it is if no simulated server listens there. */
function localUpstreams(
  workload: Workload,
  target: string,
  { workloads, localPorts, faults }: EmbedContext,
): readonly string[] {
  const { host, port } = upstreamOf(workload, target);
  const owner = workloads.find((candidate) => hasHostName(candidate, host));
  const locals = localPorts(host, port);
  const problem =
    owner === undefined
      ? `no container is called '${host}'`
      : locals.length === 0
        ? `${describe(owner)} does not listen on ${port}`
        : sharesNetwork(workload, owner)
          ? undefined
          : `${describe(owner)} shares no network with it`;
  if (problem !== undefined) {
    faults.push({ workload, message: `TRITON_GRPC_URLS names '${target}', but ${problem}` });
  }
  return locals.length === 0 ? [target] : locals.map((local) => `${loopback}:${local}`);
}

/** Returns the host name and port of one of `TRITON_GRPC_URLS`. For a Triton server on another host, the host name is its address. */
function upstreamOf(
  { service }: Workload,
  target: string,
): { readonly host: string; readonly port: number } {
  const { host, port } = splitTarget(target.trim());
  return { host: service.upstreams?.includes(target) ? target : host, port };
}

/** Returns a workload for each Triton server on another host to which a gateway forwards. The simulation starts it on this machine. */
export function remoteWorkloads(gateway: Workload, models: readonly string[]): readonly Workload[] {
  const { service, networks } = gateway;
  return (service.upstreams ?? []).map((target) => ({
    ...gateway,
    service: { ...service, kind: "triton", server: "tritonserver", endpoints: [] },
    name: target,
    command: renderTritonCommand({
      "model-repository": modelRepositoryMount,
      "model-config-name": "cpu",
      "grpc-port": splitTarget(target).port,
      "model-control-mode": "explicit",
      "load-model": [...models],
      "disable-auto-complete-config": true,
    }),
    env: {},
    published: [],
    volumes: [],
    probes: [],
    aliases: [],
    networks,
    faults: [],
  }));
}

/** Triton servers that a gateway forwards to; none for a service that runs the model itself. */
export function workloadsBehind(gateway: Workload, all: readonly Workload[]): readonly Workload[] {
  const targets = (gateway.env.TRITON_GRPC_URLS ?? "").split(",");
  const hosts = targets.map((target) => upstreamOf(gateway, target).host);
  return all.filter((workload) => hosts.some((host) => hasHostName(workload, host)));
}

function isExpression(value: string | undefined): boolean {
  return /\$\{(?!\{)/.test(value ?? "");
}

function sharesNetwork(a: Workload, b: Workload): boolean {
  if (a.kind === "deployment" || b.kind === "deployment") return true;
  return a.networks.some((network) => b.networks.includes(network));
}
