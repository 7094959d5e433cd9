import { embedPaths } from "../contract/embed-api.ts";
import { oipPaths } from "../contract/oip-paths.ts";
import { parseAs } from "../contract/parse.ts";
import { baselineEnv, serverEnv } from "../contract/server/server-env.ts";
import { parseTritonArgs, type ResolvedTritonFlags } from "../contract/triton-flags.ts";
import { messageOf, UserError } from "../contract/user-error.ts";
import {
  type Fault,
  type Listener,
  type ListenerProtocol,
  loopback,
  type ServerRole,
} from "./simulation-types.ts";
import { describe, type Workload } from "./workload.ts";

/** Role of a workload's server, and the container ports that it listens on. */
export interface SimulatedServer {
  readonly workload: Workload;
  readonly role: ServerRole;
  /** Options of a Triton server. */
  readonly flags?: ResolvedTritonFlags;
  readonly listens: readonly ListeningPort[];
}

export interface ListeningPort {
  readonly protocol: ListenerProtocol;
  readonly internal: number;
}

/**
 * Derives the server of a workload from its command and environment.
 *
 * @param faults - Receives the faults of the synthesized file.
 */
export function simulatedServer(workload: Workload, faults: Fault[]): SimulatedServer {
  const [program, ...args] = workload.command;
  if (program === "tritonserver") {
    const flags = tritonFlags(workload, args);
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
  if (workload.service.kind === "baseline") {
    const { PORT } = parseAs(baselineEnv, workload.env, `${describe(workload)}: env`);
    return { workload, role: "baseline", listens: [{ protocol: "embed-http", internal: PORT }] };
  }
  if (workload.service.kind === "triton") {
    faults.push({
      workload,
      message: "is a Triton server, but its command is not 'tritonserver …'",
    });
  }
  const { PORT } = parseAs(serverEnv, workload.env, `${describe(workload)}: env`);
  return { workload, role: "embed", listens: [{ protocol: "embed-http", internal: PORT }] };
}

function tritonFlags(workload: Workload, args: readonly string[]): ResolvedTritonFlags {
  try {
    return parseTritonArgs(args);
  } catch (error) {
    throw new UserError(`${describe(workload)}: command: ${messageOf(error)}`);
  }
}

/** Published ports, probes and reloads of ports on which the server does not listen. */
export function portFaults({ workload, listens }: SimulatedServer): readonly Fault[] {
  const ports = listens.map(({ internal }) => internal).join(", ");
  const isListening = (port: number) => listens.some(({ internal }) => internal === port);
  return [
    ...workload.published
      .filter(({ internal }) => !isListening(internal))
      .map(({ internal, external }) => ({
        workload,
        message: `publishes ${external} for its port ${internal}, but listens on ${ports}`,
      })),
    ...workload.probes.flatMap(({ kind, http, text }) =>
      http === undefined || isListening(http.port)
        ? []
        : [
            {
              workload,
              message: `its ${kind} requests port ${http.port} (${text}), but it listens on ${ports}`,
            },
          ],
    ),
    ...reloadFaults(workload, listens),
  ];
}

/** Lists jobs that reload a configuration in a server that does not mount it. */
function reloadFaults(workload: Workload, listens: readonly ListeningPort[]): readonly Fault[] {
  const http = listens.find(({ protocol }) => protocol === "oip-http")?.internal;
  const urls = [workload.name, ...workload.aliases].map((name) => `http://${name}:${http}`);
  return workload.volumes
    .flatMap(({ contents }) => contents?.reloads ?? [])
    .filter(({ url }) => !urls.includes(url))
    .map(({ by, url }) => ({
      workload,
      message: `${by} reloads its configuration at ${url}, but it listens on ${urls[0]}`,
    }));
}

/** Workloads that publish the same port of the machine. */
export function portCollisions(workloads: readonly Workload[]): readonly Fault[] {
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

/** Readiness route of each role, used if the workload has no health check. */
const readyPaths = {
  embed: embedPaths.readyz,
  triton: oipPaths.ready,
  baseline: embedPaths.readyz,
} as const;

/** Local URL of a workload's health check, and the maximum time until it succeeds. */
export function readiness(
  workload: Workload,
  role: ServerRole,
  listeners: readonly Listener[],
): { readonly readyUrl: string; readonly readyBudgetSeconds: number } {
  const order = ["health check", "readiness probe", "startup probe", "liveness probe"];
  const readyBudgetSeconds = Math.max(30, ...workload.probes.map((probe) => probe.budgetSeconds));
  for (const kind of order) {
    const http = workload.probes.find((probe) => probe.kind === kind)?.http;
    const local = listeners.find((listener) => listener.internal === http?.port)?.local;
    if (http !== undefined && local !== undefined) {
      return { readyUrl: `http://${loopback}:${local}${http.path}`, readyBudgetSeconds };
    }
  }
  const local = listeners[0]?.local ?? 0;
  return { readyUrl: `http://${loopback}:${local}${readyPaths[role]}`, readyBudgetSeconds };
}
