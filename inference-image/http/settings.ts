import { z } from "zod";
import { type ServerEnv, type ServerEnvName, serverEnv } from "../../contract/server-env.ts";

/** Wrong settings: one line for each mistake. */
export class SettingsError extends Error {
  override readonly name = "SettingsError";
}

/**
 * Read the server's settings from environment variables. An empty one counts as not set.
 *
 * @throws {SettingsError} with all mistakes at once
 */
export function readSettings(env: Readonly<Record<string, string | undefined>>): ServerEnv {
  const given = Object.fromEntries(
    Object.entries(env).filter(([, value]) => value !== undefined && value !== ""),
  );
  const result = serverEnv.safeParse(given);
  if (result.success) {
    const mistakes = mistakesBetween(result.data);
    if (mistakes.length > 0) throw new SettingsError(mistakes.join("\n"));
    return result.data;
  }
  const lines = result.error.issues.map((issue) => {
    const name = String(issue.path[0]) as ServerEnvName;
    const got = secret.has(name) ? undefined : given[name];
    const told = ["custom", "invalid_format"].includes(issue.code) || issue.path.length > 1;
    const rule = told ? issue.message : ruleOf(name);
    return `${name} ${rule}${got === undefined ? "" : `, got '${got}'`}`;
  });
  throw new SettingsError(lines.join("\n"));
}

/** Never shown, not even when they are wrong. */
const secret: ReadonlySet<ServerEnvName> = new Set(["API_KEY"]);

/** Rules of the process that a container's environment need not keep: what it publishes is not ours to know. */
function mistakesBetween(env: ServerEnv): readonly string[] {
  const mistakes: string[] = [];
  if (env.API_KEY === undefined && env.ALLOW_ANONYMOUS === "false" && !isLoopback(env.HOST)) {
    mistakes.push(
      `API_KEY is required where HOST is not this machine alone (or ALLOW_ANONYMOUS=true where something else keeps strangers out), got HOST '${env.HOST}'`,
    );
  }
  if (env.MODEL_PRECISION === "int8" && env.EXECUTION_PROVIDER === "cuda") {
    mistakes.push("MODEL_PRECISION int8 requires EXECUTION_PROVIDER cpu, got 'cuda'");
  }
  for (const prefix of ["", "TRITON_"] as const) {
    const files = [`${prefix}TLS_CERT_FILE`, `${prefix}TLS_KEY_FILE`] as const;
    const given = files.find((name) => env[name] !== undefined);
    const missing = files.find((name) => env[name] === undefined);
    if (given !== undefined && missing !== undefined) {
      mistakes.push(`${missing} is required when ${given} is set`);
    }
  }
  if (env.TRITON_TLS_CA_FILE === undefined) {
    const names = ["TRITON_TLS_CERT_FILE", "TRITON_TLS_SERVER_NAME"] as const;
    for (const name of names) {
      if (env[name] !== undefined) {
        mistakes.push(`TRITON_TLS_CA_FILE is required when ${name} is set`);
      }
    }
  }
  return mistakes;
}

function isLoopback(host: string): boolean {
  return /^(localhost|127(\.\d{1,3}){3}|::1)$/i.test(host);
}

/** What a setting must be, read from its schema. */
function ruleOf(name: ServerEnvName): string {
  const schema = z.toJSONSchema(serverEnv.shape[name]) as {
    readonly enum?: readonly string[];
    readonly minimum?: number;
    readonly maximum?: number;
  };
  if (schema.enum !== undefined) return `must be one of ${schema.enum.join(", ")}`;
  if (schema.minimum !== undefined) {
    return `must be a whole number, ${schema.minimum} to ${schema.maximum}`;
  }
  return "must not be empty";
}
