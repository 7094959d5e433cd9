import { isAbsolute } from "node:path";
import { modelControlKeyVariable } from "../../contract/triton-flags.ts";
import { type AddVersionOptions, addVersion } from "../../model-tools/repository/deploy-version.ts";
import { readArguments, UsageError } from "./role-arguments.ts";

/** Reads the arguments of `deploy-version …`. */
export function readDeployVersionArguments(
  args: readonly string[],
  env: Readonly<Record<string, string | undefined>> = {},
): AddVersionOptions {
  const { folder, file, servers, ...rest } = readArguments("deploy-version", args, {
    required: ["folder", "file", "servers", "timeout-seconds"],
  });
  const urls = servers.split(",");
  const wrong = urls.find((url) => !/^https?:\/\/[^/\s]+$/.test(url));
  if (wrong !== undefined) {
    throw new UsageError(`deploy-version: --servers must be http://host:port, got '${wrong}'`);
  }
  if (!isAbsolute(folder)) {
    throw new UsageError(`deploy-version: --folder must be absolute, got '${folder}'`);
  }
  const seconds = rest["timeout-seconds"];
  if (!/^[1-9]\d{0,4}$/.test(seconds)) {
    throw new UsageError(`deploy-version: --timeout-seconds must be 1 to 99999, got '${seconds}'`);
  }
  return {
    folder,
    file,
    servers: urls,
    key: env[modelControlKeyVariable],
    timeoutSeconds: Number(seconds),
  };
}

/**
 * Adds a version of a model and loads it in running Triton servers.
 *
 * @returns The deployed version as JSON.
 * @throws {Error} with a one-line message; the previous version remains in service
 */
export async function deployVersion(options: AddVersionOptions): Promise<string> {
  return JSON.stringify(await addVersion(options));
}
