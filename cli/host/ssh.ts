import type { Problem } from "../shared/problem.ts";
import { type ProgramResult, runProgram } from "../shared/run-program.ts";
import { shellQuote } from "../shared/shell-quote.ts";

export interface SshTarget {
  /** Arguments of `ssh`, the host last. */
  readonly args: readonly string[];
  /** `user@host`, for messages and commands. */
  readonly text: string;
}

/** Parses `ssh://[user@]host[:port]`; undefined for other endpoints. */
export function sshTarget(endpoint: string): SshTarget | undefined {
  if (!endpoint.startsWith("ssh://")) return undefined;
  const { username, hostname: host, port } = new URL(endpoint);
  // an IPv6 address is in brackets only in URLs
  const hostname = host.replace(/^\[(.*)\]$/, "$1");
  const user = username === "" ? [] : ["-l", decodeURIComponent(username)];
  return {
    args: [...user, ...(port === "" ? [] : ["-p", port]), "--", hostname],
    text: `${port === "" ? "" : `-p ${port} `}${username === "" ? "" : `${username}@`}${hostname}`,
  };
}

const connectSeconds = 10;

/** Runs a program over non-interactive ssh. */
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

/** Exit code of `ssh` if it could not run the command. */
export const sshFailed = 255;

/** Converts the output of a failed ssh to a problem. */
export function explainSsh(output: string, { text }: SshTarget): Problem {
  const last = output.trim().split("\n").at(-1)?.trim() ?? "";
  if (/permission denied/i.test(output)) {
    return {
      code: "ssh",
      message: `ssh ${text} must work without a password, and the host rejected the key`,
      fix: `install a key with 'ssh-copy-id ${text}', or run 'ssh-add' if the key has a passphrase; then 'ssh -o BatchMode=yes ${text} true' must work`,
    };
  }
  if (/host key verification failed|remote host identification has changed/i.test(output)) {
    return {
      code: "ssh",
      message: `the host key of ${text} is unknown to ssh or has changed`,
      fix: `run 'ssh ${text}' once, and compare the key fingerprint`,
    };
  }
  return {
    code: "ssh",
    message: `ssh ${text} failed: ${last === "" ? "no output" : last}`,
    fix: /could not resolve hostname/i.test(last)
      ? "correct the host name in host.docker, or add it to DNS or ~/.ssh/config"
      : `make 'ssh -o BatchMode=yes ${text} true' work`,
  };
}
