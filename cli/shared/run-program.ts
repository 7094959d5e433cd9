import { execa } from "execa";

export interface ProgramResult {
  /** `missing`: not on the PATH. `late`: killed after the timeout. */
  readonly outcome: "ended" | "missing" | "late";
  /** -1 if the program was killed or is missing. */
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

/** Runs a program without a shell or terminal, so that it cannot prompt. Never throws. */
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
