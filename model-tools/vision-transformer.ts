import { openclipVitB32 } from "../contract/model-signature.ts";
import { GraphBuilder } from "./graph-builder.ts";
import type { OnnxModel } from "./onnx-writer.ts";
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
 * keep the cosine of different samples below 0.95 and that of a recompressed sample above 0.99. Deviations contain only square
 * roots, which are bit-exact on every platform, unlike powers.
 */
const gains = { convolution: 4, queryKeyValue: 1.7, attentionOutput: 2, mlp: 2 } as const;
const biasDeviation = 0.02;

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
  const builder = new ImageTowerBuilder(sizes, weights);
  let stream = builder.embedding();
  for (let i = 0; i < sizes.layers; i++) stream = builder.block(`resblocks.${i}`, stream);
  builder.projection(stream);
  return {
    producer: "clipstack",
    opset,
    irVersion: 8,
    graphName: "clip_image_tower",
    inputs: [{ name: inputName, dims: ["batch", ...inputDims] }],
    outputs: [{ name: outputName, dims: ["batch", sizes.outputs] }],
    nodes: builder.nodes,
    initializers: builder.initializers,
  };
}

class ImageTowerBuilder extends GraphBuilder {
  readonly #sizes: VisionTransformer;
  readonly #weights: TowerWeights;
  readonly #patches: number;
  /** Initializers shared by all blocks. */
  readonly #shared;

  constructor(sizes: VisionTransformer, weights: TowerWeights) {
    super();
    this.#sizes = sizes;
    this.#weights = weights;
    this.#patches = (sizes.imageSide / sizes.patchSide) ** 2;
    this.#shared = this.#sharedInitializers();
  }

  #sharedInitializers() {
    const { width, heads } = this.#sizes;
    const tokens = this.#patches + 1;
    const headWidth = width / heads;
    return {
      headScale: this.scalar("attention.scale", 1 / Math.sqrt(headWidth)),
      half: this.scalar("gelu.half", 0.5),
      one: this.scalar("gelu.one", 1),
      sqrt2: this.scalar("gelu.sqrt2", Math.SQRT2),
      splitShape: this.integers("attention.split_shape", [0, tokens, 3, heads, headWidth]),
      mergedShape: this.integers("attention.merged_shape", [0, tokens, width]),
      query: this.integers("attention.query_index", [0]),
      key: this.integers("attention.key_index", [1]),
      value: this.integers("attention.value_index", [2]),
      firstAxis: this.integers("attention.first_axis", [0]),
    };
  }

  #normal(name: string, dims: readonly number[], deviation: number): string {
    const data = () => this.#weights(name, dims, { deviation });
    return this.initializer({ name, dataType: "FLOAT", dims, data });
  }

  #layerNorm(name: string, input: string): string {
    const dims = [this.#sizes.width];
    const data = () => this.#weights(`${name}.weight`, dims, { value: 1 });
    const gain = this.initializer({ name: `${name}.weight`, dataType: "FLOAT", dims, data });
    const bias = this.#normal(`${name}.bias`, dims, biasDeviation);
    return this.node("LayerNormalization", name, [input, gain, bias], {
      axis: -1,
      epsilon: { float: 1e-5 },
    });
  }

  #projected(
    name: string,
    input: string,
    [from, to]: readonly [number, number],
    deviation: number,
  ): string {
    const weight = this.#normal(`${name}.weight`, [from, to], deviation);
    return this.node("Add", `${name}.out`, [
      this.node("MatMul", `${name}.matmul`, [input, weight]),
      this.#normal(`${name}.bias`, [to], biasDeviation),
    ]);
  }

  /** Pixels to tokens: patches, class token, positions and `ln_pre`. */
  embedding(): string {
    const { width, patchSide } = this.#sizes;
    const side = [patchSide, patchSide];
    const deviation = gains.convolution / Math.sqrt(3 * inputDims[0] * patchSide * patchSide);
    const kernels = this.#normal("conv1.weight", [width, inputDims[0], ...side], deviation);
    const grid = this.node("Conv", "conv1", [inputName, kernels], {
      kernel_shape: side,
      strides: side,
    });
    const shape = this.integers("patches.shape", [0, width, this.#patches]);
    const flat = this.node("Reshape", "patches.flat", [grid, shape]);
    const patches = this.transpose("patches", flat, [0, 2, 1]);
    // Row 0 is the class token plus its position. It is added to a zero row from `Pad`, which needs no batch size, so that every
    // shape of the graph follows from the input's.
    const pads = this.integers("patches.pads", [0, 1, 0, 0, 0, 0]);
    const sequence = this.node("Add", "embedded", [
      this.node("Pad", "patches.padded", [patches, pads]),
      this.#normal(
        "class_and_positional_embedding",
        [this.#patches + 1, width],
        1 / Math.sqrt(width),
      ),
    ]);
    return this.#layerNorm("ln_pre", sequence);
  }

  block(name: string, input: string): string {
    const attended = this.node("Add", `${name}.attn.residual`, [
      input,
      this.#attention(name, input),
    ]);
    return this.node("Add", `${name}.mlp.residual`, [attended, this.#mlp(name, attended)]);
  }

  #attention(block: string, input: string): string {
    const { width } = this.#sizes;
    const { headScale, splitShape, mergedShape, firstAxis } = this.#shared;
    const name = `${block}.attn`;
    const normed = this.#layerNorm(`${block}.ln_1`, input);
    const deviation = gains.queryKeyValue / Math.sqrt(width);
    const projected = this.#projected(`${name}.in_proj`, normed, [width, 3 * width], deviation);
    const split = this.node("Reshape", `${name}.split`, [projected, splitShape]);
    const qkv = this.transpose(`${name}.qkv`, split, [2, 0, 3, 1, 4]);
    const part = (kind: "query" | "key" | "value") =>
      this.node("Squeeze", `${name}.${kind}`, [
        this.node("Gather", `${name}.${kind}_of_qkv`, [qkv, this.#shared[kind]], { axis: 0 }),
        firstAxis,
      ]);
    const [query, key, value] = [part("query"), part("key"), part("value")];
    const scores = this.node("MatMul", `${name}.scores`, [
      query,
      this.transpose(`${name}.key_t`, key, [0, 1, 3, 2]),
    ]);
    const scaled = this.node("Mul", `${name}.scaled`, [scores, headScale]);
    const weights = this.node("Softmax", `${name}.weights`, [scaled], { axis: -1 });
    const mixed = this.node("MatMul", `${name}.mixed`, [weights, value]);
    const byToken = this.transpose(`${name}.by_token`, mixed, [0, 2, 1, 3]);
    const merged = this.node("Reshape", `${name}.merged`, [byToken, mergedShape]);
    const outputDeviation = gains.attentionOutput * this.#residualDeviation;
    return this.#projected(`${name}.out_proj`, merged, [width, width], outputDeviation);
  }

  #mlp(block: string, input: string): string {
    const { width, mlpWidth } = this.#sizes;
    const { half, one, sqrt2 } = this.#shared;
    const name = `${block}.mlp`;
    const normed = this.#layerNorm(`${block}.ln_2`, input);
    const deviation = gains.mlp / Math.sqrt(2 * width);
    const hidden = this.#projected(`${name}.c_fc`, normed, [width, mlpWidth], deviation);
    const divided = this.node("Div", `${name}.div`, [hidden, sqrt2]);
    const erf = this.node("Erf", `${name}.erf`, [divided]);
    const plusOne = this.node("Add", `${name}.plus_one`, [erf, one]);
    const gated = this.node("Mul", `${name}.gated`, [hidden, plusOne]);
    const gelu = this.node("Mul", `${name}.gelu`, [gated, half]);
    const outputDeviation = gains.mlp * this.#residualDeviation;
    return this.#projected(`${name}.c_proj`, gelu, [mlpWidth, width], outputDeviation);
  }

  get #residualDeviation(): number {
    return 1 / Math.sqrt(this.#sizes.width * 2 * this.#sizes.layers);
  }

  /** Projects the class token of the last block to the embedding. */
  projection(stream: string): void {
    const { width, outputs } = this.#sizes;
    const token = this.node("Slice", "class_token.slice", [
      stream,
      this.integers("class_token.start", [0]),
      this.integers("class_token.end", [1]),
      this.integers("class_token.axis", [1]),
    ]);
    const axis = this.integers("class_token.squeeze_axis", [1]);
    const classToken = this.node("Squeeze", "class_token", [token, axis]);
    this.node("MatMul", outputName, [
      this.#layerNorm("ln_post", classToken),
      this.#normal("proj", [width, outputs], 1 / Math.sqrt(width)),
    ]);
  }
}
