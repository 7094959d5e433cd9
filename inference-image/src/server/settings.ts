import { z } from "zod";
import { type ServerEnv, type ServerEnvName, serverEnv } from "../contract/server-env.ts";

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
  if (result.success) return result.data;
  const lines = result.error.issues.map((issue) => {
    const name = String(issue.path[0]) as ServerEnvName;
    const got = given[name];
    const rule = issue.code === "custom" || issue.path.length > 1 ? issue.message : ruleOf(name);
    return `${name} ${rule}${got === undefined ? "" : `, got '${got}'`}`;
  });
  throw new SettingsError(lines.join("\n"));
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
