import type { FactSource, ModelSpecInput } from "../model-spec.ts";
import { openClip, quoted } from "./sources.ts";

/** Facts that models of open_clip share. The reference of their preprocessing is open_clip with Pillow. */

type Towers = ModelSpecInput["towers"];
type ImageInput = NonNullable<Towers["image"]>["input"];
type TextInput = NonNullable<Towers["text"]>["input"];

/** Preprocessing of images: resize and crop in the image's own mode, then RGB, 0..1 and normalisation. */
export const openClipImage = {
  size: { width: 224, height: 224 },
  resize: { mode: "shortest-edge", edge: 224 },
  filter: "bicubic",
  rgbConversion: "after-resize",
  valueRange: "0..1",
  mean: [0.48145466, 0.4578275, 0.40821073],
  std: [0.26862954, 0.26130258, 0.27577711],
  channelOrder: "rgb",
  layout: "nchw",
} as const satisfies ImageInput;

export const openClipImageSources: readonly FactSource[] = [
  quoted(`${openClip} src/open_clip/pretrained.py:48`, "'resize_mode': 'shortest',"),
  quoted(
    `${openClip} src/open_clip/transform.py:428,433,436`,
    "Resize, then CenterCrop, then MaybeConvertMode",
  ),
  quoted(`${openClip} src/open_clip/transform.py:20`, "mode: str = 'RGB'"),
];

/** Filter and normalisation of open_clip's default configuration. */
const openClipNormalisationSources: readonly FactSource[] = [
  quoted(`${openClip} src/open_clip/pretrained.py:47`, "'interpolation': 'bicubic',"),
  quoted(
    `${openClip} src/open_clip/constants.py:1`,
    "OPENAI_DATASET_MEAN = (0.48145466, 0.4578275, 0.40821073)",
  ),
  quoted(`${openClip} src/open_clip/constants.py:2`),
];

/** CLIP's text input: byte-level BPE with 77 positions, padded with 0, which is also the id of `!`. */
export const clipText = {
  contextLength: 77,
  vocabularySize: 49_408,
  tokenizer: {
    kind: "clip-bpe",
    file: "bpe_simple_vocab_16e6.txt.gz",
    bytes: 1_356_917,
    sha256: "924691ac288e54409236115652ad4aa250f48203de50a9e4722a6ecd48d6804a",
  },
  cleaning: ["fix-unicode", "unescape-html-twice", "collapse-whitespace", "lower-case"],
  beginId: 49_406,
  endId: 49_407,
  paddingId: 0,
  truncation: "keep-end",
} satisfies TextInput;

export const clipTextSources: readonly FactSource[] = [
  quoted(
    `${openClip} src/open_clip/tokenizer.py:151`,
    "special_tokens = ['<start_of_text>', '<end_of_text>']",
  ),
  quoted(
    `${openClip} src/open_clip/tokenizer.py:257`,
    "result = torch.zeros(len(all_tokens), context_length, dtype=torch.long)",
  ),
  quoted(
    `${openClip} src/open_clip/tokenizer.py:261`,
    "tokens = tokens[:context_length]  # Truncate",
  ),
  quoted(`${openClip} src/open_clip/tokenizer.py:262`, "tokens[-1] = self.eot_token_id"),
  quoted(`${openClip} src/open_clip/tokenizer.py:67`, "text = ftfy.fix_text(text)"),
  quoted(`${openClip} src/open_clip/tokenizer.py:68`, "text = html.unescape(html.unescape(text))"),
  quoted(
    `${openClip} src/open_clip/tokenizer.py:85`,
    "return whitespace_clean(basic_clean(x)).lower()",
  ),
  quoted("pypi:open_clip_torch-3.3.0 bpe_simple_vocab_16e6.txt.gz (size and hash of the file)"),
];

/**
 * Sources of the facts in a configuration of open_clip, `model_configs/<config>.json`, and in its profile.
 *
 * @param normalisation - Filter and normalisation.
 */
export function openClipSources(
  config: string,
  width: number,
  profile: FactSource,
  normalisation: readonly FactSource[] = openClipNormalisationSources,
) {
  const configOf = (text: string) =>
    quoted(`${openClip} src/open_clip/model_configs/${config}.json`, text);
  return {
    imageInput: [configOf('"image_size": 224,'), ...openClipImageSources, ...normalisation],
    textInput: [configOf('"context_length": 77, "vocab_size": 49408'), ...clipTextSources],
    textCost: [profile],
    embedding: openClipEmbeddingSources(config, width),
  };
}

/** Embedding width in a configuration of open_clip, and who scales it to unit length. */
export function openClipEmbeddingSources(config: string, width: number): FactSource[] {
  return [
    quoted(`${openClip} src/open_clip/model_configs/${config}.json`, `"embed_dim": ${width},`),
    quoted(
      `${openClip} src/open_clip/model.py:326`,
      "def encode_image(self, image, normalize: bool = False):",
    ),
  ];
}
