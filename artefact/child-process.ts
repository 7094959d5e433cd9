import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";

/** How a process ended: with a code, or by a signal. */
export interface Exit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  /** From the request to stop until the end, in milliseconds; 0 for a process that ended by itself. */
  readonly afterMs: number;
}

export interface Child {
  readonly pid: number;
  /** How it ended; `undefined` while it runs. */
  readonly exit: Exit | undefined;
  readonly exited: Promise<Exit>;
  /** The end of what it printed. */
  lastLines(count: number): readonly string[];
  /** SIGTERM, and SIGKILL when the grace is over. */
  stop(graceSeconds: number): Promise<Exit>;
}

export interface ChildOptions {
  /** Program and first arguments: `node --import tsx …/main.ts`. */
  readonly command: readonly string[];
  readonly args: readonly string[];
  /** The whole environment, but for what a program needs to run at all. */
  readonly env: Readonly<Record<string, string>>;
  /**
   * `held`: open and silent for as long as this process is there, for a program that ends at the end of its input.
   *
   * @default empty
   */
  readonly input?: "empty" | "held";
}

/** What a program needs of this machine, and a container has of its image. */
const inherited = ["PATH", "HOME", "TMPDIR", "TEMP", "SystemRoot"] as const;

const keptLines = 200;

/** Module that {@link startChild} expects in a Node command line, so that no child outlives the bench. */
export const endWithParent = fileURLToPath(new URL("end-with-parent.mjs", import.meta.url));

const running = new Set<Child>();
let watching = false;

/** Start a process that ends with this one: by {@link Child.stop}, and by itself when this process is gone. */
export function startChild({ command, args, env, input = "empty" }: ChildOptions): Child {
  const [program = process.execPath, ...first] = command;
  const started = spawn(program, [...first, ...args], {
    env: { ...baseEnvironment(), ...env },
    // its own process group: Ctrl-C reaches this process alone, which then stops its children one by one
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
  let stopAskedAt: number | undefined;
  const exited = new Promise<Exit>((resolve) => {
    const end = (code: number | null, signal: NodeJS.Signals | null): void => {
      if (rest.trim() !== "") lines.push(rest);
      rest = "";
      exit ??= {
        code,
        signal,
        afterMs: stopAskedAt === undefined ? 0 : performance.now() - stopAskedAt,
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
      stopAskedAt ??= performance.now();
      started.kill("SIGTERM");
      const timer = setTimeout(() => killGroup(child.pid), graceSeconds * 1_000);
      const result = await exited;
      clearTimeout(timer);
      return result;
    },
  };
  running.add(child);
  watchOwnEnd();
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

/** The last line of defence: whatever ends this process in an orderly way takes the children along at once. */
function watchOwnEnd(): void {
  if (watching) return;
  watching = true;
  process.once("exit", () => {
    for (const child of running) killGroup(child.pid);
  });
}

/** End a child and what it started. */
function killGroup(pid: number): void {
  try {
    process.kill(process.platform === "win32" ? pid : -pid, "SIGKILL");
  } catch {
    // it was gone already
  }
}
