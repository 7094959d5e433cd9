import { z } from "zod";
import { nearestOf, renderValue } from "../../contract/issue-lines.ts";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { type ModelEntry, modelEntry, selectModels } from "../../contract/server/model-list.ts";
import type { LoadedModels } from "./model-files.ts";
import { SettingsError } from "./settings-error.ts";

/** Setting `models` of every stack, and the specs that it selects. */

export const models = z
  .array(modelEntry)
  .min(1, "must list at least one model")
  .default([{ name: defaultModel.name, modalities: ["image"] }])
  .describe(
    "Models that every service serves; the first is the default of requests. A name of the catalogue, or `<name>` for `environments/models/<name>.yaml`, serves all modalities of the model; `{ name, modalities }` serves some of them.",
  );

/** Settings of a stack with specs in place of the names of models. */
export type WithSpecs<Settings extends { readonly models: readonly ModelEntry[] }> = Omit<
  Settings,
  "models"
> & {
  readonly models: readonly ModelSpec[];
};

/**
 * Returns the specs of the listed models, each with the towers that are served.
 *
 * @param settings - Entries of the setting; undefined for those that do not match the schema.
 */
export function resolveModels(
  file: string,
  settings: readonly (ModelEntry | undefined)[],
  loaded: LoadedModels,
): readonly ModelSpec[] {
  const { specs, faults } = selectModels(settings, loaded.models);
  const lines = faults.flatMap(({ path, must, got, isUnknown = false }) => {
    const invalid = loaded.rejected.find(({ name }) => isUnknown && name === got);
    const near = isUnknown ? nearestOf(got, [...loaded.models.keys()]) : "";
    const setting = `${file}: models.${path.join(".")}`;
    return invalid?.lines ?? [`${setting} ${must}, got ${renderValue(got)}${near}`];
  });
  for (const [index, spec] of specs.entries()) {
    if (!/[$%]\{/.test(JSON.stringify(spec))) continue;
    lines.push(
      `${file}: models.${index} must not have '\${' or '%{' in its facts, which Terraform evaluates, got ${renderValue(spec.name)}`,
    );
  }
  if (lines.length > 0) throw new SettingsError(lines);
  return specs;
}

/** Errors of the entries that match the schema, in settings of which others do not. */
export function modelErrors(file: string, input: unknown, loaded: LoadedModels): readonly string[] {
  const entries = z.object({ models: z.array(z.unknown()) }).safeParse(input).data?.models ?? [];
  try {
    resolveModels(
      file,
      entries.map((entry) => modelEntry.safeParse(entry).data),
      loaded,
    );
    return [];
  } catch (error) {
    if (error instanceof SettingsError) return error.lines;
    throw error;
  }
}
