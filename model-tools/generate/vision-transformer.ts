import { imageTowerOf, normalisedImage } from "../../contract/model-shapes.ts";
import type { ModelSpec } from "../../contract/model-spec.ts";
import type { OnnxModel } from "../onnx/writer.ts";
import {
  biasDeviation,
  gains,
  opset,
  type TowerWeights,
  TransformerBuilder,
} from "./transformer-blocks.ts";

/**
 * Differences between families of vision transformers. `open-clip`: normalisation before the first block, projection after the last
 * one. `dinov2`: bias of the patches, LayerScale after attention and MLP, no projection.
 */
export type TransformerFamily = "open-clip" | "dinov2";

/** Sizes of a vision transformer. The model spec has the sizes of the input and the embedding. */
export interface VisionTransformer {
  readonly family: TransformerFamily;
  /** Side of a patch, in pixels. */
  readonly patchSide: number;
  /** Floats per token. A multiple of `heads`. */
  readonly width: number;
  readonly layers: number;
  readonly heads: number;
  /** Floats between the two matrices of a block's MLP. */
  readonly mlpWidth: number;
}

/** Epsilon of the layer normalisations. */
const epsilons = { "open-clip": 1e-5, dinov2: 1e-6 } as const;

const channels = 3;

/**
 * Returns the image tower of a spec with the given weights: `conv1.weight`, `resblocks.0.attn.in_proj.bias`, … For `open-clip`, it
 * computes open_clip's `encode_image`: patches, class token and position, `ln_pre`, residual blocks of attention and MLP (exact
 * GELU), `ln_post` on the class token, projection.
 */
export function imageTower(
  spec: ModelSpec,
  sizes: VisionTransformer,
  weights: TowerWeights,
): OnnxModel {
  const tower = imageTowerOf(spec);
  const builder = new ImageTowerBuilder(spec, sizes, weights);
  let stream = builder.embedding();
  for (let i = 0; i < sizes.layers; i++) stream = builder.block(`resblocks.${i}`, stream);
  builder.projection(stream);
  return {
    producer: "clipstack",
    opset,
    irVersion: 8,
    graphName: "clip_image_tower",
    inputs: [{ name: tower.input.tensor, dims: ["batch", ...normalisedImage(tower).dims] }],
    outputs: [{ name: tower.output, dims: ["batch", spec.embedding.width] }],
    nodes: builder.nodes,
    initializers: builder.initializers,
  };
}

function patchGrid(spec: ModelSpec, { patchSide }: VisionTransformer) {
  const { width, height } = imageTowerOf(spec).input.size;
  return { rows: Math.ceil(height / patchSide), columns: Math.ceil(width / patchSide) };
}

class ImageTowerBuilder extends TransformerBuilder {
  readonly #spec: ModelSpec;
  readonly #sizes: VisionTransformer;
  readonly #patches: number;
  /** Pixels added below and to the right, so that the patches cover the image. */
  readonly #padding: readonly [number, number];
  constructor(spec: ModelSpec, sizes: VisionTransformer, weights: TowerWeights) {
    const { rows, columns } = patchGrid(spec, sizes);
    const { family, patchSide } = sizes;
    super(
      {
        ...sizes,
        tokens: rows * columns + 1,
        epsilon: epsilons[family],
        activation: "gelu",
        layerScale: family === "dinov2",
      },
      weights,
    );
    this.#spec = spec;
    this.#sizes = sizes;
    const { width, height } = imageTowerOf(spec).input.size;
    this.#patches = rows * columns;
    this.#padding = [rows * patchSide - height, columns * patchSide - width];
  }

  /** Pixels to tokens: patches, class token, positions and `ln_pre`. */
  embedding(): string {
    const { width, patchSide, family } = this.#sizes;
    const { input } = imageTowerOf(this.#spec);
    const side = [patchSide, patchSide];
    const deviation = gains.convolution / Math.sqrt(3 * channels * patchSide * patchSide);
    const kernels = this.normal("conv1.weight", [width, channels, ...side], deviation);
    const planes =
      input.layout === "nchw" ? input.tensor : this.transpose("planes", input.tensor, [0, 3, 1, 2]);
    const inputs = [planes, kernels];
    if (family === "dinov2") inputs.push(this.normal("conv1.bias", [width], biasDeviation));
    const [below, right] = this.#padding;
    const grid = this.node("Conv", "conv1", inputs, {
      kernel_shape: side,
      strides: side,
      ...(below + right > 0 && { pads: [0, 0, below, right] }),
    });
    const shape = this.integers("patches.shape", [0, width, this.#patches]);
    const flat = this.node("Reshape", "patches.flat", [grid, shape]);
    const patches = this.transpose("patches", flat, [0, 2, 1]);
    // Row 0 is the class token plus its position. It is added to a zero row from `Pad`, which needs no batch size, so that every
    // shape of the graph follows from the input's.
    const pads = this.integers("patches.pads", [0, 1, 0, 0, 0, 0]);
    const sequence = this.node("Add", "embedded", [
      this.node("Pad", "patches.padded", [patches, pads]),
      this.normal(
        "class_and_positional_embedding",
        [this.#patches + 1, width],
        1 / Math.sqrt(width),
      ),
    ]);
    return family === "dinov2" ? sequence : this.layerNorm("ln_pre", sequence);
  }

  /** Turns the class token of the last block into the embedding. */
  projection(stream: string): void {
    const { width, family } = this.#sizes;
    const { embedding } = this.#spec;
    const { output } = imageTowerOf(this.#spec);
    const token = this.node("Slice", "class_token.slice", [
      stream,
      this.integers("class_token.start", [0]),
      this.integers("class_token.end", [1]),
      this.integers("class_token.axis", [1]),
    ]);
    const axis = this.integers("class_token.squeeze_axis", [1]);
    const classToken = this.node("Squeeze", "class_token", [token, axis]);
    const normed = this.layerNorm("ln_post", classToken);
    const isUnit = embedding.normalisedBy === "model";
    const last = isUnit ? "projected" : output;
    if (family === "dinov2") {
      this.node("Identity", last, [normed]);
    } else {
      const projection = this.normal("proj", [width, embedding.width], 1 / Math.sqrt(width));
      this.node("MatMul", last, [normed, projection]);
    }
    if (isUnit) this.unitLength(output, last);
  }
}
