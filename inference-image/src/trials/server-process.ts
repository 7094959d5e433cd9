import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { type AddressInfo, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { embedPaths } from "../contract/embed-api.ts";
import { oipPaths } from "../contract/oip-paths.ts";
import type { ServerEnvName } from "../contract/server-env.ts";
import { ensureTinyModel } from "../model/generate.ts";
import { copyModelRepository } from "../model/repository.ts";

const main = fileURLToPath(new URL("../server/main.ts", import.meta.url));

/** Arguments of Node that start the server from its sources. */
const sources = ["--import", import.meta.resolve("tsx"), main];

/** How long a server may take to be ready, and to stop, in milliseconds. */
const startMs = 60_000;
const stopMs = 40_000;
const shownLines = 12;

/** A server of a trial, in a process of its own. */
export interface ServerProcess {
  readonly name: "embed" | "triton";
  /** Of 127.0.0.1: one for `embed`; HTTP, gRPC and metrics for `triton`. */
  readonly ports: readonly number[];
  /** How it ended, in words, with its last lines; `undefined` while it runs. */
  readonly ended: string | undefined;
  /** Resident memory in bytes; 0 where the system does not tell. */
  memory(): Promise<number>;
  /** SIGTERM. Gives what {@link ended} says: `with code 0` when it stopped in order. */
  stop(): Promise<string>;
}

/**
 * The embed server, on the tiny model unless `env` says otherwise.
 *
 * @param program - Arguments of Node that start it.
 */
export async function startEmbed(
  env: Partial<Record<ServerEnvName, string>> = {},
  program: readonly string[] = sources,
): Promise<ServerProcess> {
  const port = await freePort();
  const MODEL_PATH = env.MODEL_PATH ?? (await ensureTinyModel());
  return start("embed", [port], program, `http://127.0.0.1:${port}${embedPaths.readyz}`, {
    LOG_LEVEL: "error",
    ...env,
    HOST: "127.0.0.1",
    PORT: String(port),
    MODEL_PATH,
  });
}

/**
 * The server that stands where a Triton would, with all models of this checkout on the tiny model's file.
 *
 * @param program - Arguments of Node that start it.
 */
export async function startTriton(program: readonly string[] = sources): Promise<ServerProcess> {
  const repository = await mkdtemp(join(tmpdir(), "clipstack-trial-"));
  await copyModelRepository(await ensureTinyModel(), repository);
  const ports = [await freePort(), await freePort(), await freePort()];
  const [http, grpc, metrics] = ports;
  const flags = [
    `--model-repository=${repository}`,
    "--model-control-mode=explicit",
    "--load-model=*",
    "--model-config-name=cpu",
    ...["http", "grpc", "metrics"].map((service) => `--${service}-address=127.0.0.1`),
    `--http-port=${http}`,
    `--grpc-port=${grpc}`,
    `--metrics-port=${metrics}`,
  ];
  const server = await start(
    "triton",
    ports,
    [...program, "tritonserver", ...flags],
    `http://127.0.0.1:${http}${oipPaths.ready}`,
    {},
  );
  return {
    ...server,
    get ended() {
      return server.ended;
    },
    async stop() {
      try {
        return await server.stop();
      } finally {
        await rm(repository, { recursive: true, force: true });
      }
    },
  };
}

async function start(
  name: ServerProcess["name"],
  ports: readonly number[],
  args: readonly string[],
  readyUrl: string,
  env: Readonly<Record<string, string>>,
): Promise<ServerProcess> {
  const child = spawn(process.execPath, args, {
    env: { ...process.env, ...env },
    stdio: ["ignore", "pipe", "pipe"],
  });
  const lines: string[] = [];
  for (const stream of [child.stdout, child.stderr]) {
    stream.on("data", (chunk: Buffer) => {
      lines.push(...chunk.toString().split("\n").filter(Boolean));
      lines.splice(0, lines.length - shownLines);
    });
  }
  // no server outlives its trial
  const kill = () => child.kill("SIGKILL");
  process.once("exit", kill);
  endOnSignals();
  const closed = once(child, "close").then(() => process.off("exit", kill));
  const server: ServerProcess = {
    name,
    ports,
    get ended() {
      if (child.exitCode === null && child.signalCode === null) return undefined;
      return `${howEnded(child)}${lines.map((line) => `\n  ${line}`).join("")}`;
    },
    memory: () => residentBytes(child.pid ?? 0),
    async stop() {
      child.kill("SIGTERM");
      const late = setTimeout(kill, stopMs);
      await closed;
      clearTimeout(late);
      return howEnded(child);
    },
  };
  const giveUpAt = performance.now() + startMs;
  while (!(await isOk(readyUrl))) {
    if (server.ended !== undefined) throw new Error(`the ${name} server ended ${server.ended}`);
    if (performance.now() > giveUpAt) {
      await server.stop();
      throw new Error(`the ${name} server was not ready in ${startMs / 1000} s`);
    }
    await sleep(50);
  }
  return server;
}

let watching = false;

/** By itself a signal ends a process without its `exit`. */
function endOnSignals(): void {
  if (watching) return;
  watching = true;
  for (const [signal, code] of [
    ["SIGINT", 130],
    ["SIGTERM", 143],
  ] as const) {
    process.once(signal, () => process.exit(code));
  }
}

function howEnded({ exitCode, signalCode }: ChildProcess): string {
  return signalCode === null ? `with code ${exitCode}` : `by ${signalCode}`;
}

async function isOk(url: string): Promise<boolean> {
  try {
    const response = await fetch(url, { signal: AbortSignal.timeout(2_000) });
    await response.arrayBuffer();
    return response.ok;
  } catch {
    return false;
  }
}

async function residentBytes(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, "utf8").catch(() => "");
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1] ?? 0) * 1024;
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  return port;
}
