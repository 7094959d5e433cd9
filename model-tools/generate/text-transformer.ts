import { textTowerOf, tokenIds } from "../../contract/model-shapes.ts";
import type { ModelSpec } from "../../contract/model-spec.ts";
import type { OnnxModel } from "../onnx/writer.ts";
import {
  biasDeviation,
  opset,
  type TowerWeights,
  TransformerBuilder,
} from "./transformer-blocks.ts";

/**
 * Differences between families of text towers. `clip`: open_clip's `encode_text`, whose embedding is the projection of the first
 * position with the largest id, the end of the text. `siglip`: every position attends to all, and the embedding is the head of the last
 * position, which may be padding.
 */
export type TextFamily = "clip" | "siglip";

/** Sizes of a text tower; context length, vocabulary and embedding are in the model spec. */
export interface TextTransformer {
  readonly family: TextFamily;
  /** Floats per token. A multiple of `heads`. */
  readonly width: number;
  readonly layers: number;
  readonly heads: number;
  /** Floats between the two matrices of a block's MLP. */
  readonly mlpWidth: number;
  /**
   * A token attends only to itself and to those before it.
   *
   * @default true for `clip`
   */
  readonly causal?: boolean;
}

/** Returns the text tower of a spec with the given weights: `token_embedding`, `resblocks.0.attn.in_proj.bias`, … */
export function textTower(
  spec: ModelSpec,
  sizes: TextTransformer,
  weights: TowerWeights,
): OnnxModel {
  const tower = textTowerOf(spec);
  const builder = new TextTowerBuilder(spec, sizes, weights);
  let stream = builder.embedding();
  for (let i = 0; i < sizes.layers; i++) stream = builder.block(`resblocks.${i}`, stream);
  builder.projection(stream);
  const { dataType, dims } = tokenIds(tower);
  return {
    producer: "clipstack",
    opset,
    irVersion: 8,
    graphName: `${sizes.family}_text_tower`,
    inputs: [{ name: tower.input.tensor, dataType: idType(dataType), dims: ["batch", ...dims] }],
    outputs: [{ name: tower.output, dims: ["batch", spec.embedding.width] }],
    nodes: builder.nodes,
    initializers: builder.initializers,
  };
}

function idType(dataType: string): "INT64" | "INT32" {
  return dataType === "INT32" ? "INT32" : "INT64";
}

class TextTowerBuilder extends TransformerBuilder {
  readonly #spec: ModelSpec;
  readonly #sizes: TextTransformer;

  constructor(spec: ModelSpec, sizes: TextTransformer, weights: TowerWeights) {
    const isClip = sizes.family === "clip";
    super(
      {
        ...sizes,
        tokens: textTowerOf(spec).input.contextLength,
        epsilon: isClip ? 1e-5 : 1e-6,
        activation: isClip ? "gelu" : "gelu-tanh",
        causal: sizes.causal ?? isClip,
      },
      weights,
    );
    this.#spec = spec;
    this.#sizes = sizes;
  }

  /** Token ids to tokens: the row of each id, plus the position. */
  embedding(): string {
    const { width } = this.#sizes;
    const { input } = textTowerOf(this.#spec);
    const deviation = 1 / Math.sqrt(width);
    const table = this.normal("token_embedding", [input.vocabularySize, width], deviation);
    const rows = this.node("Gather", "tokens", [table, input.tensor], { axis: 0 });
    const positions = this.normal("positional_embedding", [input.contextLength, width], deviation);
    return this.node("Add", "embedded", [rows, positions]);
  }

  /** Turns one position of the last block into the embedding. */
  projection(stream: string): void {
    const { width, family } = this.#sizes;
    const { embedding } = this.#spec;
    const { output } = textTowerOf(this.#spec);
    const position = family === "clip" ? this.#endPosition(stream) : this.#lastPosition(stream);
    const normed = this.layerNorm("ln_final", position);
    const isUnit = embedding.normalisedBy === "model";
    const last = isUnit ? "projected" : output;
    const dims = [width, embedding.width];
    const matrix = this.normal("text_projection", dims, 1 / Math.sqrt(width));
    if (family === "clip") {
      this.node("MatMul", last, [normed, matrix]);
    } else {
      const bias = this.normal("text_projection.bias", [embedding.width], biasDeviation);
      this.node("Gemm", last, [normed, matrix, bias]);
    }
    if (isUnit) this.unitLength(output, last);
  }

  /** First position with the largest id, as in `argmax`. The end id is the largest of CLIP's vocabulary. */
  #endPosition(stream: string): string {
    const { tensor } = textTowerOf(this.#spec).input;
    // ONNX Runtime has no ArgMax of int64
    const ids = this.node("Cast", "end.ids", [tensor], { to: int32 });
    const position = this.node("ArgMax", "end.position", [ids], { axis: 1, keepdims: 1 });
    return this.node("GatherND", "end.token", [stream, position], { batch_dims: 1 });
  }

  #lastPosition(stream: string): string {
    const index = this.integers("last.index", [-1]);
    const token = this.node("Gather", "last.tokens", [stream, index], { axis: 1 });
    return this.node("Squeeze", "last.token", [token, this.integers("last.axis", [1])]);
  }
}

/** `TensorProto.DataType` of int32. */
const int32 = 6;
