import { expect, test } from "vitest";
import {
  embeddingTensor,
  encodedImage,
  gigaFlopsPerItem,
  imageBytes,
  imagePixels,
  normalisedImage,
  tokenIds,
  weightsMiB,
} from "./model-shapes.ts";
import {
  factGroups,
  type ImageTower,
  type ModelSpec,
  type ModelSpecInput,
  modelNameRule,
  modelSpec,
  type TextTower,
} from "./model-spec.ts";
import { catalogueNames, catalogueSpecs, modelCatalogue } from "./models/index.ts";

const specs = catalogueSpecs.map((spec) => [spec.name, spec] as const);

function catalogueSpec(name: string): ModelSpec {
  const spec = modelCatalogue.get(name);
  if (spec === undefined) throw new Error(`no model '${name}'`);
  return spec;
}

const vitB32 = catalogueSpec("openclip-vit-b32");
const vitB32Image = vitB32.towers.image as ImageTower;
const vitB32Text = vitB32.towers.text as TextTower;

/** Deeply writable, so that a test changes one field of a valid spec. */
type Draft = { -readonly [Key in keyof ModelSpecInput]: ModelSpecInput[Key] } & {
  readonly towers: { image?: ImageTower; text?: TextTower };
};

/** Errors of ViT-B/32's spec after a change, as `path: message`. */
function errorsAfter(change: (draft: Draft) => void): readonly string[] {
  const draft = structuredClone(vitB32) as Draft;
  change(draft);
  const { error } = modelSpec.safeParse(draft);
  return (error?.issues ?? []).map(({ path, message }) => `${path.join(".")}: ${message}`);
}

test("the catalogue has every model of the design, by name", () => {
  expect(catalogueNames).toEqual([
    "openclip-vit-b32",
    "openclip-vit-b16",
    "openclip-vit-l14",
    "siglip2-base-224",
    "dinov2-small",
    "dinov2-base",
    "mobileclip2-s0",
    "mobileclip2-s2",
    "efficientnet-lite0",
  ]);
  expect([...modelCatalogue.keys()]).toEqual(catalogueNames);
});

test.each(specs)("%s equals its spec after a round trip through JSON", (_name, spec) => {
  expect(modelSpec.parse(JSON.parse(JSON.stringify(spec)))).toEqual(spec);
});

test.each(specs)("%s has a source for each group of facts", (_name, spec) => {
  expect(factGroups(spec).filter((group) => spec.sources[group] === undefined)).toEqual([]);
});

test.each(specs)("%s names a revision and a checksum of its weights", (_name, { weights }) => {
  const rule = "models of the catalogue must pin revision and sha256 of their weights";
  expect(weights.revision, rule).toBeDefined();
  expect(weights.sha256, rule).toBeDefined();
});

const safetensors = specs.filter(
  ([, { weights }]) => weights.bytes !== undefined && weights.file?.endsWith(".safetensors"),
);

test.each(safetensors)("%s has 4 bytes of weights per parameter, within 0.1 %%", (_name, spec) => {
  const { image, text } = spec.towers;
  const parameters = 1e6 * ((image?.millionParameters ?? 0) + (text?.millionParameters ?? 0));
  expect(Math.abs(spec.weights.bytes! / (4 * parameters) - 1)).toBeLessThan(0.001);
});

test("ViT-B/32 has the tensors of the deployed models", () => {
  const input = (dataType: string, dims: number[]) => ({ name: "image", dataType, dims });
  expect(normalisedImage(vitB32Image)).toEqual(input("FP32", [3, 224, 224]));
  expect(imagePixels(vitB32Image)).toEqual(input("UINT8", [224, 224, 3]));
  expect(encodedImage(vitB32Image)).toEqual(input("BYTES", [1]));
  const output = { name: "embedding", dataType: "FP32", dims: [512] };
  expect(embeddingTensor(vitB32, vitB32Image)).toEqual(output);
});

test("sizes follow from the shapes", () => {
  expect(imageBytes(vitB32Image, "fp32")).toBe(4 * 3 * 224 * 224);
  expect(imageBytes(vitB32Image, "uint8")).toBe(3 * 224 * 224);
  expect(imageBytes(vitB32Image, "jpeg")).toBeUndefined();
  expect(gigaFlopsPerItem(vitB32Image)).toBe(8.82);
});

test("memory of the weights follows from parameters and precision", () => {
  const tower = { ...vitB32Image, millionParameters: 1024 ** 2 / 1e6 };
  expect(weightsMiB(tower, "fp32")).toBe(4);
  expect(weightsMiB(tower, "fp16")).toBe(2);
  expect(weightsMiB(tower, "int8")).toBe(1);
});

test("token ids have the type and length of the text input", () => {
  expect(tokenIds(vitB32Text)).toEqual({ name: "text", dataType: "INT64", dims: [77] });
  const siglip = catalogueSpec("siglip2-base-224").towers.text as TextTower;
  expect(tokenIds({ ...siglip, input: { ...siglip.input, idType: "int32" } })).toEqual({
    name: "text",
    dataType: "INT32",
    dims: [64],
  });
});

test("an image that is not square has height before width in every layout", () => {
  const size = { width: 320, height: 240 };
  const tower = (layout: "nchw" | "nhwc"): ImageTower => ({
    ...vitB32Image,
    input: { ...vitB32Image.input, size, layout },
  });
  expect(normalisedImage(tower("nchw")).dims).toEqual([3, 240, 320]);
  expect(normalisedImage(tower("nhwc")).dims).toEqual([240, 320, 3]);
  expect(imagePixels(tower("nchw")).dims).toEqual([240, 320, 3]);
});

test.each(
  Object.entries<(draft: Draft) => void>({
    "towers: must have image, text or both": (draft) => {
      draft.sources = {};
      delete draft.towers.image;
      delete draft.towers.text;
    },
    "towers.image.input.size.width: must not exceed resize.edge (224), because the crop is taken from the resized image":
      ({ towers }) => {
        towers.image!.input.size.width = 256;
      },
    "towers.image.input.size.height: must not exceed resize.edge (224), because the crop is taken from the resized image":
      ({ towers }) => {
        towers.image!.input.size.height = 225;
      },
    "towers.image.input.mean.2: must be in valueRange (0..1)": ({ towers }) => {
      towers.image!.input.mean = [0.5, 0.5, 127];
    },
    "towers.image.input.std.1: must be above 0": ({ towers }) => {
      towers.image!.input.std = [0.5, 0, 0.5];
    },
    "towers.text.input.endId: must be below vocabularySize (49408)": ({ towers }) => {
      towers.text!.input.endId = 49_408;
    },
    "towers.text.input.paddingId: must be below vocabularySize (49408)": ({ towers }) => {
      towers.text!.input.paddingId = 50_000;
    },
    "towers.text.input.contextLength: must be above 2, the number of begin and end ids": ({
      towers,
    }) => {
      towers.text!.input.contextLength = 2;
    },
    "towers.text.input.truncation: must be cut if there is no endId": ({ towers }) => {
      delete towers.text!.input.endId;
    },
    "towers.text.input.cleaning.1: must not repeat a step": ({ towers }) => {
      towers.text!.input.cleaning = ["lower-case", "lower-case"];
    },
    "batching.preferred.1: must not exceed batching.maximum (16)": (draft) => {
      draft.batching = { maximum: 16, preferred: [8, 32] };
    },
    "batching.preferred.1: must be above the size before it (16)": (draft) => {
      draft.batching = { maximum: 32, preferred: [16, 8] };
    },
    "embedding.truncatableTo.1: must be below embedding.width (512)": (draft) => {
      draft.embedding = { ...draft.embedding, truncatableTo: [256, 512] };
    },
    "embedding.truncatableTo.1: must be above the width before it (256)": (draft) => {
      draft.embedding = { ...draft.embedding, truncatableTo: [256, 128] };
    },
    "sources.truncation: must be omitted, because embedding.truncatableTo is": (draft) => {
      draft.sources = {
        ...draft.sources,
        truncation: [{ kind: "chosen", from: "model-spec.test.ts" }],
      };
    },
  }),
)("fails: %s", (message, change) => {
  expect(errorsAfter(change)).toEqual([message]);
});

test("a spec with truncated widths needs a source for them", () => {
  const embedding = { ...vitB32.embedding, truncatableTo: [128, 256] };
  expect(factGroups({ ...vitB32, embedding })).toContain("truncation");
  expect(factGroups(vitB32)).not.toContain("truncation");
});

test("fails on sources of a tower that the spec does not have", () => {
  expect(errorsAfter(({ towers }) => delete towers.text)).toEqual([
    "sources.textInput: must be omitted, because towers.text is",
    "sources.textCost: must be omitted, because towers.text is",
  ]);
});

test.each(["ViT-B-32", "vit_b_32", "-vit", "vit-", "vit--b", "3d", "", "a".repeat(41)])(
  "fails on the name '%s'",
  (name) => {
    expect(modelNameRule(name)).toBe(
      "must be lower-case letters, digits and single '-', starting with a letter, at most 40",
    );
  },
);
