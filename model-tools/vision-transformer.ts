import { openclipVitB32 } from "../contract/model-signature.ts";
import {
  int64Initializer,
  type OnnxAttribute,
  type OnnxInitializer,
  type OnnxModel,
  type OnnxNode,
  scalarInitializer,
} from "./onnx-writer.ts";
import { constantPieces, normalPieces } from "./random-weights.ts";

/** Sizes of a CLIP image tower. */
export interface VisionTransformer {
  /** Side of the square input, in pixels. */
  readonly imageSide: number;
  /** Side of a patch, in pixels. */
  readonly patchSide: number;
  /** Floats per token. A multiple of `heads`. */
  readonly width: number;
  readonly layers: number;
  readonly heads: number;
  /** Floats between the two matrices of a block's MLP. */
  readonly mlpWidth: number;
  /** Floats of the embedding. */
  readonly outputs: number;
}

const [{ name: inputName, dims: inputDims }] = openclipVitB32.inputs;
const [{ name: outputName, dims: outputDims }] = openclipVitB32.outputs;

/** Models that can be generated. Both have the signature of `openclipVitB32`. */
export const profiles = {
  /** OpenCLIP ViT-B/32: 88 million parameters, 351 MB. */
  "vit-b-32": {
    imageSide: inputDims[1],
    patchSide: 32,
    width: 768,
    layers: 12,
    heads: 12,
    mlpWidth: 3072,
    outputs: outputDims[0],
  },
  /** For tests: the same graph, under 1 MB. */
  tiny: {
    imageSide: inputDims[1],
    patchSide: 32,
    width: 48,
    layers: 2,
    heads: 2,
    mlpWidth: 192,
    outputs: outputDims[0],
  },
} as const satisfies Record<string, VisionTransformer>;
export type ModelProfile = keyof typeof profiles;

export const opset = 17;

/**
 * Factors by which the random weights are larger than open_clip's initialisation. With 1, embeddings of different images are nearly
 * equal and would hide preprocessing errors; with much larger factors, a recompressed JPEG gets an unrelated embedding. These values
 * keep the cosine of different samples below 0.95 and that of a recompressed sample above 0.99.
 */
const gains = { convolution: 4, queryKeyValue: 1.7, attentionOutput: 2, mlp: 2 } as const;

/**
 * Returns the image tower of open_clip's `encode_image`, without normalisation: patches, class token and position,
 * `ln_pre`, residual blocks of attention and MLP (exact GELU), `ln_post` on the class token, projection.
 */
export function visionTransformer(sizes: VisionTransformer, seed: number): OnnxModel {
  return imageTower(sizes, (name, dims, initial) => {
    const count = dims.reduce((product, dim) => product * dim, 1);
    return "value" in initial
      ? constantPieces(count, initial.value)
      : normalPieces(seed, name, count, initial.deviation);
  });
}

/**
 * Source of the weights of a tower.
 *
 * @param initial - Values in an untrained model: normally distributed, or constant.
 * @returns The values as bytes, row-major; a matrix is `[from, to]`.
 */
export type TowerWeights = (
  name: string,
  dims: readonly number[],
  initial: { readonly deviation: number } | { readonly value: number },
) => Iterable<Uint8Array>;

/** Returns the same graph with the given weights: `conv1.weight`, `resblocks.0.attn.in_proj.bias`, … */
export function imageTower(sizes: VisionTransformer, weights: TowerWeights): OnnxModel {
  const { width, layers, heads, mlpWidth, patchSide, outputs } = sizes;
  const patches = (sizes.imageSide / patchSide) ** 2;
  const tokens = patches + 1;
  const headWidth = width / heads;

  const nodes: OnnxNode[] = [];
  const initializers: OnnxInitializer[] = [];

  const node = (
    op: string,
    name: string,
    inputs: readonly string[],
    attributes?: Record<string, OnnxAttribute>,
  ): string => {
    nodes.push({ name, op, inputs, outputs: [name], attributes });
    return name;
  };
  const random = (name: string, dims: readonly number[], deviation: number): string => {
    const data = () => weights(name, dims, { deviation });
    initializers.push({ name, dataType: "FLOAT", dims, data });
    return name;
  };
  const constant = (name: string, size: number, value: number): string => {
    const data = () => weights(name, [size], { value });
    initializers.push({ name, dataType: "FLOAT", dims: [size], data });
    return name;
  };
  const integers = (name: string, values: readonly number[]): string => {
    initializers.push(int64Initializer(name, values));
    return name;
  };
  const scalar = (name: string, value: number): string => {
    initializers.push(scalarInitializer(name, value));
    return name;
  };
  const layerNorm = (name: string, input: string): string =>
    node(
      "LayerNormalization",
      name,
      [input, constant(`${name}.weight`, width, 1), random(`${name}.bias`, [width], biasDeviation)],
      { axis: -1, epsilon: { float: 1e-5 } },
    );
  const linear = (
    name: string,
    input: string,
    [from, to]: readonly [number, number],
    deviation: number,
  ): string =>
    node("Add", `${name}.out`, [
      node("MatMul", `${name}.matmul`, [input, random(`${name}.weight`, [from, to], deviation)]),
      random(`${name}.bias`, [to], biasDeviation),
    ]);

  // only square roots, which are bit-exact on every platform, unlike powers
  const biasDeviation = 0.02;
  const embeddingDeviation = 1 / Math.sqrt(width);
  const attentionDeviation = gains.queryKeyValue / Math.sqrt(width);
  const residualDeviation = 1 / Math.sqrt(width * 2 * layers);
  const mlpDeviation = gains.mlp / Math.sqrt(2 * width);
  const convolutionDeviation =
    gains.convolution / Math.sqrt(3 * inputDims[0] * patchSide * patchSide);

  // shared by all blocks
  const headScale = scalar("attention.scale", 1 / Math.sqrt(headWidth));
  const half = scalar("gelu.half", 0.5);
  const one = scalar("gelu.one", 1);
  const sqrt2 = scalar("gelu.sqrt2", Math.SQRT2);
  const splitShape = integers("attention.split_shape", [0, tokens, 3, heads, headWidth]);
  const mergedShape = integers("attention.merged_shape", [0, tokens, width]);
  const thirds = ["query", "key", "value"].map((name, i) =>
    integers(`attention.${name}_index`, [i]),
  );
  const firstAxis = integers("attention.first_axis", [0]);

  const block = (name: string, input: string): string => {
    const qkv = node(
      "Transpose",
      `${name}.attn.qkv`,
      [
        node("Reshape", `${name}.attn.split`, [
          linear(
            `${name}.attn.in_proj`,
            layerNorm(`${name}.ln_1`, input),
            [width, 3 * width],
            attentionDeviation,
          ),
          splitShape,
        ]),
      ],
      { perm: [2, 0, 3, 1, 4] },
    );
    const [query, key, value] = ["query", "key", "value"].map((part, i) =>
      node("Squeeze", `${name}.attn.${part}`, [
        node("Gather", `${name}.attn.${part}_of_qkv`, [qkv, thirds[i]!], { axis: 0 }),
        firstAxis,
      ]),
    );
    const scores = node("Mul", `${name}.attn.scaled`, [
      node("MatMul", `${name}.attn.scores`, [
        query!,
        node("Transpose", `${name}.attn.key_t`, [key!], { perm: [0, 1, 3, 2] }),
      ]),
      headScale,
    ]);
    const weights = node("Softmax", `${name}.attn.weights`, [scores], { axis: -1 });
    const mixed = node("MatMul", `${name}.attn.mixed`, [weights, value!]);
    const merged = node("Reshape", `${name}.attn.merged`, [
      node("Transpose", `${name}.attn.by_token`, [mixed], { perm: [0, 2, 1, 3] }),
      mergedShape,
    ]);
    const attended = node("Add", `${name}.attn.residual`, [
      input,
      linear(
        `${name}.attn.out_proj`,
        merged,
        [width, width],
        gains.attentionOutput * residualDeviation,
      ),
    ]);

    const hidden = linear(
      `${name}.mlp.c_fc`,
      layerNorm(`${name}.ln_2`, attended),
      [width, mlpWidth],
      mlpDeviation,
    );
    const erf = node("Erf", `${name}.mlp.erf`, [node("Div", `${name}.mlp.div`, [hidden, sqrt2])]);
    const gelu = node("Mul", `${name}.mlp.gelu`, [
      node("Mul", `${name}.mlp.gated`, [hidden, node("Add", `${name}.mlp.plus_one`, [erf, one])]),
      half,
    ]);
    return node("Add", `${name}.mlp.residual`, [
      attended,
      linear(`${name}.mlp.c_proj`, gelu, [mlpWidth, width], gains.mlp * residualDeviation),
    ]);
  };

  const patchGrid = node(
    "Conv",
    "conv1",
    [
      inputName,
      random("conv1.weight", [width, inputDims[0], patchSide, patchSide], convolutionDeviation),
    ],
    { kernel_shape: [patchSide, patchSide], strides: [patchSide, patchSide] },
  );
  const patchTokens = node(
    "Transpose",
    "patches",
    [node("Reshape", "patches.flat", [patchGrid, integers("patches.shape", [0, width, patches])])],
    { perm: [0, 2, 1] },
  );
  // Row 0 is the class token plus its position. It is added to a zero row from `Pad`, which needs no batch size, so that every shape
  // of the graph follows from the input's.
  const sequence = node("Add", "embedded", [
    node("Pad", "patches.padded", [patchTokens, integers("patches.pads", [0, 1, 0, 0, 0, 0])]),
    random("class_and_positional_embedding", [tokens, width], embeddingDeviation),
  ]);

  let stream = layerNorm("ln_pre", sequence);
  for (let i = 0; i < layers; i++) stream = block(`resblocks.${i}`, stream);

  const classToken = node("Squeeze", "class_token", [
    node("Slice", "class_token.slice", [
      stream,
      integers("class_token.start", [0]),
      integers("class_token.end", [1]),
      integers("class_token.axis", [1]),
    ]),
    integers("class_token.squeeze_axis", [1]),
  ]);
  node("MatMul", outputName, [
    layerNorm("ln_post", classToken),
    random("proj", [width, outputs], 1 / Math.sqrt(width)),
  ]);

  return {
    producer: "clipstack",
    opset,
    irVersion: 8,
    graphName: "clip_image_tower",
    inputs: [{ name: inputName, dims: ["batch", ...inputDims] }],
    outputs: [{ name: outputName, dims: ["batch", outputs] }],
    nodes,
    initializers,
  };
}
