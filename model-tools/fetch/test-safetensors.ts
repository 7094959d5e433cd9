import type { Modality, ModelSpec } from "../../contract/model-spec.ts";
import { openclipVitB32 } from "../../contract/models/openclip-vit-b32.ts";
import { textTower } from "../generate/text-transformer.ts";
import { randomWeights } from "../generate/transformer-blocks.ts";
import { imageTower } from "../generate/vision-transformer.ts";
import type { OnnxModel } from "../onnx/writer.ts";

/** Tensor of a safetensors file. */
export interface TestTensor {
  readonly dims: readonly number[];
  readonly values: Float32Array;
}

/** A safetensors file with these float32 tensors. */
export function safetensorsFile(tensors: ReadonlyMap<string, TestTensor>): Buffer {
  let end = 0;
  const entries = [...tensors].map(([key, { dims, values }]) => {
    const start = end;
    end += values.byteLength;
    return [key, { dtype: "F32", shape: dims, data_offsets: [start, end] }] as const;
  });
  const header = JSON.stringify({ __metadata__: { a: "b" }, ...Object.fromEntries(entries) });
  const text = Buffer.from(header);
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  const values = [...tensors.values()].map((tensor) => Buffer.from(tensor.values.buffer));
  return Buffer.concat([length, text, ...values]);
}

const { image, text } = openclipVitB32.towers;
/** OpenCLIP's model with few words, for small files. */
export const fewWords: ModelSpec = {
  ...openclipVitB32,
  towers: {
    image: image!,
    text: { ...text!, input: { ...text!.input, vocabularySize: 100, beginId: 98, endId: 99 } },
  },
};

/** One block per tower, with heads of 64 values as in OpenCLIP. */
const block = { width: 64, layers: 1, heads: 1, mlpWidth: 128 } as const;

/** Model configuration of open_clip with the sizes of {@link smallOpenClip}. */
export function smallOpenClipConfig(spec: ModelSpec) {
  const common = { width: block.width, layers: block.layers, mlp_ratio: 2 };
  const { contextLength, vocabularySize } = spec.towers.text!.input;
  const text = { context_length: contextLength, vocab_size: vocabularySize, heads: block.heads };
  return {
    embed_dim: spec.embedding.width,
    vision_cfg: { ...common, image_size: spec.towers.image!.input.size.width, patch_size: 32 },
    text_cfg: { ...common, ...text },
  };
}

/** Small CLIP with random weights: the towers of a spec, and its tensors as open_clip stores them. */
export function smallOpenClip(spec: ModelSpec): {
  readonly towers: Readonly<Record<Modality, OnnxModel>>;
  readonly tensors: Map<string, TestTensor>;
} {
  const image = imageTower(
    spec,
    { ...block, family: "open-clip", patchSide: 32 },
    randomWeights(3),
  );
  const text = textTower(spec, { ...block, family: "clip" }, randomWeights(4));
  const tensors = new Map([...tensorsOf(image, "visual."), ...tensorsOf(text, "")]);
  return { towers: { image, text }, tensors };
}

function* tensorsOf(tower: OnnxModel, prefix: string): Iterable<readonly [string, TestTensor]> {
  for (const { name, dims, dataType, data } of tower.initializers) {
    if (dataType !== "FLOAT" || dims.length === 0) continue;
    const values = new Float32Array(Uint8Array.from(bytesOf(data())).buffer);
    if (name === "class_and_positional_embedding") {
      // the graph adds the class token to the first position
      const { width } = block;
      const token = values.slice(0, width).map((value) => value / 2);
      const positions = Float32Array.from(values, (value, i) => (i < width ? value / 2 : value));
      yield ["visual.class_embedding", { dims: [width], values: token }];
      yield ["visual.positional_embedding", { dims, values: positions }];
      continue;
    }
    const own = name.replace("resblocks", "transformer.resblocks").replace("in_proj.", "in_proj_");
    const key = `${prefix}${name === "token_embedding" ? `${name}.weight` : own}`;
    const [from, to] = dims as [number, number];
    // PyTorch stores the matrices of blocks as [to, from]
    const isMatrix = dims.length === 2 && name.startsWith("resblocks");
    const turned = () => values.map((_, i) => values[(i % from) * to + Math.floor(i / from)]!);
    yield [key, isMatrix ? { dims: [to, from], values: turned() } : { dims, values }];
  }
}

export function bytesOf(chunks: Iterable<Uint8Array>): Buffer {
  return Buffer.concat(Array.from(chunks, (chunk) => Buffer.from(chunk)));
}
