import { mkdirSync, mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { stringify } from "yaml";
import { catalogueNames, modelCatalogue } from "../../contract/models/index.ts";
import { loadEnvironments } from "./environment-files.ts";
import { resolveModels } from "./model-settings.ts";
import { parseSettings } from "./settings.ts";
import { SettingsError } from "./settings-error.ts";

function mistakes(yaml: string): readonly string[] {
  try {
    parseSettings("single-gpu", "x.yaml", yaml);
  } catch (error) {
    if (!(error instanceof SettingsError)) throw error;
    return error.lines;
  }
  return [];
}

const modelsOf = (yaml: string) =>
  parseSettings("single-gpu", "x.yaml", yaml).models.map(({ name, towers }) => [
    name,
    Object.keys(towers),
  ]);

test("an environment that lists no models serves images with the default model", () => {
  expect(modelsOf("")).toEqual([["openclip-vit-b32", ["image"]]]);
});

test("a name serves all modalities of its model", () => {
  expect(modelsOf("models: [dinov2-small, openclip-vit-b32]")).toEqual([
    ["dinov2-small", ["image"]],
    ["openclip-vit-b32", ["image", "text"]],
  ]);
});

test("a model with modalities serves only these", () => {
  const yaml = "models: [{ name: openclip-vit-b32, modalities: [text] }]";
  expect(modelsOf(yaml)).toEqual([["openclip-vit-b32", ["text"]]]);
});

test.each(
  Object.entries({
    "models: [openclip-vitb32]": `x.yaml: models.0 must be one of ${catalogueNames.join(", ")}, got 'openclip-vitb32' (did you mean 'openclip-vit-b32'?)`,
    "models: [siglip2]": `x.yaml: models.0 must be one of ${catalogueNames.join(", ")}, got 'siglip2' (did you mean 'siglip2-base-224'?)`,
    "models: [vit]": `x.yaml: models.0 must be one of ${catalogueNames.join(", ")}, got 'vit'`,
    "models: [dinov2-small, dinov2-small]":
      "x.yaml: models.1 must not repeat a model, got 'dinov2-small'",
    "models: [{ name: dinov2-small, modalities: [text] }]":
      "x.yaml: models.0.modalities must be image, as dinov2-small has, got 'text'",
  }),
)("fails on `%s`", (yaml, line) => {
  expect(mistakes(yaml)).toEqual([line]);
});

test("an empty list is rejected", () => {
  expect(mistakes("models: []")).toEqual([
    "x.yaml:",
    "  models must list at least one model, got []",
  ]);
});

test("an environment names a model of a user's file; an invalid file rejects only its environments", () => {
  const folder = mkdtempSync(join(tmpdir(), "models-"));
  mkdirSync(join(folder, "models"));
  const { name: _, ...spec } = modelCatalogue.get("dinov2-small")!;
  writeFileSync(join(folder, "models/mine.yaml"), stringify(spec));
  writeFileSync(join(folder, "models/broken.yaml"), "towers: 1\n");
  for (const model of ["mine", "broken", "dinov2-base"]) {
    writeFileSync(join(folder, `${model}-host.yaml`), `stack: single-gpu\nmodels: [${model}]\n`);
  }
  const { environments, rejected } = loadEnvironments(folder);
  expect(environments.map(({ settings }) => settings.models[0]?.name)).toEqual([
    "dinov2-base",
    "mine",
  ]);
  expect(rejected.map(({ name }) => name)).toEqual(["broken-host"]);
  expect(rejected[0]?.lines[0]).toBe(`${join(folder, "models/broken.yaml")}:`);
});

test("a user's file with the name of a model of the catalogue rejects the environments of that model", () => {
  const folder = mkdtempSync(join(tmpdir(), "models-"));
  mkdirSync(join(folder, "models"));
  const { name: _, ...spec } = modelCatalogue.get("dinov2-small")!;
  writeFileSync(join(folder, "models/dinov2-small.yaml"), stringify(spec));
  writeFileSync(join(folder, "own.yaml"), "stack: single-gpu\nmodels: [dinov2-small]\n");
  writeFileSync(join(folder, "other.yaml"), "stack: single-gpu\nmodels: [dinov2-base]\n");
  const { environments, rejected } = loadEnvironments(folder);
  expect(environments.map(({ name }) => name)).toEqual(["other"]);
  const file = join(folder, "models/dinov2-small.yaml");
  expect(rejected).toEqual([
    {
      name: "own",
      lines: [`${file}: 'dinov2-small' is a model of the catalogue; use another name`],
    },
  ]);
});

test("reports unknown, repeated and unsuitable models together with entries that do not match the schema", () => {
  const yaml =
    "models: [openclip-vit-l14, { name: my-vit, modalities: [text] }, nope, { name: siglip2-base-224, modality: [image] }, dinov2-small, dinov2-small]";
  const known = catalogueNames.join(", ");
  expect(mistakes(yaml)).toEqual([
    "x.yaml:",
    "  models.3.modalities is required",
    "  unknown key 'models.3.modality' (known: name, modalities)",
    `x.yaml: models.1 must be one of ${known}, got 'my-vit'`,
    `x.yaml: models.2 must be one of ${known}, got 'nope'`,
    "x.yaml: models.5 must not repeat a model, got 'dinov2-small'",
  ]);
});

test("fails on a model whose facts Terraform would evaluate", () => {
  const spec = { ...modelCatalogue.get("dinov2-small")!, name: "mine" };
  const licence = { ...spec.licence, restriction: ["$", "{path.root}"].join("") };
  const loaded = { models: new Map([["mine", { ...spec, licence }]]), rejected: [] };
  expect(() => resolveModels("x.yaml", ["mine"], loaded)).toThrow(
    "x.yaml: models.0 must not have '$" +
      "{' or '%{' in its facts, which Terraform evaluates, got 'mine'",
  );
});
