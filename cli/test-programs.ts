import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";
import { format } from "node:util";
import { execa } from "execa";
import { expect, vi } from "vitest";
import { runCommand } from "./run-command.ts";

/** Substitutes for programs in tests, in a folder that comes first on the PATH. */
export interface StandIns {
  readonly folder: string;
  /** Replaces the program `name` with a script for `sh`. */
  put(name: string, script: string): void;
  remove(): void;
}

export function standIns(): StandIns {
  const folder = mkdtempSync(join(tmpdir(), "clipstack-programs-"));
  return {
    folder,
    put(name, script) {
      const file = join(folder, name);
      writeFileSync(file, `#!/bin/sh\n${script}\n`);
      chmodSync(file, 0o755);
    },
    remove: () => rmSync(folder, { recursive: true, force: true }),
  };
}

const clipstackProgram = fileURLToPath(new URL("clipstack.mjs", import.meta.url));

export interface CommandResult {
  readonly code: number | undefined;
  /** Without the final line feed. */
  readonly stdout: string;
  readonly stderr: string;
}

let running = false;

/**
 * Runs `clipstack …` in this process, because a new process takes a second. For signals, and for output of child processes, use
 * {@link startClipstack}.
 *
 * @param env - Variables to set, or to remove if undefined, while it runs.
 * @param cwd - Working directory while it runs.
 */
export async function clipstack(
  args: readonly string[],
  env: Readonly<Record<string, string | undefined>> = {},
  cwd = process.cwd(),
): Promise<CommandResult> {
  if (running)
    throw new Error(
      "clipstack() changes the output and environment of this process: run one at a time",
    );
  running = true;
  const output = { stdout: "", stderr: "" };
  const spies = [
    captured(process.stdout, (text) => {
      output.stdout += text;
    }),
    captured(process.stderr, (text) => {
      output.stderr += text;
    }),
    ...(["log", "info", "warn", "error"] as const).map((name) =>
      vi.spyOn(console, name).mockImplementation((...values) => {
        output[name === "log" || name === "info" ? "stdout" : "stderr"] += `${format(...values)}\n`;
      }),
    ),
  ];
  const { exitCode } = process;
  const before = { ...process.env };
  const cwdBefore = process.cwd();
  setEnvironment({ ...before, DOCKER_HOST: undefined, ...env });
  process.chdir(cwd);
  try {
    const code = await runCommand(args);
    return { code, stdout: trimmed(output.stdout), stderr: trimmed(output.stderr) };
  } finally {
    process.chdir(cwdBefore);
    setEnvironment(before);
    process.exitCode = exitCode;
    for (const spy of spies) spy.mockRestore();
    running = false;
  }
}

function captured(stream: NodeJS.WriteStream, take: (text: string) => void) {
  return vi.spyOn(stream, "write").mockImplementation((chunk, encoding?, callback?) => {
    take(typeof chunk === "string" ? chunk : Buffer.from(chunk).toString());
    const done = typeof encoding === "function" ? encoding : callback;
    done?.();
    return true;
  });
}

function setEnvironment(variables: Readonly<Record<string, string | undefined>>): void {
  for (const name of Object.keys(process.env)) {
    if (variables[name] === undefined) delete process.env[name];
  }
  for (const [name, value] of Object.entries(variables)) {
    if (value !== undefined) process.env[name] = value;
  }
}

const trimmed = (text: string) => text.replace(/\n$/, "");

/** Starts `clipstack …` as a process. */
export function startClipstack(
  args: readonly string[],
  env: Readonly<Record<string, string | undefined>> = {},
) {
  const child = execa(process.execPath, [clipstackProgram, ...args], {
    env: { ...process.env, DOCKER_HOST: undefined, ...env },
    extendEnv: false,
    stdin: "ignore",
    reject: false,
    timeout: 240_000,
  });
  const done = child.then(({ exitCode, stdout, stderr }) => ({ code: exitCode, stdout, stderr }));
  return { child, done };
}

/** PATH with `folder` first. */
export function pathWith(folder: string): string {
  return `${folder}${delimiter}${process.env.PATH}`;
}

/** Waits until a server answers a probe of its readiness with 200; a port is open before its models are loaded. */
export async function untilReady(probe: string): Promise<void> {
  const status = () =>
    fetch(probe).then(
      (response) => response.status,
      () => undefined,
    );
  await expect.poll(status, { timeout: 30_000, interval: 50 }).toBe(200);
}
