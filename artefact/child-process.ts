import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";

/** Exit code or signal of a process. */
export interface Exit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  /** Time from the stop request to the exit, in milliseconds; 0 for a process that was not stopped. */
  readonly afterMs: number;
}

export interface Child {
  readonly pid: number;
  /** `undefined` while it runs. */
  readonly exit: Exit | undefined;
  readonly exited: Promise<Exit>;
  /** Last lines of its output. */
  lastLines(count: number): readonly string[];
  /** Sends SIGTERM, and SIGKILL after the grace period. */
  stop(graceSeconds: number): Promise<Exit>;
}

export interface ChildOptions {
  /** Program and first arguments: `node --import tsx …/main.ts`. */
  readonly command: readonly string[];
  readonly args: readonly string[];
  /** Environment variables. Only {@link inherited} ones of this process are passed on. */
  readonly env: Readonly<Record<string, string>>;
  /**
   * Standard input. `held` stays open and empty while this process runs, for a program that exits at the end of its input.
   *
   * @default empty
   */
  readonly input?: "empty" | "held";
}

/** Environment variables that a child inherits; in a container the image sets them. */
const inherited = ["PATH", "HOME", "TMPDIR", "TEMP", "SystemRoot"] as const;

const maxLines = 200;

/** Module that a Node command line imports so that the process ends when this one does. */
export const endWithParent = fileURLToPath(new URL("./end-with-parent.mjs", import.meta.url));

const running = new Set<Child>();
let watching = false;

/** Starts a process that is killed when this one exits. */
export function startChild({ command, args, env, input = "empty" }: ChildOptions): Child {
  const [program = process.execPath, ...first] = command;
  const started = spawn(program, [...first, ...args], {
    env: { ...baseEnvironment(), ...env },
    // a separate process group, so that Ctrl-C reaches only this process, which then stops its children
    detached: true,
    stdio: [input === "held" ? "pipe" : "ignore", "pipe", "pipe", "pipe"],
  });
  const output = outputLines();
  started.stdout?.on("data", output.append);
  started.stderr?.on("data", output.append);

  let exit: Exit | undefined;
  let stopRequestedAt: number | undefined;
  const exited = new Promise<Exit>((resolve) => {
    const end = (code: number | null, signal: NodeJS.Signals | null): void => {
      output.append("\n");
      exit ??= {
        code,
        signal,
        afterMs: stopRequestedAt === undefined ? 0 : performance.now() - stopRequestedAt,
      };
      running.delete(child);
      resolve(exit);
    };
    started.once("close", end);
    started.once("error", (error) => {
      output.append(error.message);
      end(null, null);
    });
  });

  const child: Child = {
    pid: started.pid ?? 0,
    get exit() {
      return exit;
    },
    exited,
    lastLines: (count) => output.lines.slice(-count),
    async stop(graceSeconds) {
      if (exit !== undefined) return exit;
      stopRequestedAt ??= performance.now();
      started.kill("SIGTERM");
      const timer = setTimeout(() => killGroup(child.pid), graceSeconds * 1_000);
      const result = await exited;
      clearTimeout(timer);
      return result;
    },
  };
  running.add(child);
  killChildrenOnExit();
  return child;
}

/** Last non-empty lines of a stream. */
function outputLines() {
  const lines: string[] = [];
  let rest = "";
  const append = (chunk: Buffer | string): void => {
    const parts = (rest + chunk.toString()).split("\n");
    rest = parts.pop() ?? "";
    lines.push(...parts.filter((line) => line.trim() !== ""));
    lines.splice(0, lines.length - maxLines);
  };
  return { lines, append };
}

function baseEnvironment(): Record<string, string> {
  return Object.fromEntries(
    inherited.flatMap((name) => {
      const value = process.env[name];
      return value === undefined ? [] : [[name, value]];
    }),
  );
}

function killChildrenOnExit(): void {
  if (watching) return;
  watching = true;
  process.once("exit", () => {
    for (const child of running) killGroup(child.pid);
  });
}

/** Kills a child and its own children. */
function killGroup(pid: number): void {
  try {
    process.kill(process.platform === "win32" ? pid : -pid, "SIGKILL");
  } catch {
    // it has ended already
  }
}
