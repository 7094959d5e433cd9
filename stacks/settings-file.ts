import { readdirSync, readFileSync } from "node:fs";
import { SettingsError } from "./settings-error.ts";
import type { ValidSettings } from "./valid-settings.ts";

/** Files with settings of users: environments and model specs. */

/** Environment or model whose file is invalid, and the reasons. */
export interface RejectedFile {
  readonly name: string;
  readonly lines: readonly string[];
  /** @default - too little of an environment is valid, or it is a model */
  readonly valid?: ValidSettings | undefined;
}

/** Returns whether a YAML value is a map. */
export function isMap(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/**
 * Reads a settings file.
 *
 * @throws {SettingsError} if it cannot be read or is not UTF-8.
 */
export function readText(file: string): string {
  let bytes: Buffer;
  try {
    bytes = readFileSync(file);
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? "unknown";
    throw new SettingsError([`${file}: cannot be read (${code})`]);
  }
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    throw new SettingsError([`${file}: must be UTF-8 text`]);
  }
}

/**
 * Names of the YAML files in a folder, sorted.
 *
 * @param content - Plural noun for the error.
 * @throws {SettingsError} if the folder cannot be read.
 */
export function yamlEntries(folder: string, content: string): readonly string[] {
  try {
    return readdirSync(folder)
      .filter((entry) => !entry.startsWith(".") && /\.ya?ml$/.test(entry))
      .sort();
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw new SettingsError([`${folder}: cannot be read as a folder of ${content} (${code})`]);
  }
}
