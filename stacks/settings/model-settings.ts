import { z } from "zod";
import { nearestOf, renderValue } from "../../contract/issue-lines.ts";
import { type ModelSpec, withModalities } from "../../contract/model-spec.ts";
import { defaultModel } from "../../contract/models/index.ts";
import type { LoadedModels } from "./model-files.ts";
import { SettingsError } from "./settings-error.ts";

/** Setting `models` of every stack, and the specs that it selects. */

const modalities = ["image", "text"] as const;

const selection = z.strictObject({
  name: z.string({ error: "must be the name of a model" }),
  modalities: z
    .array(z.enum(modalities))
    .min(1, "must list image, text or both")
    .describe("Modalities that are served."),
});

const model = z.union([z.string({ error: "must be the name of a model" }), selection]);
export type ModelSetting = z.infer<typeof model>;

export const models = z
  .array(model)
  .min(1, "must list at least one model")
  .default([{ name: defaultModel.name, modalities: ["image"] }])
  .describe(
    "Models that every service serves; the first is the default of requests. A name of the catalogue, or `<name>` for `environments/models/<name>.yaml`, serves all modalities of the model; `{ name, modalities }` serves some of them.",
  );

/** Settings of a stack with specs in place of the names of models. */
export type WithSpecs<Settings extends { readonly models: readonly ModelSetting[] }> = Omit<
  Settings,
  "models"
> & {
  readonly models: readonly ModelSpec[];
};

/**
 * Returns the specs of the listed models, each with the towers that are served.
 *
 * @param file - Name of the environment's file, for messages.
 * @param settings - Entries of the setting; undefined for those that do not match the schema.
 * @throws {SettingsError} if a name is unknown or repeated, a model lacks a modality, or the file of a model is invalid.
 */
export function resolveModels(
  file: string,
  settings: readonly (ModelSetting | undefined)[],
  loaded: LoadedModels,
): readonly ModelSpec[] {
  const selections = settings.map((setting) =>
    typeof setting === "string" ? { name: setting, modalities: undefined } : setting,
  );
  const names = selections.map((selection) => selection?.name);
  const lines: string[] = [];
  const specs = selections.flatMap((selection, index) => {
    if (selection === undefined) return [];
    const { name, modalities: served } = selection;
    const setting = `${file}: models.${index}`;
    const got = renderValue(name);
    const spec = loaded.models.get(name);
    if (spec === undefined) {
      const invalid = loaded.rejected.find((other) => other.name === name);
      const known = [...loaded.models.keys()];
      const must = `${setting} must be one of ${known.join(", ")}, got ${got}`;
      lines.push(...(invalid?.lines ?? [`${must}${nearestOf(name, known)}`]));
      return [];
    }
    if (/[$%]\{/.test(JSON.stringify(spec))) {
      lines.push(
        `${setting} must not have '\${' or '%{' in its facts, which Terraform evaluates, got ${got}`,
      );
    }
    if (names.indexOf(name) !== index) lines.push(`${setting} must not repeat a model, got ${got}`);
    for (const modality of served ?? []) {
      if (spec.towers[modality] !== undefined) continue;
      const has = Object.keys(spec.towers).join(", ");
      lines.push(`${setting}.modalities must be ${has}, as ${name} has, got '${modality}'`);
    }
    return [served === undefined ? spec : withModalities(spec, served)];
  });
  if (lines.length > 0) throw new SettingsError(lines);
  return specs;
}

/** Errors of the entries that match the schema, in settings of which others do not. */
export function modelErrors(file: string, input: unknown, loaded: LoadedModels): readonly string[] {
  const entries = z.object({ models: z.array(z.unknown()) }).safeParse(input).data?.models ?? [];
  try {
    resolveModels(
      file,
      entries.map((entry) => model.safeParse(entry).data),
      loaded,
    );
    return [];
  } catch (error) {
    if (error instanceof SettingsError) return error.lines;
    throw error;
  }
}
