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
  /** Environment variables; of this process's own, only a few basic ones are inherited. */
  readonly env: Readonly<Record<string, string>>;
  /**
   * Standard input. `held`: open and silent while this process runs, for a program that exits at the end of its input.
   *
   * @default empty
   */
  readonly input?: "empty" | "held";
}

/** Variables that are inherited; in a container the image sets them. */
const inherited = ["PATH", "HOME", "TMPDIR", "TEMP", "SystemRoot"] as const;

const keptLines = 200;

/** Module to import in a Node command line, so that the process ends when this one does. */
export const endWithParent = fileURLToPath(new URL("end-with-parent.mjs", import.meta.url));

const running = new Set<Child>();
let watching = false;

/** Starts a process that ends with this one: through {@link Child.stop}, or by itself when this process is gone. */
export function startChild({ command, args, env, input = "empty" }: ChildOptions): Child {
  const [program = process.execPath, ...first] = command;
  const started = spawn(program, [...first, ...args], {
    env: { ...baseEnvironment(), ...env },
    // a separate process group, so that Ctrl-C reaches only this process, which then stops its children
    detached: true,
    stdio: [input === "held" ? "pipe" : "ignore", "pipe", "pipe", "pipe"],
  });
  const lines: string[] = [];
  let rest = "";
  const keep = (chunk: Buffer): void => {
    const parts = (rest + chunk.toString("utf8")).split("\n");
    rest = parts.pop() ?? "";
    lines.push(...parts.filter((line) => line.trim() !== ""));
    lines.splice(0, lines.length - keptLines);
  };
  started.stdout?.on("data", keep);
  started.stderr?.on("data", keep);

  let exit: Exit | undefined;
  let stopRequestedAt: number | undefined;
  const exited = new Promise<Exit>((resolve) => {
    const end = (code: number | null, signal: NodeJS.Signals | null): void => {
      if (rest.trim() !== "") lines.push(rest);
      rest = "";
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
      lines.push(error.message);
      end(null, null);
    });
  });

  const child: Child = {
    pid: started.pid ?? 0,
    get exit() {
      return exit;
    },
    exited,
    lastLines: (count) => lines.slice(-count),
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

function baseEnvironment(): Record<string, string> {
  return Object.fromEntries(
    inherited.flatMap((name) => {
      const value = process.env[name];
      return value === undefined ? [] : [[name, value]];
    }),
  );
}

/** Kills the children when this process exits without stopping them. */
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
