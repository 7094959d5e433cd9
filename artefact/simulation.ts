import {
  existsSync,
  mkdirSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { messageOf, UserError } from "../contract/user-error.ts";
import { type Child, type Exit, endWithParent, startChild } from "./child-process.ts";
import { isPortInUse } from "./free-ports.ts";
import type { Instance, RepositoryPlan, SimulationPlan } from "./simulation-types.ts";
import { startTcpProxy, type TcpProxy } from "./tcp-proxy.ts";

/** Running simulation of an environment: processes of clipstack's server in place of its containers. */
export interface Simulation {
  readonly instances: readonly RunningInstance[];
  /** Stops the remaining processes. */
  stop(): Promise<void>;
}

export interface RunningInstance {
  readonly instance: Instance;
  readonly child: Child;
  readonly start: StartOutcome;
}

export type StartOutcome =
  | { readonly ok: true; readonly readyMs: number }
  | { readonly ok: false; readonly message: string };

/** Commands of the programs that implement the roles. */
export interface ServerCommands {
  /** Command of clipstack's server, without the server's own arguments: the server's file last. */
  readonly serverCommand: readonly string[];
  /** Command and environment variables of the PyTorch baseline; absent if the plan has no PyTorch baseline. */
  readonly pytorch?: PytorchCommand;
}

export interface PytorchCommand {
  readonly command: readonly string[];
  readonly env: Readonly<Record<string, string>>;
}

export interface StartOptions extends ServerCommands {
  readonly signal: AbortSignal;
  /** Maximum duration of a start in seconds, even if the synthesized health check allows more. */
  readonly startLimitSeconds: number;
}

const defaultPollMs = 50;
const printedLines = 8;

/** Checks that the ports that environments need are free. */
export async function requireFreePorts(
  plans: readonly { readonly environment: string; readonly plan: SimulationPlan }[],
): Promise<void> {
  const owners = new Map<number, string>();
  for (const { environment, plan } of plans) {
    for (const { port, neededBy } of plan.hostPorts) {
      if (!owners.has(port)) owners.set(port, `${environment}/${neededBy}`);
    }
  }
  const inUse: string[] = [];
  for (const [port, neededBy] of owners) {
    if (await isPortInUse(port))
      inUse.push(`port ${port} of ${neededBy} is in use on this machine`);
  }
  if (inUse.length === 0) return;
  throw new UserError(
    `${inUse.join("\n")}\nstop the program that listens there, or rerun with --port-offset 10000`,
  );
}

/** Starts every process of a plan concurrently, and resolves once each is healthy or has failed. */
export async function startSimulation(
  plan: SimulationPlan,
  options: StartOptions,
): Promise<Simulation> {
  const children: Child[] = [];
  const proxies: TcpProxy[] = [];
  const stop = async (): Promise<void> => {
    await Promise.all(proxies.map((proxy) => proxy.close()));
    await Promise.all(children.map((child) => child.stop(stopGraceSeconds)));
    for (const { repository } of plan.instances) {
      if (repository !== undefined) rmSync(repository.folder, { recursive: true, force: true });
    }
  };
  try {
    const instances = await Promise.all(
      plan.instances.map(async (instance): Promise<RunningInstance> => {
        const problem = prepare(instance);
        const child = startProcess(instance, options);
        children.push(child);
        const { readyUrl, readyBudgetSeconds } = instance;
        const budgetSeconds = Math.min(readyBudgetSeconds, options.startLimitSeconds);
        const start =
          problem ?? (await waitUntilReady(child, readyUrl, budgetSeconds, options.signal));
        return { instance, child, start };
      }),
    );
    for (const proxy of distinctPorts(plan)) {
      proxies.push(await startTcpProxy(proxy.port, proxy.backends));
    }
    return { instances, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

/** Short, because nothing is in flight at the end of a simulation. */
const stopGraceSeconds = 5;

function distinctPorts(plan: SimulationPlan): SimulationPlan["proxies"] {
  const seen = new Set<number>();
  return plan.proxies.filter(({ port }) => !seen.has(port) && seen.add(port));
}

/** Starts the process of an instance. Its model repository must exist: {@link assembleRepository}. */
export function startProcess(
  instance: Instance,
  { serverCommand, pytorch }: ServerCommands,
): Child {
  if (instance.role === "baseline") {
    if (pytorch === undefined) throw new Error(`${instance.name}: no command of PyTorch`);
    const env = { ...pytorch.env, ...instance.env };
    return startChild({ command: pytorch.command, args: instance.args, env });
  }
  return startChild({
    command: withLifeline(serverCommand),
    args: instance.args,
    env: instance.env,
  });
}

/** Adds {@link endWithParent} to a command of Node that ends with the program's file. */
export function withLifeline(command: readonly string[]): readonly string[] {
  return [...command.slice(0, -1), "--import", endWithParent, ...command.slice(-1)];
}

function prepare({ repository }: Instance): StartOutcome | undefined {
  try {
    if (repository !== undefined) assembleRepository(repository);
    return undefined;
  } catch (error) {
    return { ok: false, message: messageOf(error) };
  }
}

/** Assembles a model repository from folders, links to files, and text files of the artefact. */
export function assembleRepository({ folder, parts, replacements }: RepositoryPlan): void {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  for (const { path, source, files = {} } of parts) {
    for (const [name, text] of Object.entries(files)) {
      const file = join(folder, path, name);
      mkdirSync(dirname(file), { recursive: true });
      writeFileSync(file, text);
    }
    if (source === undefined) continue;
    if (existsSync(source)) mirror(source, join(folder, path));
    else if (!isReplaced(path, replacements)) {
      throw new Error(`cannot mount ${source}: no such folder`);
    }
  }
  for (const [model, file] of Object.entries(replacements)) {
    const version = join(folder, model, "1");
    rmSync(version, { recursive: true, force: true });
    mkdirSync(version, { recursive: true });
    symlinkSync(file, join(version, "model.onnx"));
    if (existsSync(`${file}.json`)) symlinkSync(`${file}.json`, join(version, "model.onnx.json"));
  }
}

/** Returns whether a path of a repository is the version folder of a replaced model. */
function isReplaced(path: string, replacements: RepositoryPlan["replacements"]): boolean {
  return Object.keys(replacements).some((model) => path === `${model}/1`);
}

function mirror(source: string, target: string): void {
  mkdirSync(target, { recursive: true });
  for (const entry of readdirSync(source)) {
    const [from, to] = [join(source, entry), join(target, entry)];
    if (!existsSync(from)) continue; // a link to an optimised model that does not exist yet
    if (statSync(from).isDirectory()) mirror(from, to);
    else {
      rmSync(to, { force: true });
      symlinkSync(from, to);
    }
  }
}

/** Polls a URL until it returns 200, the process ends, or the limit is reached. */
export async function waitUntilReady(
  child: Child,
  readyUrl: string,
  budgetSeconds: number,
  signal: AbortSignal = new AbortController().signal,
  pollMs = defaultPollMs,
): Promise<StartOutcome> {
  const startedAt = performance.now();
  let lastResponse = "no response";
  while (performance.now() - startedAt < budgetSeconds * 1_000) {
    signal.throwIfAborted();
    if (child.exit !== undefined) {
      return {
        ok: false,
        message: `ended ${describeExit(child.exit)} before it was ready${lastLinesOf(child)}`,
      };
    }
    const status = await statusOf(readyUrl, signal);
    if (status === 200) return { ok: true, readyMs: performance.now() - startedAt };
    lastResponse = status === undefined ? "no response" : `status ${status}`;
    await sleep(pollMs, undefined, { signal });
  }
  return {
    ok: false,
    message: `was not ready in ${budgetSeconds} s: ${lastResponse} from ${readyUrl}${lastLinesOf(child)}`,
  };
}

/** Describes an exit: `with code 1`, `by SIGKILL`. */
export function describeExit({ code, signal }: Exit): string {
  if (signal !== null) return `by ${signal}`;
  return code === null ? "before it began" : `with code ${code}`;
}

/** Last output lines of a process, for messages. */
export function lastLinesOf(child: Child): string {
  const lines = child.lastLines(printedLines);
  return lines.length === 0
    ? ""
    : `; last lines of its output:\n${lines.map((l) => `    ${l}`).join("\n")}`;
}

async function statusOf(url: string, signal: AbortSignal): Promise<number | undefined> {
  try {
    const response = await fetch(url, {
      signal: AbortSignal.any([signal, AbortSignal.timeout(2_000)]),
    });
    await response.arrayBuffer();
    return response.status;
  } catch {
    signal.throwIfAborted();
    return undefined;
  }
}
