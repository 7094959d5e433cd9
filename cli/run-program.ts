import { execa } from "execa";

/** What a program that has ended left. */
export interface ProgramResult {
  /** `missing`: there is no such program on the PATH. `late`: it was ended because it took too long. */
  readonly outcome: "ended" | "missing" | "late";
  /** 0 is good; -1 where it did not end by itself. */
  readonly exitCode: number;
  readonly stdout: string;
  readonly stderr: string;
}

export interface ProgramOptions {
  readonly timeoutMs: number;
  /** Added to the environment of this process. */
  readonly env?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal;
}

/** Run a program without a shell and without a terminal, so that it cannot ask for anything. Never throws. */
export async function runProgram(
  program: string,
  args: readonly string[],
  { timeoutMs, env, signal }: ProgramOptions,
): Promise<ProgramResult> {
  const result = await execa(program, [...args], {
    // messages are matched by their English text
    env: { LC_ALL: "C", ...env },
    stdin: "ignore",
    reject: false,
    timeout: timeoutMs,
    forceKillAfterDelay: 1_000,
    cancelSignal: signal,
    maxBuffer: 16 * 1024 * 1024,
  });
  return {
    outcome: result.code === "ENOENT" ? "missing" : result.timedOut ? "late" : "ended",
    exitCode: result.exitCode ?? -1,
    stdout: result.stdout ?? "",
    stderr: result.stderr ?? "",
  };
}
