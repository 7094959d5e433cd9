import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { stringify } from "yaml";
import { catalogueNames, modelCatalogue } from "../../contract/models/index.ts";
import { packageFolder } from "../../model-tools/files/folders.ts";
import { loadModels, modelFolder, parseModel } from "./model-files.ts";
import { SettingsError } from "./settings-error.ts";

const minimal = `
towers:
  image:
    input:
      size: { width: 224, height: 192 }
      resize: { mode: letterbox, fill: [114, 114, 114] }
      filter: bilinear
      valueRange: 0..1
      mean: [0, 0, 0]
      std: [1, 1, 1]
      channelOrder: bgr
      layout: nhwc
    millionParameters: 3
    gigaMacsPerItem: 0.25
embedding: { width: 64, normalisedBy: model }
batching: { maximum: 8, preferred: [] }
licence: { weights: Apache-2.0 }
weights: { name: mine }
`;

/** Error lines for `yaml`. */
function mistakes(yaml: string, name = "own"): readonly string[] {
  try {
    parseModel(name, `models/${name}.yaml`, yaml);
  } catch (error) {
    if (!(error instanceof SettingsError)) throw error;
    return error.lines;
  }
  return [];
}

/** Error lines of schema violations, after a textual change to a valid file. */
function schemaMistakes(from: string, to: string): readonly string[] {
  expect(minimal).toContain(from);
  const [head, ...lines] = mistakes(minimal.replace(from, to));
  expect(head).toBe("models/own.yaml:");
  return lines.map((line) => line.replace(/^ {2}/, ""));
}

test("a model of the user has the name of its file, and default tensor names", () => {
  const spec = parseModel("own", "own.yaml", minimal);
  expect(spec.name).toBe("own");
  expect(spec.towers.image?.input.tensor).toBe("image");
  expect(spec.towers.image?.output).toBe("embedding");
  expect(spec.towers.text).toBeUndefined();
  expect(spec.sources).toEqual({});
});

test.each(catalogueNames)("%s can be written as YAML and read again", (name) => {
  const { name: _name, ...facts } = modelCatalogue.get(name)!;
  expect(parseModel("copy", "copy.yaml", stringify(facts))).toEqual({ name: "copy", ...facts });
});

test("reports every error at once: path, rule and value", () => {
  const yaml = minimal
    .replace("width: 224", "width: 0")
    .replace("bilinear", "lanczos")
    .replace("maximum: 8", "maximum: many");
  expect(mistakes(yaml)).toEqual([
    "models/own.yaml:",
    "  towers.image.input.size.width must be 1 to 4096, got 0",
    "  towers.image.input.filter must be one of bicubic, bilinear, tensorflow-bilinear, got 'lanczos'",
    "  batching.maximum must be a whole number, 1 to 4096, got 'many'",
  ]);
});

test.each([
  [
    "mode: letterbox",
    "mode: crop",
    "towers.image.input.resize.mode must be one of shortest-edge, squash, letterbox, centre-crop, got 'crop'",
  ],
  [
    "[114, 114, 114]",
    "[114]",
    "towers.image.input.resize.fill must be a list of three numbers, one per channel, got [114]",
  ],
  [
    "[114, 114, 114]",
    "[114, 114, 256]",
    "towers.image.input.resize.fill.2 must be 0 to 255, got 256",
  ],
  [
    "mode: letterbox, fill: [114, 114, 114]",
    "mode: shortest-edge, edge: 200",
    "towers.image.input.size.width must not exceed resize.edge (200), because the crop is taken from the resized image, got 224",
  ],
  [
    "mean: [0, 0, 0]",
    "mean: zero",
    "towers.image.input.mean must be a list of three numbers, one per channel, got 'zero'",
  ],
  ["std: [1, 1, 1]", "std: [1, 1, 0]", "towers.image.input.std.2 must be above 0, got 0"],
  ["layout: nhwc", "", "towers.image.input.layout is required"],
  ["channelOrder: bgr", "channelOrdr: bgr", "towers.image.input.channelOrder is required"],
  [
    "millionParameters: 3",
    "millionParameters: -3",
    "towers.image.millionParameters must be above 0, got -3",
  ],
  [
    "preferred: []",
    "preferred: [16]",
    "batching.preferred.0 must not exceed batching.maximum (8), got 16",
  ],
  [
    "weights: { name: mine }",
    "weights: { name: mine, sha256: abc }",
    "weights.sha256 must be a SHA-256: 64 lower-case hexadecimal digits, got 'abc'",
  ],
])("fails on '%s' changed to '%s'", (from, to, message) => {
  expect(schemaMistakes(from, to)).toContain(message);
});

test("fails on an unknown key and suggests the nearest one", () => {
  expect(schemaMistakes("channelOrder: bgr", "channelOrder: bgr\n      chanelOrder: rgb")).toEqual([
    "unknown key 'towers.image.input.chanelOrder' (did you mean 'towers.image.input.channelOrder'?)",
  ]);
});

test("fails on a model without a tower", () => {
  const towers = minimal.slice(minimal.indexOf("towers:"), minimal.indexOf("embedding:"));
  expect(schemaMistakes(towers, "towers: {}\n")).toEqual([
    "towers must have image, text or both, got {}",
  ]);
});

test.each([
  [
    "Own",
    minimal,
    "models/Own.yaml: name must be lower-case letters, digits and single '-', starting with a letter, at most 40, got 'Own'",
  ],
  [
    "dinov2-small",
    minimal,
    "models/dinov2-small.yaml: 'dinov2-small' is a model of the catalogue; use another name",
  ],
  [
    "own",
    `name: other${minimal}`,
    "models/own.yaml: name must be omitted, because the file name is the name of the model, got 'other'",
  ],
  ["own", "- 1", "models/own.yaml: must be a map of settings, got [1]"],
])("fails on the file %s.yaml: %s", (name, yaml, message) => {
  expect(mistakes(yaml, name)).toEqual([message]);
});

test("an invalid file affects only its own model", () => {
  const folder = mkdtempSync(join(tmpdir(), "clipstack-models-"));
  writeFileSync(join(folder, "own.yaml"), minimal);
  writeFileSync(join(folder, "broken.yaml"), "towers: {");
  writeFileSync(join(folder, "other.yml"), minimal);
  writeFileSync(join(folder, "README.md"), "");
  const { models, rejected } = loadModels(folder);
  expect([...models.keys()]).toEqual([...catalogueNames, "own"]);
  expect(rejected.map(({ name }) => name)).toEqual(["broken", "other"]);
  expect(rejected[1]?.lines).toEqual([
    `${join(folder, "other.yml")}: the name of the file must end in .yaml`,
  ]);
});

test("a missing folder leaves the catalogue", () => {
  const { models, rejected } = loadModels(modelFolder("/nonexistent"));
  expect([...models.keys()]).toEqual(catalogueNames);
  expect(rejected).toEqual([]);
});

test("the example of the documentation is valid", () => {
  const page = readFileSync(join(packageFolder, "docs/guides/own-model.md"), "utf8");
  const [, text = ""] = /```yaml\n([^`]+)```/.exec(page) ?? [];
  expect(parseModel("efficientnet-lite1", "efficientnet-lite1.yaml", text).embedding.width).toBe(
    1280,
  );
});
