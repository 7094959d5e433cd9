import { setTimeout as sleep } from "node:timers/promises";
import { startChild } from "../../artefact/child-process.ts";
import { isPortInUse } from "../../artefact/free-ports.ts";
import { shiftPort } from "../../artefact/simulation-plan.ts";
import { loopback } from "../../artefact/simulation-types.ts";
import type { Environment } from "../../contract/environment.ts";
import { explainSsh, type SshTarget, sshTarget } from "./ssh.ts";

/** Port of the host, forwarded to a port of this machine. */
export interface Forward {
  readonly remote: number;
  readonly local: number;
  /** Services and protocols behind the port, for messages. */
  readonly endpoints: string;
}

/** Forwards that make the loopback endpoints of a host reachable. */
export interface TunnelPlan {
  readonly target: SshTarget;
  readonly forwards: readonly Forward[];
}

/** Part of an environment that a tunnel makes reachable. */
interface ReachableEnvironment extends Pick<Environment, "where"> {
  readonly services: readonly {
    readonly name: string;
    readonly endpoints: readonly { readonly protocol: string; readonly url: string }[];
  }[];
}

/** Failure to open a tunnel, in one line. */
export class TunnelError extends Error {
  override readonly name = "TunnelError";
}

/** Plans the forwards for an environment; undefined if its endpoints are reachable without a tunnel. */
export function planTunnel(
  environment: ReachableEnvironment,
  portOffset: number,
): TunnelPlan | undefined {
  const target = sshTarget(environment.where);
  if (target === undefined) return undefined;
  const endpointsByPort = new Map<number, string[]>();
  for (const { name, endpoints } of environment.services) {
    for (const endpoint of endpoints) {
      const { host, port } = addressOf(endpoint);
      if (host !== loopback) continue;
      const names = endpointsByPort.get(port) ?? [];
      endpointsByPort.set(port, [...names, `${name} ${endpoint.protocol}`]);
    }
  }
  if (endpointsByPort.size === 0) return undefined;
  const forwards = [...endpointsByPort].map(([remote, names]) => ({
    remote,
    local: shiftPort(remote, portOffset),
    endpoints: names.join(", "),
  }));
  return { target, forwards };
}

/** Parses host and port of an endpoint: `http://host:port` or `host:port`. */
export function addressOf({ url }: { readonly url: string }): {
  readonly host: string;
  readonly port: number;
} {
  // `tcp:`, because URL drops the default port of `http:`
  const { hostname, port } = new URL(`tcp://${url.replace(/^\w+:\/\//, "")}`);
  return { host: hostname, port: Number(port) };
}

/** Returns the URL of an endpoint through the tunnel. */
export function throughTunnel(url: string, plan: TunnelPlan | undefined): string {
  const { host, port } = addressOf({ url });
  const forward = plan?.forwards.find(({ remote }) => remote === port);
  if (host !== loopback || forward === undefined) return url;
  return url.replace(/:\d+(?=\/?$)/, `:${forward.local}`);
}

export interface Tunnel {
  /** Resolves with the error if the tunnel ends without `close`. */
  readonly ended: Promise<TunnelError>;
  close(): Promise<void>;
}

/** Printed by the host once ssh has logged in and listens on every port. */
const readyLine = "clipstack-tunnel-ready";
/**
 * Runs on the host while the tunnel is open. Without a command (`ssh -N`) OpenSSH leaves Nagle's algorithm enabled on both ends: a
 * tensor over gRPC took 300 ms instead of 20. `cat` ends with its input, so that no ssh process remains if this process is killed.
 */
const remoteCommand = `echo ${readyLine} && exec cat`;
const pollMs = 50;
const connectSeconds = 10;
/** Timeout of login and forwarding, after the connection. */
const openLimitMs = 30_000;
const closeGraceSeconds = 3;
/** Ctrl-C signals this process and ssh, not always at the same time. */
const settleMs = 200;

/**
 * Opens a tunnel, and waits until every port listens. ssh runs non-interactively.
 *
 * @throws {TunnelError} if a port is in use or ssh fails.
 */
export async function openTunnel(
  { target, forwards }: TunnelPlan,
  signal?: AbortSignal,
): Promise<Tunnel> {
  await requireFree(forwards);
  const ssh = startChild({
    command: ["ssh"],
    args: sshArguments({ target, forwards }),
    env: env(),
    input: "held",
  });
  const failure = (): TunnelError => {
    const output = ssh.lastLines(20).filter((line) => line !== readyLine);
    if (output.some((line) => /ENOENT/.test(line))) {
      return new TunnelError("ssh is not installed on this machine: install an OpenSSH client");
    }
    const { message, fix } = explainSsh(output.join("\n"), target);
    return new TunnelError(`${message}; ${fix}`);
  };
  const startedAt = performance.now();
  while (!ssh.lastLines(50).includes(readyLine)) {
    if (ssh.exit !== undefined) throw failure();
    if (signal?.aborted || performance.now() - startedAt > openLimitMs) {
      await ssh.stop(closeGraceSeconds);
      signal?.throwIfAborted();
      throw new TunnelError(
        `ssh ${target.text} did not open the tunnel in ${openLimitMs / 1000} s`,
      );
    }
    await sleep(pollMs);
  }
  let closing = false;
  return {
    ended: new Promise((resolve) => {
      void ssh.exited.then(async () => {
        await sleep(settleMs);
        if (!closing) resolve(failure());
      });
    }),
    async close() {
      closing = true;
      await ssh.stop(closeGraceSeconds);
    },
  };
}

function sshArguments({ target, forwards }: TunnelPlan): readonly string[] {
  const options = [
    "BatchMode=yes",
    "ExitOnForwardFailure=yes",
    `ConnectTimeout=${connectSeconds}`,
    // not a shared connection, which would keep forwarding after this ssh has ended
    "ControlMaster=no",
    "ControlPath=none",
    "ServerAliveInterval=15",
    "ServerAliveCountMax=3",
    "LogLevel=ERROR",
  ];
  return [
    "-T",
    ...options.flatMap((option) => ["-o", option]),
    ...forwards.flatMap(({ local, remote }) => [
      "-L",
      `${loopback}:${local}:${loopback}:${remote}`,
    ]),
    ...target.args,
    remoteCommand,
  ];
}

/** Environment for ssh, which needs the variables of the user's agent. */
function env(): Readonly<Record<string, string>> {
  const own = Object.entries(process.env).filter(
    (entry): entry is [string, string] => entry[1] !== undefined,
  );
  return { ...Object.fromEntries(own), LC_ALL: "C" };
}

async function requireFree(forwards: readonly Forward[]): Promise<void> {
  const used: string[] = [];
  for (const { local, endpoints } of forwards) {
    if (await isPortInUse(local)) used.push(`${local} (${endpoints})`);
  }
  if (used.length === 0) return;
  const ports = used.length === 1 ? "port" : "ports";
  const verb = used.length === 1 ? "is" : "are";
  throw new TunnelError(
    `${ports} ${used.join(", ")} ${verb} in use on this machine; rerun with --port-offset 10000`,
  );
}
