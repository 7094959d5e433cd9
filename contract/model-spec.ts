import { z } from "zod";
import { integer, oneOf, positive, text } from "./value-types.ts";

/**
 * Model spec: all facts of an embedding model that clipstack needs. Tensor shapes, payload sizes, GPU memory and cost are derived
 * from it (`model-shapes.ts`). Specs of the catalogue are in `models/`; users put their own in `environments/models/<name>.yaml`.
 */

/** Kebab-case, because the name is part of file names, metrics and Triton's model names. */
const modelName = text(
  "lower-case letters, digits and single '-', starting with a letter, at most 40",
  /^(?=.{1,40}$)[a-z][a-z0-9]*(-[a-z0-9]+)*$/,
);

const line = text("text on one line", /^\S([^\n\r]*\S)?$/);

const tensorName = text("a tensor name without spaces", /^[^\s"]+$/);

const sha256 = text("a SHA-256: 64 lower-case hexadecimal digits", /^[0-9a-f]{64}$/);

/** Bytes of a file, up to 1 TB. */
const bytes = integer(1, 1_000_000_000_000);

const channels = <Value extends z.ZodType>(value: Value) =>
  z.tuple([value, value, value], { error: "must be a list of three numbers, one per channel" });

const number = z.number({ error: "must be a number" });

const resizeModes = ["shortest-edge", "squash", "letterbox", "centre-crop"] as const;

const resize = z
  .discriminatedUnion(
    "mode",
    [
      z.strictObject({
        mode: z.literal("shortest-edge"),
        edge: integer(1, 8_192).describe(
          "Length of the shorter edge after the resize, in pixels. The centre of the image is then cropped to `size`.",
        ),
      }),
      z.strictObject({
        mode: z.literal("squash").describe("Resize to `size` without keeping the aspect ratio."),
      }),
      z.strictObject({
        mode: z.literal("letterbox").describe("Resize to fit into `size`, and fill the rest."),
        fill: channels(integer(0, 255)).describe("Fill colour, 8-bit RGB."),
      }),
      z.strictObject({
        mode: z
          .literal("centre-crop")
          .describe("Crop a square from the centre, and resize it to `size`."),
        fraction: z
          .number({ error: "must be a number" })
          .gt(0, "must be above 0")
          .max(1, "must not exceed 1")
          .describe("Side of the square in shorter edges of the image."),
      }),
    ],
    oneOf("mode", resizeModes),
  )
  .describe(
    "How an image gets `size`. `shortest-edge`: its shorter edge becomes `edge` pixels, then the centre is cropped. `squash`: without its aspect ratio. `letterbox`: resized to fit, the rest filled with the 8-bit RGB colour `fill`. `centre-crop`: a centred square is resized, whose side is `fraction` of the shorter edge.",
  );

/** Ranges of pixel values before the normalisation, with their maximum. */
export const valueRanges = { "0..1": 1, "0..255": 255 } as const;

const filters = ["bicubic", "bilinear", "tensorflow-bilinear"] as const;

const rgbConversions = ["before-resize", "after-resize"] as const;

/** Facts that determine the 8-bit pixels of an image. The rest of the image input is their normalisation. */
const pixelFacts = {
  size: z
    .strictObject({ width: integer(1, 4_096), height: integer(1, 4_096) })
    .describe("Input size in pixels."),
  resize,
  filter: z
    .enum(filters, { error: `must be one of ${filters.join(", ")}` })
    .describe(
      "Resize filter. `bicubic` and `bilinear` are Pillow's, with antialiasing when they shrink an image; `tensorflow-bilinear` is `resize_bilinear` of TensorFlow 1: without antialiasing, sample i at i × scale of the source.",
    ),
  rgbConversion: z
    .enum(rgbConversions, { error: `must be one of ${rgbConversions.join(", ")}` })
    .optional()
    .describe(
      "Whether palette, CMYK, grey and 16-bit images become RGB before or after the resize. Omitted, as `after-resize`, if the reference does not state it.",
    ),
};

export const pixelInput = z.strictObject(pixelFacts);
export type PixelInput = z.infer<typeof pixelInput>;

export const imageInput = z.strictObject({
  tensor: tensorName.default("image").describe("Name of the input in the model file."),
  ...pixelFacts,
  valueRange: z
    .enum(["0..1", "0..255"])
    .describe("Range of the pixel values that `mean` and `std` apply to."),
  mean: channels(number).describe("Mean per channel, in `channelOrder`, in units of `valueRange`."),
  std: channels(number).describe(
    "Standard deviation per channel, in `channelOrder`, in units of `valueRange`: the input is (value - mean) / std.",
  ),
  channelOrder: z.enum(["rgb", "bgr"]),
  layout: z.enum(["nchw", "nhwc"]).describe("Layout of the FP32 input."),
});

const cleaningSteps = [
  "fix-unicode",
  "unescape-html-twice",
  "collapse-whitespace",
  "lower-case",
] as const;

const tokenizer = z.strictObject({
  kind: z
    .enum(["clip-bpe", "sentencepiece"])
    .describe(
      "`clip-bpe`: byte-level BPE of CLIP, a list of merges. `sentencepiece`: a SentencePiece model.",
    ),
  file: line.describe("File with the vocabulary."),
  bytes: bytes.optional(),
  sha256: sha256.optional(),
});

const maxVocabulary = 10_000_000;
const tokenId = integer(0, maxVocabulary);

const textInput = z.strictObject({
  tensor: tensorName.default("text").describe("Name of the input in the model file."),
  idType: z.enum(["int64", "int32"]).default("int64").describe("Data type of the token ids."),
  contextLength: integer(1, 131_072).describe(
    "Token ids per text, including begin, end and padding.",
  ),
  vocabularySize: integer(1, maxVocabulary),
  tokenizer,
  cleaning: z
    .array(z.enum(cleaningSteps))
    .describe(
      "Changes to the text before the tokenizer, in this order. `fix-unicode` is ftfy's fix_text without its repair of broken encodings.",
    ),
  beginId: tokenId.optional().describe("First token id of every text. Omitted if there is none."),
  endId: tokenId.optional().describe("Last token id before the padding. Omitted if there is none."),
  paddingId: tokenId.describe("Token id that fills the text up to `contextLength`, on the right."),
  truncation: z
    .enum(["keep-end", "cut"])
    .describe(
      "`cut`: keeps the first `contextLength` ids. `keep-end`: also replaces the last one with `endId`.",
    ),
});

const tower = {
  output: tensorName.default("embedding").describe("Name of the output in the model file."),
  millionParameters: positive.describe("Parameters of this tower, in 10⁶."),
  gigaMacsPerItem: positive.describe(
    "Multiply-accumulates per image or text, in 10⁹. One is two floating-point operations.",
  ),
};

const imageTower = z.strictObject({ input: imageInput, ...tower });
const textTower = z.strictObject({ input: textInput, ...tower });

/** Origins of a statement about a model. */
const sourceKinds = [
  /** Stated by the source, which is quoted. */
  "quoted",
  /** Computed from sourced facts; not stated by any text that was found. */
  "derived",
  /** Decided by clipstack or by the author of the spec. */
  "chosen",
] as const;

const source = z.strictObject({
  kind: z.enum(sourceKinds),
  /** Source with its version: `open_clip@v3.3.0 src/open_clip/pretrained.py:48`. */
  from: line,
  /** Short quotation, or the formula of a derived value. */
  text: line.optional(),
});
export type FactSource = z.infer<typeof source>;

const sourceList = z.array(source).min(1, "must list at least one source").optional();

const sources = z.strictObject({
  imageInput: sourceList,
  imageCost: sourceList,
  textInput: sourceList,
  textCost: sourceList,
  embedding: sourceList,
  truncation: sourceList,
  batching: sourceList,
  licence: sourceList,
  weights: sourceList,
});
export type FactGroup = keyof z.infer<typeof sources>;

const weights = z.strictObject({
  name: line.describe(
    "Name of the weights in responses and manifests, for example `laion2b_s34b_b79k`.",
  ),
  host: z.enum(["huggingface", "pypi", "url"]).optional(),
  repository: line.optional().describe("Repository, package or address on the host."),
  revision: line.optional().describe("Commit of the repository, or version of the package."),
  archive: z
    .strictObject({ file: line, bytes: bytes.optional(), sha256: sha256.optional() })
    .optional()
    .describe("Downloaded file that contains `file`, such as a wheel."),
  file: line.optional().describe("File with the weights, inside the repository or the archive."),
  bytes: bytes.optional(),
  sha256: sha256.optional(),
});

const facts = {
  towers: z
    .strictObject({ image: imageTower.optional(), text: textTower.optional() })
    .describe("Model files: one per modality."),
  embedding: z
    .strictObject({
      width: integer(1, 65_536).describe(
        "float32 values of an embedding, the same for all towers.",
      ),
      normalisedBy: z
        .enum(["model", "server"])
        .describe(
          "`model`: the file returns unit L2 norm. `server`: the server scales the vectors.",
        ),
      truncatableTo: z
        .array(integer(1, 65_535))
        .min(1, "must list at least one width")
        .optional()
        .describe(
          "Smaller widths for which the model was trained, in increasing order: the first values of an embedding, scaled to unit L2 norm, are an embedding too. Omitted if the source states none.",
        ),
    })
    .describe("Output of every tower."),
  batching: z.strictObject({
    maximum: integer(1, 4_096).describe("Maximum batch size of a model file."),
    preferred: z
      .array(integer(1, 4_096))
      .default([])
      .describe(
        "Batch sizes for which Triton does not wait, in increasing order. Only for sizes that are much faster than others.",
      ),
  }),
  licence: z
    .strictObject({
      weights: line.describe("SPDX identifier or name of the licence of the weights."),
      restriction: line
        .optional()
        .describe("Restriction of use, quoted from the licence or the model card."),
    })
    .describe("Licence of the weights, not of the code."),
  weights,
  sources: sources.default({}).describe("Sources of each group of facts."),
};

const unnamedSpec = z.strictObject(facts);

/** Spec without its name, as in `environments/models/<name>.yaml`. */
export const modelSpecFile = unnamedSpec.superRefine(checkFacts);

export const modelSpec = z.strictObject({ name: modelName, ...facts }).superRefine(checkFacts);
export type ModelSpec = z.infer<typeof modelSpec>;
/** Spec without the values that have a default. */
export type ModelSpecInput = z.input<typeof modelSpec>;
export type ImageTower = z.infer<typeof imageTower>;
export type TextTower = z.infer<typeof textTower>;
export type ImageInput = ImageTower["input"];
export type TextInput = TextTower["input"];
export type Modality = keyof ModelSpec["towers"];

/** Tower of a model, by its modality. */
export interface ModelTower {
  readonly spec: ModelSpec;
  readonly modality: Modality;
}

/** Returns the error for an invalid name of a model, as `must …`; undefined if the name is valid. */
export function modelNameRule(name: string): string | undefined {
  return modelName.safeParse(name).error?.issues[0]?.message;
}

interface Violation {
  readonly path: readonly (string | number)[];
  readonly must: string;
}

/** Rules between several fields. */
function checkFacts(spec: z.infer<typeof unnamedSpec>, context: z.RefinementCtx): void {
  const { image, text: texts } = spec.towers;
  const violations = [
    ...(image === undefined ? [] : imageViolations(image.input)),
    ...(texts === undefined ? [] : textViolations(texts.input)),
    ...truncationViolations(spec.embedding),
    ...batchingViolations(spec.batching),
    ...sourceViolations(spec),
  ];
  if (image === undefined && texts === undefined) {
    violations.push({ path: ["towers"], must: "must have image, text or both" });
  }
  for (const { path, must } of violations) {
    context.addIssue({ code: "custom", path: [...path], message: must });
  }
}

function imageViolations(input: ImageInput): Violation[] {
  const at = ["towers", "image", "input"] as const;
  const maximum = valueRanges[input.valueRange];
  const violations: Violation[] = [];
  const { resize: mode, size } = input;
  if (mode.mode === "shortest-edge") {
    for (const side of ["width", "height"] as const) {
      if (size[side] > mode.edge) {
        const must = `must not exceed resize.edge (${mode.edge}), because the crop is taken from the resized image`;
        violations.push({ path: [...at, "size", side], must });
      }
    }
  }
  for (const [channel, mean] of input.mean.entries()) {
    if (mean < 0 || mean > maximum) {
      const must = `must be in valueRange (${input.valueRange})`;
      violations.push({ path: [...at, "mean", channel], must });
    }
  }
  for (const [channel, std] of input.std.entries()) {
    if (std <= 0) violations.push({ path: [...at, "std", channel], must: "must be above 0" });
  }
  return violations;
}

function textViolations(input: TextInput): Violation[] {
  const at = ["towers", "text", "input"] as const;
  const violations: Violation[] = (["beginId", "endId", "paddingId"] as const)
    .filter((key) => (input[key] ?? 0) >= input.vocabularySize)
    .map((key) => ({
      path: [...at, key],
      must: `must be below vocabularySize (${input.vocabularySize})`,
    }));
  const added = [input.beginId, input.endId].filter((id) => id !== undefined).length;
  if (input.contextLength <= added) {
    const must = `must be above ${added}, the number of begin and end ids`;
    violations.push({ path: [...at, "contextLength"], must });
  }
  if (input.truncation === "keep-end" && input.endId === undefined) {
    violations.push({ path: [...at, "truncation"], must: "must be cut if there is no endId" });
  }
  const repeated = input.cleaning.findIndex((step, index) => input.cleaning.indexOf(step) < index);
  if (repeated >= 0) {
    violations.push({ path: [...at, "cleaning", repeated], must: "must not repeat a step" });
  }
  return violations;
}

function truncationViolations({ width, truncatableTo = [] }: ModelSpec["embedding"]): Violation[] {
  return truncatableTo.flatMap((size, index) => {
    const path = ["embedding", "truncatableTo", index];
    if (size >= width) return [{ path, must: `must be below embedding.width (${width})` }];
    const before = truncatableTo[index - 1];
    return before !== undefined && size <= before
      ? [{ path, must: `must be above the width before it (${before})` }]
      : [];
  });
}

function batchingViolations({ maximum, preferred }: ModelSpec["batching"]): Violation[] {
  return preferred.flatMap((size, index) => {
    const path = ["batching", "preferred", index];
    if (size > maximum) return [{ path, must: `must not exceed batching.maximum (${maximum})` }];
    const before = preferred[index - 1];
    return before !== undefined && size <= before
      ? [{ path, must: `must be above the size before it (${before})` }]
      : [];
  });
}

/** Sources of facts that the spec does not have. */
function sourceViolations({
  towers,
  embedding,
  sources: given,
}: Pick<ModelSpec, "towers" | "embedding" | "sources">): Violation[] {
  const ofTowers = (["image", "text"] as const).flatMap((modality) =>
    towers[modality] !== undefined
      ? []
      : ([`${modality}Input`, `${modality}Cost`] as const)
          .filter((group) => given[group] !== undefined)
          .map((group) => ({
            path: ["sources", group],
            must: `must be omitted, because towers.${modality} is`,
          })),
  );
  if (embedding.truncatableTo !== undefined || given.truncation === undefined) return ofTowers;
  const must = "must be omitted, because embedding.truncatableTo is";
  return [...ofTowers, { path: ["sources", "truncation"], must }];
}

/** Groups of facts that a spec has, and for which `sources` can state the origin. */
export function factGroups({
  towers,
  embedding,
}: Pick<ModelSpec, "towers" | "embedding">): readonly FactGroup[] {
  return [
    ...(towers.image === undefined ? [] : (["imageInput", "imageCost"] as const)),
    ...(towers.text === undefined ? [] : (["textInput", "textCost"] as const)),
    "embedding",
    ...(embedding.truncatableTo === undefined ? [] : (["truncation"] as const)),
    "batching",
    "licence",
    "weights",
  ];
}

/** Spec with some of the towers of a model, and without its sources, which describe all of them. */
export function withModalities(spec: ModelSpec, modalities: readonly Modality[]): ModelSpec {
  const { image, text: texts } = spec.towers;
  return {
    ...spec,
    sources: {},
    towers: {
      ...(modalities.includes("image") && image !== undefined && { image }),
      ...(modalities.includes("text") && texts !== undefined && { text: texts }),
    },
  };
}
