import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { isLoopback } from "../../contract/loopback.ts";
import { readFailure } from "../../contract/read-failure.ts";
import {
  modelRepositoryMount,
  type ServerEnv,
  type ServerEnvName,
  serverEnv,
} from "../../contract/server/server-env.ts";
import { variableConflicts } from "../../contract/server/server-settings.ts";

/** Invalid settings, one line per error. */
export class SettingsError extends Error {
  override readonly name = "SettingsError";
}

/** Reads the server's settings from environment variables. An empty variable counts as unset. */
export function readSettings(env: Readonly<Record<string, string | undefined>>): ServerEnv {
  const values = Object.fromEntries(
    Object.entries(env).filter(([, value]) => value !== undefined && value !== ""),
  );
  const file = modelsFileOf(values);
  const result = serverEnv.safeParse(
    file === undefined ? values : { ...values, MODELS: readModels(file) },
  );
  if (result.success) {
    const conflicts = conflictsIn(result.data);
    if (conflicts.length > 0) throw new SettingsError(conflicts.join("\n"));
    return result.data;
  }
  const lines = result.error.issues.map((issue) => {
    const name = String(issue.path[0]) as ServerEnvName;
    if (name === "MODELS") {
      const list = file === undefined ? name : `${file}: models`;
      return `${[list, ...issue.path.slice(1)].join(".")} ${issue.message}`;
    }
    const got = secrets.has(name) ? undefined : values[name];
    const hasRule = ["custom", "invalid_format"].includes(issue.code) || issue.path.length > 1;
    const rule = hasRule ? issue.message : ruleOf(name);
    return `${name} ${rule}${got === undefined ? "" : `, got '${got}'`}`;
  });
  throw new SettingsError(lines.join("\n"));
}

/** File with the list of models: MODELS_FILE, or that of the model repository if neither MODELS nor MODELS_FILE is set. */
function modelsFileOf(values: Readonly<Record<string, string | undefined>>): string | undefined {
  const { MODELS, MODELS_FILE, MODEL_REPOSITORY = modelRepositoryMount } = values;
  if (MODELS !== undefined && MODELS_FILE !== undefined) {
    throw new SettingsError(`MODELS and MODELS_FILE must not both be set, got '${MODELS_FILE}'`);
  }
  const inRepository = join(MODEL_REPOSITORY, "models.json");
  return (
    MODELS_FILE ?? (MODELS === undefined && existsSync(inRepository) ? inRepository : undefined)
  );
}

function readModels(file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    throw new SettingsError(`MODELS_FILE ${file} ${readFailure(error)}`);
  }
}

/** Settings whose value no error message contains. */
const secrets: ReadonlySet<ServerEnvName> = new Set(["API_KEY"]);

/** Returns violated rules between settings. They apply to the process only: a stack may publish the container's port on loopback. */
function conflictsIn(env: ServerEnv): readonly string[] {
  const conflicts: string[] = [];
  const hasKey = env.API_KEY !== undefined || env.API_KEYS_FILE !== undefined;
  if (env.API_KEY !== undefined && env.API_KEYS_FILE !== undefined) {
    conflicts.push("API_KEY must not be set beside API_KEYS_FILE");
  }
  if (!hasKey && env.ALLOW_ANONYMOUS === "false" && !isLoopback(env.HOST)) {
    conflicts.push(
      `API_KEY or API_KEYS_FILE is required unless HOST is a loopback address (or set ALLOW_ANONYMOUS=true if the network restricts access), got HOST '${env.HOST}'`,
    );
  }
  conflicts.push(...variableConflicts(env));
  for (const prefix of ["", "TRITON_"] as const) {
    const files = [`${prefix}TLS_CERT_FILE`, `${prefix}TLS_KEY_FILE`] as const;
    const present = files.find((name) => env[name] !== undefined);
    const missing = files.find((name) => env[name] === undefined);
    if (present !== undefined && missing !== undefined) {
      conflicts.push(`${missing} is required when ${present} is set`);
    }
  }
  if (env.TRITON_TLS_CA_FILE === undefined) {
    const names = ["TRITON_TLS_CERT_FILE", "TRITON_TLS_SERVER_NAME"] as const;
    for (const name of names) {
      if (env[name] !== undefined) {
        conflicts.push(`TRITON_TLS_CA_FILE is required when ${name} is set`);
      }
    }
  }
  return conflicts;
}

/** Rule of a setting, derived from its schema. */
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
