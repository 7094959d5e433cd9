import { imagePixels, imageTowerOf } from "../../contract/model-shapes.ts";
import type { ImageTower, ModelSpec } from "../../contract/model-spec.ts";
import type { OnnxModel } from "../onnx/writer.ts";
import { GraphBuilder } from "./graph-builder.ts";
import type { Tower, TowerBlock } from "./tower.ts";
import { allColumns, columnsByHead, foldPatches, matrixOf, mixedBias } from "./tower-weights.ts";

/** Operator set of the graphs: the first with LayerNormalization. */
const opset = 17;

/**
 * Graph that computes a tower from 8-bit pixels with the fewest operations, using standard ONNX operators. The weights of
 * the patches, a matrix product, include the pixel normalisation. The last block computes queries, MLP and `ln_post` of the class
 * token only, without keys and values of the other tokens. Weights are read from the tower's file when they are written.
 *
 * The tokens of all images are the rows of one matrix, so that a bias is added where its product is computed (`Gemm`). Keys and
 * values have no biases: a key bias adds the same to all scores of a query, which softmax ignores; a value bias is added to
 * every weighted mean, whose weights have the sum 1, so it is part of the output bias: `b + b_value · W`.
 *
 * @param spec - Its input is square, with the size of the tower's.
 * @param heads - Number of attention heads: one of `tower.heads`.
 */
export function towerGraph(spec: ModelSpec, tower: Tower, heads: number): OnnxModel {
  const image = imageTowerOf(spec);
  const builder = new TowerBuilder(image, tower, heads);
  builder.build();
  return {
    producer: "clipstack",
    opset,
    irVersion: 8,
    graphName: "clip_image_tower_u8",
    inputs: [
      { name: image.input.tensor, dataType: "UINT8", dims: ["batch", ...imagePixels(image).dims] },
    ],
    outputs: [{ name: image.output, dims: ["batch", spec.embedding.width] }],
    nodes: builder.graph.nodes,
    initializers: builder.graph.initializers,
  };
}

class TowerBuilder {
  readonly graph = new GraphBuilder();
  readonly #image: ImageTower;
  readonly #tower: Tower;
  readonly #heads: number;
  readonly #headWidth: number;
  /** Patches along one side of the image. */
  readonly #grid: number;
  /** Scale of the attention scores; the weights of the queries include it. */
  readonly #scale: number;

  constructor(image: ImageTower, tower: Tower, heads: number) {
    this.#image = image;
    this.#tower = tower;
    this.#heads = heads;
    this.#headWidth = tower.width / heads;
    this.#grid = tower.imageSide / tower.patchSide;
    this.#scale = 1 / Math.sqrt(this.#headWidth);
  }

  get #tokens(): number {
    return this.#grid ** 2 + 1;
  }

  build(): void {
    const { blocks, width, lastNorm, projection } = this.#tower;
    let stream = this.#embedding();
    for (const [index, block] of blocks.entries()) {
      stream = this.#block(`blocks.${index}`, block, stream, index === blocks.length - 1);
    }
    const classToken = this.graph.reshape("class_token", stream, [0, width]);
    this.graph.linear(
      this.#image.output,
      this.graph.norm("ln_post", classToken, lastNorm),
      allColumns(projection),
    );
  }

  /** Pixels to tokens: patches, class token, positions, and the first normalisation. */
  #embedding(): string {
    const { graph } = this;
    const { width, patchSide, firstNorm } = this.#tower;
    const grid = this.#grid;
    // not every execution provider moves bytes, so pixels become floats first
    const pixels = graph.node("Cast", "pixels", [this.#image.input.tensor], { to: 1 });
    const split = graph.reshape("patches.split", pixels, [0, grid, patchSide, grid, 3 * patchSide]);
    const patchValues = patchSide * patchSide * 3;
    const rows = graph.transpose("patches.rows", split, [0, 1, 3, 2, 4]);
    const flat = graph.reshape("patches.flat", rows, [0, grid * grid, patchValues]);
    const { matrix, positions } = foldPatches(this.#tower, this.#image.input);
    const patches = graph.product("patches", flat, {
      from: patchValues,
      to: width,
      pieces: matrix,
    });
    // a zero row for the class token, independent of the batch size
    const padded = graph.node("Pad", "patches.padded", [
      patches,
      graph.integers("patches.pads", [0, 1, 0, 0, 0, 0]),
    ]);
    const embedded = graph.node("Add", "embedded", [
      padded,
      graph.floats("positions", [this.#tokens, width], positions),
    ]);
    const normed = firstNorm === undefined ? embedded : graph.norm("ln_pre", embedded, firstNorm);
    return this.#asRows(normed);
  }

  #block(name: string, block: TowerBlock, input: string, isLast: boolean): string {
    const { graph } = this;
    const normed = graph.norm(`${name}.ln_1`, input, block.attentionNorm);
    const stream = isLast ? this.#firstToken(`${name}.class_stream`, this.#byImage(input)) : input;
    const mixed = isLast
      ? this.#classAttention(`${name}.attn`, block, normed)
      : this.#attention(`${name}.attn`, block, normed);
    const attended = graph.node("Add", `${name}.attended`, [
      stream,
      this.#attentionOutput(`${name}.attn.out`, mixed, block),
    ]);
    const hidden = graph.linear(
      `${name}.mlp.hidden`,
      graph.norm(`${name}.ln_2`, attended, block.mlpNorm),
      allColumns(block.hidden),
    );
    const active = graph.activation(`${name}.mlp.active`, hidden, block.activation);
    return graph.node("Add", `${name}.out`, [
      attended,
      graph.linear(`${name}.mlp.out`, active, allColumns(block.projection)),
    ]);
  }

  /** Weighted means of the values, for all tokens. */
  #attention(name: string, block: TowerBlock, normed: string): string {
    const { graph } = this;
    const byHead = (projected: string, perm: readonly number[]) => {
      const shape = [-1, this.#tokens, this.#heads, this.#headWidth];
      const split = graph.reshape(`${projected}.heads`, projected, shape);
      return graph.transpose(`${projected}.by_head`, split, perm);
    };
    const query = graph.linear(`${name}.query`, normed, block.query, this.#scale);
    const key = graph.product(`${name}.key`, normed, matrixOf(block.key));
    const value = graph.product(`${name}.value`, normed, matrixOf(block.value));
    const scores = graph.node("MatMul", `${name}.scores`, [
      byHead(query, [0, 2, 1, 3]),
      byHead(key, [0, 2, 3, 1]),
    ]);
    const mixed = graph.node("MatMul", `${name}.mixed`, [
      graph.node("Softmax", `${name}.weights`, [scores], { axis: -1 }),
      byHead(value, [0, 2, 1, 3]),
    ]);
    return this.#asRows(graph.transpose(`${name}.by_token`, mixed, [0, 2, 1, 3]));
  }

  /**
   * Weighted means of the values for the class token only, without the keys and values of all tokens:
   * `q · (W_k x) = (q · W_k) · x`, and the mean of `W_v x` is `W_v` times the mean of `x`. That is one row per head instead of
   * one per token.
   */
  #classAttention(name: string, block: TowerBlock, normed: string): string {
    const { graph } = this;
    const { width } = this.#tower;
    const [heads, headWidth] = [this.#heads, this.#headWidth];
    const tokens = this.#byImage(normed);
    const swap = (value: string, perm: readonly number[]) =>
      graph.transpose(`${value}.swapped`, value, perm);
    /** `[images, heads, …]` to and from `[heads, images, …]`, so that the rows of each head are one matrix. */
    const swapHeads = (value: string) => swap(value, [1, 0, 2]);
    const classToken = this.#firstToken(`${name}.class_token`, tokens);
    const query = graph.reshape(
      `${name}.query.heads`,
      graph.linear(`${name}.query`, classToken, block.query, this.#scale),
      [-1, heads, headWidth],
    );
    const keys = graph.floats(`${name}.key.by_head`, [heads, headWidth, width], () =>
      columnsByHead(block.key, heads, "rows"),
    );
    const queryByKey = graph.node("MatMul", `${name}.asked`, [swapHeads(query), keys]);
    const scores = graph.node("MatMul", `${name}.scores`, [
      swapHeads(queryByKey),
      swap(tokens, [0, 2, 1]),
    ]);
    const mix = graph.node("MatMul", `${name}.mix`, [
      graph.node("Softmax", `${name}.weights`, [scores], { axis: -1 }),
      tokens,
    ]);
    const values = graph.floats(`${name}.value.by_head`, [heads, width, headWidth], () =>
      columnsByHead(block.value, heads, "columns"),
    );
    return this.#asRows(swapHeads(graph.node("MatMul", `${name}.mixed`, [swapHeads(mix), values])));
  }

  #attentionOutput(name: string, mixed: string, block: TowerBlock): string {
    const output = allColumns(block.output);
    const valueBias = block.value.linear.bias;
    if (valueBias === undefined) return this.graph.linear(name, mixed, output);
    const bias = this.graph.floats(`${name}.bias`, [this.#tower.width], () =>
      mixedBias(block, valueBias),
    );
    return this.graph.product(name, mixed, matrixOf(output), bias);
  }

  /** Rows of all images to the tokens of each image. */
  #byImage(input: string): string {
    const shape = [-1, this.#tokens, this.#tower.width];
    return this.graph.reshape(`${input}.by_image`, input, shape);
  }

  #asRows(input: string): string {
    return this.graph.reshape(`${input}.rows`, input, [-1, this.#tower.width]);
  }

  #firstToken(name: string, tokens: string): string {
    const slice = this.graph.node("Slice", name, [
      tokens,
      this.graph.integers("first_token.start", [0]),
      this.graph.integers("first_token.end", [1]),
      this.graph.integers("first_token.axis", [1]),
    ]);
    return this.#asRows(slice);
  }
}
