import { spawn } from "node:child_process";
import { X509Certificate } from "node:crypto";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { constants } from "node:os";
import { resolve } from "node:path";
import { type Command, InvalidArgumentError } from "commander";

/**
 * Adds `--ca`. Node reads additional authorities only when it starts, so the command runs again in a process that has them, as do the
 * processes that it starts.
 */
export function addAuthorityOption(command: Command): Command {
  return command
    .option(
      "--ca <file>",
      "PEM file with the certificate authority of https addresses, besides those that Node trusts",
      authorityFile,
    )
    .hook("preAction", async (_command, action) => {
      const { ca } = action.opts<{ readonly ca?: string }>();
      if (ca !== undefined && process.env.NODE_EXTRA_CA_CERTS !== ca) {
        process.exit(await runAgain({ ...process.env, NODE_EXTRA_CA_CERTS: ca }));
      }
    });
}

function authorityFile(path: string): string {
  try {
    return new X509Certificate(readFileSync(path)) && resolve(path);
  } catch {
    throw new InvalidArgumentError(`It must be a PEM file with a certificate, got '${path}'.`);
  }
}

/** Runs this process again; the terminal sends its signals to both processes. */
async function runAgain(env: NodeJS.ProcessEnv): Promise<number> {
  const child = spawn(process.execPath, [...process.execArgv, ...process.argv.slice(1)], {
    stdio: "inherit",
    env,
  });
  process.on("SIGINT", () => {});
  process.on("SIGTERM", () => child.kill("SIGTERM"));
  const [code, signal] = (await once(child, "exit")) as [number | null, NodeJS.Signals | null];
  return code ?? 128 + constants.signals[signal ?? "SIGKILL"];
}
