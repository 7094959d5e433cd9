import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { type AddressInfo, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { embedPaths } from "../../contract/embed-routes.ts";
import { DedupeError } from "./dedupe-error.ts";

export interface DemoArguments {
  readonly model: string;
  readonly port: number;
  readonly exit: boolean;
}

const dedupe = fileURLToPath(new URL("clipstack-dedupe.mjs", import.meta.url));
const clipstack = fileURLToPath(new URL("../../cli/clipstack.mjs", import.meta.url));

/** Maximum start time in milliseconds, including the generation of a model. */
const startTimeoutMs = 300_000;

/** `clipstack-dedupe demo`: runs the other commands in sequence with a local server. */
export async function demoCommand({ model, port, exit }: DemoArguments): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), "clipstack-dedupe-"));
  const serverPort = await freePort();
  const url = `http://127.0.0.1:${serverPort}`;
  // the model loads while the photos are painted
  const server = spawn(
    process.execPath,
    [clipstack, "serve", "--model", model, "--http-port", String(serverPort)],
    {
      env: { ...process.env, LOG_LEVEL: "warn", BACKEND: "onnxruntime" },
      stdio: ["ignore", "ignore", "inherit"],
    },
  );
  const ended = once(server, "close");
  // Ctrl-C ends the running command, which the terminal signals as well
  const ignore = () => {};
  process.on("SIGINT", ignore);
  try {
    await runStep(folder, "make-photos", "photos");
    await runStep(folder, "scan", "photos");
    await serverReady(server, url);
    await runStep(folder, "embed", "--mode", "remote", "--url", url);
    server.kill("SIGTERM");
    await runStep(folder, "evaluate", "photos");
    await runStep(folder, "group", "--threshold", "0.97");
    if (!exit) await runStep(folder, "review", "--port", String(port));
  } finally {
    server.kill("SIGTERM");
    await ended;
    process.off("SIGINT", ignore);
    await rm(folder, { recursive: true, force: true });
  }
}

async function runStep(folder: string, ...args: readonly string[]): Promise<void> {
  console.log(`\n# clipstack-dedupe ${args.join(" ")}`);
  const child = spawn(process.execPath, [dedupe, ...args], { cwd: folder, stdio: "inherit" });
  const [code] = await once(child, "close");
  if (code !== 0) throw new DedupeError("failed", `'${args[0]}' exited with code ${code}`);
}

async function serverReady(server: ChildProcess, url: string): Promise<void> {
  const until = performance.now() + startTimeoutMs;
  while (performance.now() < until) {
    if (server.exitCode !== null || server.signalCode !== null) {
      throw new DedupeError("failed", "clipstack serve exited");
    }
    const response = await fetch(url + embedPaths.readyz).catch(() => undefined);
    if (response?.ok) return;
    await sleep(200);
  }
  throw new DedupeError("failed", `clipstack serve is not ready after ${startTimeoutMs / 1000} s`);
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  return port;
}
