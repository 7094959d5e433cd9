import { expect, test } from "vitest";
import { modelCatalogue } from "../../contract/models/index.ts";
import { servedTowers } from "../models/served-towers.ts";
import { type ClusterWeights, towerFilesFindings } from "./cluster-weights.ts";

const sha256 = "0".repeat(64);
const file = { url: "https://models.example/model.onnx", sha256 };

const findings = (model: ClusterWeights, ...names: readonly string[]) =>
  towerFilesFindings(model, servedTowers(names.map((name) => modelCatalogue.get(name)!)));

test("accepts images with any models", () => {
  expect(findings({ weights: "image" }, "openclip-vit-b32", "siglip2-base-224")).toEqual([]);
  expect(findings({ weights: "image", sha256 }, "dinov2-small")).toEqual([]);
});

test("accepts the file of the only tower without its name", () => {
  expect(findings({ weights: "pvc", claim: "weights" }, "dinov2-small")).toEqual([]);
  expect(findings({ weights: "init", ...file }, "dinov2-small")).toEqual([]);
});

test("accepts a model repository on a volume", () => {
  expect(
    findings({ weights: "pvc", claim: "weights" }, "openclip-vit-b32", "dinov2-small"),
  ).toEqual([]);
});

test.each<[string, ClusterWeights, readonly string[], readonly string[]]>([
  [
    "one file for several towers",
    { weights: "pvc", claim: "weights", folder: "clip" },
    ["openclip-vit-b32"],
    ["model.folder must be in model.towers, by the name of its tower, got 'clip'"],
  ],
  [
    "one checksum for several towers, and checksums without a tower",
    { weights: "image", sha256, towers: { "dinov2-base:image": { sha256 } } },
    ["openclip-vit-b32"],
    [
      `model.sha256 must be in model.towers, by the name of its tower, got '${sha256}'`,
      "model.towers must have entries for openclip-vit-b32:image, openclip-vit-b32:text only, got 'dinov2-base:image'",
    ],
  ],
  [
    "towers without a file, and files without a tower",
    { weights: "init", towers: { "dinov2-base:image": file } },
    ["dinov2-small"],
    [
      "model.towers must have entries for dinov2-small:image only, got 'dinov2-base:image'",
      "model.towers.dinov2-small:image must have the url and sha256 of the weights, got nothing",
    ],
  ],
  [
    "a file beside entries",
    { weights: "pvc", claim: "weights", folder: "x", towers: { "dinov2-small:image": {} } },
    ["dinov2-small"],
    ["model.folder must be in model.towers, by the name of its tower, got 'x'"],
  ],
  [
    "a download without its URL and checksum",
    { weights: "init" },
    ["dinov2-small"],
    [
      "model.url must be the address of the ONNX file that the pods download (weights: init), got nothing",
      "model.sha256 must be the SHA-256 of the ONNX file that the pods download (weights: init), got nothing",
    ],
  ],
  [
    "a tokenizer file that is not downloaded",
    {
      weights: "init",
      towers: { "siglip2-base-224:image": file, "siglip2-base-224:text": file },
    },
    ["siglip2-base-224"],
    [
      "model.towers.siglip2-base-224:text.tokenizer must have the url and sha256 of tokenizer.model, got nothing",
    ],
  ],
  [
    "a tokenizer of a tower that reads none",
    { weights: "init", towers: { "dinov2-small:image": { ...file, tokenizer: file } } },
    ["dinov2-small"],
    [
      "model.towers.dinov2-small:image.tokenizer must be omitted, because the tower has no tokenizer file, got a file",
    ],
  ],
])("fails on %s", (_, model, names, expected) => {
  expect(findings(model, ...names)).toEqual(expected);
});
