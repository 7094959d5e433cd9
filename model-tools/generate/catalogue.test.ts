import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { catalogueSpecs } from "../../contract/models/index.ts";
import { trainedWeightsCommand } from "../../contract/models/trained-weights.ts";
import { architectureOf } from "./architectures.ts";
import { textArchitectureOf } from "./text-architectures.ts";

/** Vision transformers of OpenCLIP and DINOv2; MobileCLIP and SigLIP have a stand-in. */
const vitName = /-vit-|^dinov2-/;

const reference = readFileSync("inference/preprocess/test-preprocess-reference.py", "utf8");

test.each(catalogueSpecs)("$name is in every list that a model of the catalogue needs", (spec) => {
  const { name, towers } = spec;
  const isStandIn = (architecture: { readonly name: string }) => architecture.name === "stand-in";
  const lacksImage = vitName.test(name) && isStandIn(architectureOf(spec, "full"));
  const lacksText =
    towers.text?.input.tokenizer.kind === "clip-bpe" && isStandIn(textArchitectureOf(spec, "full"));
  const missing = [
    ...(trainedWeightsCommand(spec) === undefined
      ? ["exportArchitectures in contract/models/trained-weights.ts"]
      : []),
    ...(lacksImage ? ["known in model-tools/generate/architectures.ts"] : []),
    ...(lacksText ? ["known in model-tools/generate/text-architectures.ts"] : []),
    ...(reference.includes(`\n    "${name}": (`)
      ? []
      : ["NORMALISATIONS in inference/preprocess/test-preprocess-reference.py"]),
  ];
  const rule = `${name} is missing in ${missing.join(", ")}; its weights must pin revision and sha256`;
  expect(missing, rule).toEqual([]);
});
