import { z } from "zod";
import { type Modality, type ModelSpec, modelSpec, withModalities } from "../model-spec.ts";
import { defaultModels, modelCatalogue } from "../models/index.ts";

/** List of models: the setting `models` of an environment, the chart value `models`, and the variable `MODELS` of the embed server. */

const name = z.string({ error: "must be the name of a model" });

const modalities = ["image", "text"] as const satisfies readonly Modality[];

const selection = z.strictObject({
  name,
  modalities: z
    .array(z.enum(modalities))
    .min(1, "must list image, text or both")
    .describe("Modalities that are served."),
});

/** A name serves all modalities of a model, `{ name, modalities }` some of them. */
export const modelEntry = z.union([name, selection]);
export type ModelEntry = z.infer<typeof modelEntry>;

/** Invalid entry of a list of models. */
export interface ModelFault {
  /** Index of the entry, and the field at fault. */
  readonly path: readonly (string | number)[];
  readonly must: string;
  readonly got: string;
  /** Whether no model has the name of the entry. */
  readonly isUnknown?: boolean;
}

/**
 * Returns the specs of the listed models, each with the towers that are served, and the faults of the entries.
 *
 * @param entries - Undefined for those that do not match the schema.
 * @param available - Models that entries can name.
 */
export function selectModels(
  entries: readonly (ModelEntry | undefined)[],
  available: ReadonlyMap<string, ModelSpec>,
): { readonly specs: readonly ModelSpec[]; readonly faults: readonly ModelFault[] } {
  const selections = entries.map((entry) => (typeof entry === "string" ? { name: entry } : entry));
  const names = selections.map((entry) => entry?.name);
  const faults: ModelFault[] = [];
  const specs = selections.flatMap((entry, index): readonly ModelSpec[] => {
    if (entry === undefined) return [];
    const { name: got, modalities: served } = { modalities: undefined, ...entry };
    const spec = available.get(got);
    if (spec === undefined) {
      const must = `must be one of ${[...available.keys()].join(", ")}`;
      faults.push({ path: [index], must, got, isUnknown: true });
      return [];
    }
    if (names.indexOf(got) !== index) {
      faults.push({ path: [index], must: "must not repeat a model", got });
    }
    const has = Object.keys(spec.towers).join(", ");
    for (const modality of served ?? []) {
      if (spec.towers[modality] !== undefined) continue;
      const must = `must be ${has}, as ${got} has`;
      faults.push({ path: [index, "modalities"], must, got: modality });
    }
    return [served === undefined ? spec : withModalities(spec, served)];
  });
  return { specs, faults };
}

/** Mount path of the file with the list of models in containers. */
export const modelsFile = "/etc/clipstack/models/models.json";

/**
 * Specs of the models that a server serves, from a list as JSON in which a model outside the catalogue is its whole spec, or from the
 * name of a model.
 */
export const servedModels = z.string().transform((text, context): readonly ModelSpec[] => {
  const fault = (path: readonly PropertyKey[], message: string) =>
    context.addIssue({ code: "custom", path: [...path], message });
  const list = z.array(z.unknown()).min(1).safeParse(parsed(text));
  if (!list.success) {
    fault([], "must be the name of a model or a list of models as JSON");
    return z.NEVER;
  }
  const available = new Map(modelCatalogue);
  const entries = list.data.map((entry, index): ModelEntry | undefined => {
    const isSpec = typeof entry === "object" && entry !== null && "towers" in entry;
    const { data, error } = (isSpec ? modelSpec : modelEntry).safeParse(entry);
    if (data === undefined) {
      const issues = isSpec ? error!.issues : [{ path: [], message: entryRule }];
      for (const { path, message } of issues) fault([index, ...path], message);
      return undefined;
    }
    if (typeof data === "string" || !("towers" in data)) return data;
    if (modelCatalogue.has(data.name)) {
      fault([index, "name"], "must not be the name of a model in the catalogue");
    }
    available.set(data.name, data);
    return data.name;
  });
  const { specs, faults } = selectModels(entries, available);
  for (const { path, must, got } of faults) fault(path, `${must}, got '${got}'`);
  return specs;
});

const entryRule =
  "must be the name of a model, { name, modalities }, or a model spec with its name";

function parsed(text: string): unknown {
  if (/^[a-z][a-z0-9-]*$/.test(text)) return [text];
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Entries of the list for the towers of `specs`; a model outside the catalogue is its spec, without the sources of its facts. */
export function modelList(
  specs: readonly ModelSpec[],
): readonly (ModelEntry | Omit<ModelSpec, "sources">)[] {
  return specs.map(({ sources: _sources, ...spec }) => {
    const known = modelCatalogue.get(spec.name)?.towers;
    if (known === undefined) return spec;
    const served = modalities.filter((modality) => spec.towers[modality] !== undefined);
    const isComplete = served.length === Object.keys(known).length;
    return isComplete ? spec.name : { modalities: served, name: spec.name };
  });
}

/** Text of {@link modelsFile}. */
export function modelsText(specs: readonly ModelSpec[]): string {
  return `${JSON.stringify(modelList(specs), null, 2)}\n`;
}

/** Variable that makes a server serve the towers of `specs`. */
export function modelSettings(specs: readonly ModelSpec[]): { readonly MODELS: string } {
  return { MODELS: JSON.stringify(modelList(specs)) };
}

/** Build argument `MODELS` of the images with a model repository: `<name>[:image|:text]`, separated by commas. */
export function modelsArgument(specs: readonly ModelSpec[]): string {
  return specs
    .map(({ name: model, towers }) => {
      const has = Object.keys(modelCatalogue.get(model)?.towers ?? towers);
      const served = modalities.filter((modality) => towers[modality] !== undefined);
      return served.length === has.length ? model : `${model}:${served.join("")}`;
    })
    .join();
}

/** Build argument of the default models. */
export const defaultModelsArgument = modelsArgument(defaultModels);
