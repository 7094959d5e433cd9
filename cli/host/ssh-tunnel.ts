import { setTimeout as sleep } from "node:timers/promises";
import { startChild } from "../../artefact/child-process.ts";
import { isPortInUse } from "../../artefact/free-ports.ts";
import { shiftPort } from "../../artefact/simulation-plan.ts";
import { loopback } from "../../artefact/simulation-types.ts";
import type { Endpoint, Environment } from "../../contract/environment.ts";
import { explainSsh, type SshTarget, sshTarget } from "./ssh.ts";

/** What is reached where: one port of the host, on a port of this machine. */
export interface Forward {
  readonly remote: number;
  readonly local: number;
  /** For messages: the services and protocols behind it. */
  readonly what: string;
}

/** The way to the endpoints of an environment that only its host can reach. */
export interface TunnelPlan {
  readonly target: SshTarget;
  readonly forwards: readonly Forward[];
}

/** A tunnel cannot be opened: one line. */
export class TunnelError extends Error {
  override readonly name = "TunnelError";
}

/**
 * What has to be forwarded to reach an environment.
 *
 * @returns Nothing where its endpoints are reached as they are.
 */
export function planTunnel(environment: Environment, portOffset: number): TunnelPlan | undefined {
  const target = sshTarget(environment.where);
  if (target === undefined) return undefined;
  const what = new Map<number, string[]>();
  for (const { name, endpoints } of environment.services) {
    for (const endpoint of endpoints) {
      const { host, port } = addressOf(endpoint);
      if (host !== loopback) continue;
      what.set(port, [...(what.get(port) ?? []), `${name} ${endpoint.protocol}`]);
    }
  }
  if (what.size === 0) return undefined;
  const forwards = [...what].map(([remote, names]) => ({
    remote,
    local: shiftPort(remote, portOffset),
    what: names.join(", "),
  }));
  return { target, forwards };
}

/** Host and port of an endpoint: `http://host:port`, or `host:port`. */
export function addressOf({ url }: Pick<Endpoint, "url">): {
  readonly host: string;
  readonly port: number;
} {
  // of a scheme that it knows, URL leaves the usual port out
  const { hostname, port } = new URL(`tcp://${url.replace(/^\w+:\/\//, "")}`);
  return { host: hostname, port: Number(port) };
}

/** A URL of the environment as it is reached through the tunnel. */
export function throughTunnel(url: string, plan: TunnelPlan | undefined): string {
  const { host, port } = addressOf({ url });
  const forward = plan?.forwards.find(({ remote }) => remote === port);
  if (host !== loopback || forward === undefined) return url;
  return url.replace(/:\d+(?=\/?$)/, `:${forward.local}`);
}

export interface Tunnel {
  /** Why it ended, once it did by itself. */
  readonly ended: Promise<TunnelError>;
  close(): Promise<void>;
}

/** Printed by the host, after ssh has logged in and listens on every port. */
const readyLine = "clipstack-tunnel-ready";
/**
 * Run there for as long as the tunnel is open. Without a command (`ssh -N`) OpenSSH leaves Nagle's algorithm on, at both
 * ends: a tensor over gRPC took 300 ms in place of 20. And it ends with its input, so no ssh is left when this process is
 * killed.
 */
const remoteCommand = `echo ${readyLine} && exec cat`;
const pollMs = 50;
const connectSeconds = 10;
/** Login and forwarding, after the connection. */
const openLimitMs = 30_000;
const closeGraceSeconds = 3;
/** Both signals of one Ctrl-C need not arrive at the same moment. */
const settleMs = 200;

/**
 * Open a tunnel, and wait until every port listens. ssh asks for nothing: no password, no host key.
 *
 * @throws {TunnelError} a port that is taken, or what ssh said.
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
    const said = ssh.lastLines(20).filter((line) => line !== readyLine);
    if (said.some((line) => /ENOENT/.test(line))) {
      return new TunnelError("there is no ssh on this machine: install an OpenSSH client");
    }
    const { message, fix } = explainSsh(said.join("\n"), target);
    return new TunnelError(`${message}; ${fix}`);
  };
  const startedAt = performance.now();
  while (!ssh.lastLines(50).includes(readyLine)) {
    if (ssh.exit !== undefined) throw failure();
    if (signal?.aborted || performance.now() - startedAt > openLimitMs) {
      await ssh.stop(closeGraceSeconds);
      signal?.throwIfAborted();
      throw new TunnelError(
        `ssh ${target.shown} did not open the tunnel in ${openLimitMs / 1000} s`,
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
    // a connection of its own: one that is shared goes on forwarding when this ssh has ended
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

/** ssh needs what its user has set up: the agent, above all. */
function env(): Readonly<Record<string, string>> {
  const own = Object.entries(process.env).filter(
    (entry): entry is [string, string] => entry[1] !== undefined,
  );
  return { ...Object.fromEntries(own), LC_ALL: "C" };
}

async function requireFree(forwards: readonly Forward[]): Promise<void> {
  const taken: string[] = [];
  for (const { local, what } of forwards) {
    if (await isPortInUse(local)) taken.push(`${local} (${what})`);
  }
  if (taken.length === 0) return;
  const ports = `${taken.length === 1 ? "port" : "ports"} ${taken.join(", ")}`;
  const verb = taken.length === 1 ? "is" : "are";
  throw new TunnelError(
    `${ports} ${verb} taken on this machine; move all local ports with --port-offset, like --port-offset 10000`,
  );
}
