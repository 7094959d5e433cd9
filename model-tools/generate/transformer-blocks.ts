import { GraphBuilder } from "../graph/graph-builder.ts";
import { constantPieces, normalPieces } from "./random-weights.ts";

export const opset = 17;

/**
 * Factors by which the random weights are larger than open_clip's initialisation. With 1, embeddings of different images are nearly
 * equal and would hide preprocessing errors; with much larger factors, a recompressed JPEG gets an unrelated embedding. These values
 * keep the cosine of different samples below 0.95 and that of a recompressed sample above 0.99. Deviations contain only square
 * roots, which are bit-exact on every platform, unlike powers.
 */
export const gains = { convolution: 4, queryKeyValue: 1.7, attentionOutput: 2, mlp: 2 } as const;
export const biasDeviation = 0.02;

/** Weights of an untrained model. The same seed gives the same bytes on every machine. */
export function randomWeights(seed: number): TowerWeights {
  return (name, dims, initial) => {
    const count = dims.reduce((product, dim) => product * dim, 1);
    return "value" in initial
      ? constantPieces(count, initial.value)
      : normalPieces(seed, name, count, initial.deviation);
  };
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

/** Sizes of a transformer, and options of its blocks. */
export interface TransformerSizes {
  /** Floats per token. A multiple of `heads`. */
  readonly width: number;
  readonly layers: number;
  readonly heads: number;
  /** Floats between the two matrices of a block's MLP. */
  readonly mlpWidth: number;
  readonly tokens: number;
  /** Epsilon of the layer normalisations. */
  readonly epsilon: number;
  readonly activation: "gelu" | "gelu-tanh";
  /** Factors after attention and MLP, one per column. */
  readonly layerScale?: boolean;
  /** A token attends only to itself and to those before it. */
  readonly causal?: boolean;
}

/** Builds residual blocks of attention and MLP, each after a layer normalisation. */
export class TransformerBuilder extends GraphBuilder {
  readonly #sizes: TransformerSizes;
  readonly #weights: TowerWeights;
  /** Initializers shared by all blocks. */
  readonly #shared;

  constructor(sizes: TransformerSizes, weights: TowerWeights) {
    super();
    this.#sizes = sizes;
    this.#weights = weights;
    this.#shared = this.#sharedInitializers();
  }

  #sharedInitializers() {
    const { width, heads, tokens, activation } = this.#sizes;
    const headWidth = width / heads;
    return {
      headScale: this.scalar("attention.scale", 1 / Math.sqrt(headWidth)),
      half: this.scalar("gelu.half", 0.5),
      one: this.scalar("gelu.one", 1),
      geluScale:
        activation === "gelu"
          ? this.scalar("gelu.sqrt2", Math.SQRT2)
          : this.scalar("gelu.scale", Math.sqrt(2 / Math.PI)),
      splitShape: this.integers("attention.split_shape", [0, tokens, 3, heads, headWidth]),
      mergedShape: this.integers("attention.merged_shape", [0, tokens, width]),
      query: this.integers("attention.query_index", [0]),
      key: this.integers("attention.key_index", [1]),
      value: this.integers("attention.value_index", [2]),
      firstAxis: this.integers("attention.first_axis", [0]),
    };
  }

  normal(name: string, dims: readonly number[], deviation: number): string {
    const data = () => this.#weights(name, dims, { deviation });
    return this.initializer({ name, dataType: "FLOAT", dims, data });
  }

  layerNorm(name: string, input: string): string {
    const dims = [this.#sizes.width];
    const data = () => this.#weights(`${name}.weight`, dims, { value: 1 });
    const gain = this.initializer({ name: `${name}.weight`, dataType: "FLOAT", dims, data });
    const bias = this.normal(`${name}.bias`, dims, biasDeviation);
    return this.node("LayerNormalization", name, [input, gain, bias], {
      axis: -1,
      epsilon: { float: this.#sizes.epsilon },
    });
  }

  #projected(
    name: string,
    input: string,
    [from, to]: readonly [number, number],
    deviation: number,
  ): string {
    const weight = this.normal(`${name}.weight`, [from, to], deviation);
    return this.node("Add", `${name}.out`, [
      this.node("MatMul", `${name}.matmul`, [input, weight]),
      this.normal(`${name}.bias`, [to], biasDeviation),
    ]);
  }

  block(name: string, input: string): string {
    const attended = this.node("Add", `${name}.attn.residual`, [
      input,
      this.#scaled(`${name}.ls_1`, this.#attention(name, input)),
    ]);
    return this.node("Add", `${name}.mlp.residual`, [
      attended,
      this.#scaled(`${name}.ls_2`, this.#mlp(name, attended)),
    ]);
  }

  /** LayerScale: one factor per column. */
  #scaled(name: string, input: string): string {
    if (!this.#sizes.layerScale) return input;
    const dims = [this.#sizes.width];
    const data = () => this.#weights(`${name}.gamma`, dims, { value: 1 });
    const factors = this.initializer({ name: `${name}.gamma`, dataType: "FLOAT", dims, data });
    return this.node("Mul", name, [input, factors]);
  }

  #attention(block: string, input: string): string {
    const { width } = this.#sizes;
    const { headScale, splitShape, mergedShape, firstAxis } = this.#shared;
    const name = `${block}.attn`;
    const normed = this.layerNorm(`${block}.ln_1`, input);
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
    const masked = this.#sizes.causal
      ? this.node("Add", `${name}.masked`, [scaled, this.#causalMask()])
      : scaled;
    const weights = this.node("Softmax", `${name}.weights`, [masked], { axis: -1 });
    const mixed = this.node("MatMul", `${name}.mixed`, [weights, value]);
    const byToken = this.transpose(`${name}.by_token`, mixed, [0, 2, 1, 3]);
    const merged = this.node("Reshape", `${name}.merged`, [byToken, mergedShape]);
    const outputDeviation = gains.attentionOutput * this.#residualDeviation;
    return this.#projected(`${name}.out_proj`, merged, [width, width], outputDeviation);
  }

  #mlp(block: string, input: string): string {
    const { width, mlpWidth } = this.#sizes;
    const name = `${block}.mlp`;
    const normed = this.layerNorm(`${block}.ln_2`, input);
    const deviation = gains.mlp / Math.sqrt(2 * width);
    const hidden = this.#projected(`${name}.c_fc`, normed, [width, mlpWidth], deviation);
    const active = this.#gelu(name, hidden);
    const outputDeviation = gains.mlp * this.#residualDeviation;
    return this.#projected(`${name}.c_proj`, active, [mlpWidth, width], outputDeviation);
  }

  /** GELU, exact or with its approximation by tanh: x · (1 + tanh(√(2/π) · (x + 0.044715 · x³))) / 2. */
  #gelu(name: string, hidden: string): string {
    const { half, one, geluScale } = this.#shared;
    const gate = () => {
      if (this.#sizes.activation === "gelu") {
        return this.node("Erf", `${name}.erf`, [
          this.node("Div", `${name}.div`, [hidden, geluScale]),
        ]);
      }
      const square = this.node("Mul", `${name}.square`, [hidden, hidden]);
      const cube = this.node("Mul", `${name}.cube`, [square, hidden]);
      const small = this.node("Mul", `${name}.small`, [cube, this.scalar("gelu.cubic", 0.044_715)]);
      const sum = this.node("Add", `${name}.sum`, [hidden, small]);
      return this.node("Tanh", `${name}.tanh`, [
        this.node("Mul", `${name}.inner`, [sum, geluScale]),
      ]);
    };
    const plusOne = this.node("Add", `${name}.plus_one`, [gate(), one]);
    const gated = this.node("Mul", `${name}.gated`, [hidden, plusOne]);
    return this.node("Mul", `${name}.gelu`, [gated, half]);
  }

  /** `[tokens, tokens]`: minus infinity above the diagonal. */
  #causalMask(): string {
    const { tokens } = this.#sizes;
    return this.floats("attention.causal_mask", [tokens, tokens], () =>
      Float32Array.from({ length: tokens * tokens }, (_, index) =>
        index % tokens > Math.floor(index / tokens) ? -Infinity : 0,
      ),
    );
  }

  get #residualDeviation(): number {
    return 1 / Math.sqrt(this.#sizes.width * 2 * this.#sizes.layers);
  }
}
