import type { Problem } from "../problem.ts";
import { type ProgramResult, runProgram } from "../run-program.ts";
import { shellQuote } from "../shell-quote.ts";

/** A machine that is reached over ssh. */
export interface SshTarget {
  /** Arguments that name it, the host last. */
  readonly args: readonly string[];
  /** `user@host`, as a person types it after `ssh`. */
  readonly shown: string;
}

/** The machine of `ssh://[user@]host[:port]`; nothing for another endpoint. */
export function sshTarget(endpoint: string): SshTarget | undefined {
  if (!endpoint.startsWith("ssh://")) return undefined;
  const { username, hostname, port } = new URL(endpoint);
  const user = username === "" ? [] : ["-l", decodeURIComponent(username)];
  return {
    args: [...user, ...(port === "" ? [] : ["-p", port]), "--", hostname],
    shown: `${port === "" ? "" : `-p ${port} `}${username === "" ? "" : `${username}@`}${hostname}`,
  };
}

const connectSeconds = 10;

/** Run a program over ssh, which may ask for nothing: no password, no host key. */
export function runOverSsh(
  target: SshTarget,
  program: string,
  args: readonly string[],
  timeoutMs: number,
): Promise<ProgramResult> {
  const command = [program, ...args].map(shellQuote).join(" ");
  return runProgram(
    "ssh",
    [
      "-o",
      "BatchMode=yes",
      "-o",
      `ConnectTimeout=${connectSeconds}`,
      "-T",
      ...target.args,
      `LC_ALL=C ${command}`,
    ],
    { timeoutMs },
  );
}

/** What `ssh` itself exits with when it could not run the command. */
export const sshFailed = 255;

/** Why ssh could not reach the machine, from what it said. */
export function explainSsh(said: string, { shown }: SshTarget): Problem {
  const last = said.trim().split("\n").at(-1)?.trim() ?? "";
  if (/permission denied/i.test(said)) {
    return {
      code: "ssh",
      message: `ssh ${shown} asks for a password or refuses the key, and a deployment cannot type one`,
      fix: `give it a key: 'ssh-copy-id ${shown}', or 'ssh-add' where the key has a passphrase; then 'ssh -o BatchMode=yes ${shown} true' must work`,
    };
  }
  if (/host key verification failed|remote host identification has changed/i.test(said)) {
    return {
      code: "ssh",
      message: `ssh does not know the key of ${shown}, or it has changed`,
      fix: `run 'ssh ${shown}' once by hand, and compare the key that it shows`,
    };
  }
  return {
    code: "ssh",
    message: `ssh ${shown} failed: ${last === "" ? "it said nothing" : last}`,
    fix: `see why 'ssh -o BatchMode=yes ${shown} true' does not work`,
  };
}
