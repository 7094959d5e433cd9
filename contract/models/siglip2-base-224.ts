import { type ModelSpecInput, modelSpec } from "../model-spec.ts";
import {
  bigVision,
  chosen,
  defaultBatching,
  defaultBatchingSource,
  derived,
  openClip,
  pinned,
  quoted,
  timm,
  transformers,
} from "./sources.ts";

const profile = quoted(
  `${openClip} docs/model_profile.csv:29 (SigLIP 1, same towers but for the vocabulary; GFLOPs = 2 × MACs)`,
  "ViT-B-16-SigLIP,224,768,768,768,203.16,92.88,110.27,46.44,35.42,11.02",
);

/** SHA-256 of the published file equals that of the reconstructed JSON. */
const processor =
  "google/siglip2-base-patch16-224 preprocessor_config.json, SHA-256 9b36b57ebaf20f09bf4c22100ccc21877ea6bfe5aead0c00c59f8af8ccefacfc";

/**
 * SigLIP 2 base, patch 16, 224 px. Reference: Transformers with Google's published preprocessor_config.json, resized by Pillow
 * (`SiglipImageProcessorPil`). open_clip differs: bicubic
 * filter, and ASCII punctuation removed from texts. big_vision differs: bilinear without antialiasing.
 */
export const siglip2Base224 = modelSpec.parse({
  name: "siglip2-base-224",
  towers: {
    image: {
      input: {
        size: { width: 224, height: 224 },
        resize: { mode: "squash" },
        filter: "bilinear",
        rgbConversion: "before-resize",
        valueRange: "0..1",
        mean: [0.5, 0.5, 0.5],
        std: [0.5, 0.5, 0.5],
        channelOrder: "rgb",
        layout: "nchw",
      },
      millionParameters: 92.884224,
      gigaMacsPerItem: 17.73,
    },
    text: {
      input: {
        contextLength: 64,
        vocabularySize: 256_000,
        tokenizer: {
          kind: "sentencepiece",
          file: "tokenizer.model",
          bytes: 4_241_003,
          sha256: "61a7b147390c64585d6c3543dd6fc636906c9af3865a5548f27f31aee1d4c8e2",
        },
        cleaning: ["lower-case"],
        endId: 1,
        paddingId: 0,
        truncation: "keep-end",
      },
      millionParameters: 282.303744,
      gigaMacsPerItem: 5.51,
    },
  },
  embedding: { width: 768, normalisedBy: "server" },
  batching: defaultBatching,
  licence: { weights: "Apache-2.0" },
  weights: {
    name: "siglip2-base-patch16-224",
    host: "huggingface",
    repository: "google/siglip2-base-patch16-224",
    revision: "75de2d55ec2d0b4efc50b3e9ad70dba96a7b2fa2",
    file: "model.safetensors",
    bytes: 1_500_800_904,
    sha256: "612923381c76ec5a9bed335d1c48827e3f2e506ac31b044b63b2031fadee6a0b",
  },
  sources: {
    imageInput: [
      quoted(
        processor,
        '"image_mean":[0.5,0.5,0.5], "image_std":[0.5,0.5,0.5], "resample":2, "size":{"height":224,"width":224}',
      ),
      quoted(
        `${transformers} models/siglip/image_processing_pil_siglip.py; do_convert_rgb of the processor is null, for which image_processing_utils.py:203 takes the default of the class`,
        "do_convert_rgb = True",
      ),
      quoted(
        `${openClip} src/open_clip/pretrained.py:60 (not followed)`,
        "'interpolation': 'bicubic',",
      ),
      quoted(
        `${bigVision} big_vision/pp/ops_image.py:59 (not followed)`,
        'def get_resize(size, method="bilinear", antialias=False):',
      ),
    ],
    imageCost: [
      quoted(`${timm} results/benchmark-infer-amp-nchw-pt240-cu124-rtx4090.csv:705`, "92.88,17.73"),
      pinned("parameters", 1, "92,884,224 (instantiated vision tower including pooling head)"),
      profile,
    ],
    textInput: [
      quoted(
        `${openClip} src/open_clip/model_configs/ViT-B-16-SigLIP2.json`,
        '"context_length": 64, "vocab_size": 256000,',
      ),
      quoted(
        `${transformers} models/siglip2/tokenization_siglip2.py:54-58`,
        "str(pad_token): 0, str(eos_token): 1, str(bos_token): 2, str(unk_token): 3, str(mask_token): 4",
      ),
      quoted(
        `${bigVision} big_vision/configs/proj/image_text/SigLIP2_demo.ipynb:437`,
        'tok(length={SEQLEN}, model="gemma", bos="no", eos="sticky", key="text")',
      ),
      quoted(
        "huggingface/transformers@0c85c9ae42dc3e4ab1d194f9d5b4f02963cf983b siglip2/convert_siglip2_to_hf.py",
        'add_bos_token=False, add_eos_token=True, padding_side="right",',
      ),
      quoted(
        `${transformers} models/siglip2/tokenization_siglip2.py:96`,
        "normalizers.Sequence([normalizers.Lowercase(), backend.normalizer])",
      ),
      quoted(
        `${openClip} src/open_clip/model_configs/ViT-B-16-SigLIP2.json:17 (not followed)`,
        '"clean": "canonicalize"',
      ),
      pinned("size and SHA-256 of tokenizer.model", 6),
      chosen("int64 ids, as for CLIP"),
    ],
    textCost: [
      derived(
        "parameters: size of model.safetensors",
        "(92 884 224 + 282 303 744 + 2) × 4 bytes + 49 024 bytes of header = 1 500 800 904 bytes",
      ),
      profile,
    ],
    embedding: [
      quoted(
        `${openClip} src/open_clip/model_configs/ViT-B-16-SigLIP2.json:2`,
        '"embed_dim": 768,',
      ),
      quoted(
        `${transformers} models/siglip/modeling_siglip.py:797-799 (the joint model; the encoders return raw vectors)`,
        "image_embeds = image_embeds / image_embeds.norm(p=2, dim=-1, keepdim=True)",
      ),
    ],
    batching: [defaultBatchingSource],
    licence: [
      pinned("licence", 5, 'MODEL_LICENSE = "Apache-2.0"'),
      quoted(
        `${bigVision} big_vision/configs/proj/image_text/README_siglip2.md:51,53 (software Apache-2.0)`,
        "All other materials … Creative Commons Attribution 4.0",
      ),
    ],
    weights: [
      pinned("revision, size and SHA-256", 10, "/resolve/75de2d55ec2d0b4efc50b3e9ad70dba96a7b2fa2"),
    ],
  },
} satisfies ModelSpecInput);
