import { imageTowerOf, normalisedImage } from "../../contract/model-shapes.ts";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { GraphBuilder } from "../graph/graph-builder.ts";
import type { OnnxModel } from "../onnx/writer.ts";
import { opset, type TowerWeights } from "./transformer-blocks.ts";

/**
 * EfficientNet-Lite0 up to the pooled features: `model.py` and `utils.py` of efficientnet_lite_pytorch 0.1.0, `efficientnet/lite` of
 * tensorflow/tpu. Each convolution includes the batch normalisation that follows it.
 */

/** Convolution with "same" padding as in TensorFlow: an odd pixel of padding is added below and to the right. */
export interface ConvolutionLayer {
  /** Name of the convolution and of its batch normalisation in checkpoints. */
  readonly name: string;
  readonly norm: string;
  readonly from: number;
  readonly to: number;
  readonly kernel: number;
  readonly stride: number;
  readonly depthwise: boolean;
  /** ReLU6 after the normalisation. */
  readonly active: boolean;
}

interface Block {
  readonly layers: readonly ConvolutionLayer[];
  /** Whether the input is added to the output. */
  readonly residual: boolean;
}

/** Epsilon of the batch normalisations: `batch_norm_epsilon=1e-3`. */
export const batchNormEpsilon = 1e-3;

/** Arguments of `blocks_args`: repeats, kernel, stride, expansion, input and output channels. */
const stages = [
  [1, 3, 1, 1, 32, 16],
  [2, 3, 2, 6, 16, 24],
  [2, 5, 2, 6, 24, 40],
  [3, 3, 2, 6, 40, 80],
  [3, 5, 1, 6, 80, 112],
  [4, 5, 2, 6, 112, 192],
  [1, 3, 1, 6, 192, 320],
] as const;
const [channels, stemWidth, headInput] = [3, 32, 320];

const pointwise = { kernel: 1, stride: 1, depthwise: false } as const;

const stem: ConvolutionLayer = {
  ...{ name: "_conv_stem", norm: "_bn0", from: channels, to: stemWidth },
  ...{ kernel: 3, stride: 2, depthwise: false, active: true },
};

function headOf(width: number): ConvolutionLayer {
  return {
    ...pointwise,
    name: "_conv_head",
    norm: "_bn1",
    from: headInput,
    to: width,
    active: true,
  };
}

const blocks: readonly Block[] = stages
  .flatMap(([repeats, kernel, stride, expansion, from, to]) =>
    Array.from({ length: repeats }, (_, repeat) => ({
      ...{ kernel, expansion, to },
      stride: repeat === 0 ? stride : 1,
      from: repeat === 0 ? from : to,
    })),
  )
  .map(({ kernel, stride, expansion, from, to }, index) => {
    const name = `_blocks.${index}`;
    const wide = from * expansion;
    const expand: ConvolutionLayer = {
      ...{ ...pointwise, name: `${name}._expand_conv`, norm: `${name}._bn0` },
      ...{ from, to: wide, active: true },
    };
    const depthwise: ConvolutionLayer = {
      ...{ name: `${name}._depthwise_conv`, norm: `${name}._bn1`, from: wide, to: wide },
      ...{ kernel, stride, depthwise: true, active: true },
    };
    const project: ConvolutionLayer = {
      ...{ ...pointwise, name: `${name}._project_conv`, norm: `${name}._bn2` },
      ...{ from: wide, to, active: false },
    };
    const layers = expansion === 1 ? [depthwise, project] : [expand, depthwise, project];
    return { layers, residual: stride === 1 && from === to };
  });

/** All convolutions, in the order of the graph. */
export function convolutionLayers(spec: ModelSpec): readonly ConvolutionLayer[] {
  return [stem, ...blocks.flatMap(({ layers }) => layers), headOf(spec.embedding.width)];
}

/** Dimensions of the kernels of a convolution: `[to, from per group, side, side]`. */
export function kernelDims({ from, to, kernel, depthwise }: ConvolutionLayer): readonly number[] {
  return [to, depthwise ? 1 : from, kernel, kernel];
}

/** Returns the graph of EfficientNet-Lite0 with the given weights: `<name>.weight` and `<name>.bias` of each convolution. */
export function efficientNetLite0(spec: ModelSpec, weights: TowerWeights): OnnxModel {
  const { input, output } = imageTowerOf(spec);
  const builder = new EfficientNetBuilder(weights);
  const planes = input.layout === "nchw" ? input.tensor : builder.planes(input.tensor);
  const { height, width } = input.size;
  const start = builder.convolution(stem, { value: planes, height, width });
  const features = blocks.reduce((stream, block) => builder.block(block, stream), start);
  const last = builder.convolution(headOf(spec.embedding.width), features);
  builder.pooled(output, last.value, spec.embedding.normalisedBy === "model");
  return {
    producer: "clipstack",
    opset,
    irVersion: 8,
    graphName: "efficientnet_lite0",
    inputs: [{ name: input.tensor, dims: ["batch", ...normalisedImage(imageTowerOf(spec)).dims] }],
    outputs: [{ name: output, dims: ["batch", spec.embedding.width] }],
    nodes: builder.nodes,
    initializers: builder.initializers,
  };
}

/** Value of the graph and the size of its planes. */
interface Planes {
  readonly value: string;
  readonly height: number;
  readonly width: number;
}

class EfficientNetBuilder extends GraphBuilder {
  readonly #weights: TowerWeights;

  constructor(weights: TowerWeights) {
    super();
    this.#weights = weights;
  }

  planes(input: string): string {
    return this.transpose("planes", input, [0, 3, 1, 2]);
  }

  convolution(layer: ConvolutionLayer, { value, height, width }: Planes): Planes {
    const { name, to, kernel, stride, depthwise, active } = layer;
    const dims = kernelDims(layer);
    const [, perGroup = 1] = dims;
    // He initialisation, for which ReLU keeps the variance
    const deviation = Math.sqrt(2 / (perGroup * kernel * kernel));
    const parameter = (part: string, partDims: readonly number[], initial: number) =>
      this.initializer({
        ...{ name: `${name}.${part}`, dataType: "FLOAT", dims: partDims },
        data: () => this.#weights(`${name}.${part}`, partDims, { deviation: initial }),
      });
    const inputs = [
      value,
      parameter("weight", dims, deviation),
      parameter("bias", [to], biasDeviation),
    ];
    const [rows, columns] = [samePadding(height, layer), samePadding(width, layer)];
    const convolved = this.node("Conv", name, inputs, {
      kernel_shape: [kernel, kernel],
      strides: [stride, stride],
      pads: [rows.before, columns.before, rows.after, columns.after],
      group: depthwise ? to : 1,
    });
    const size = { height: Math.ceil(height / stride), width: Math.ceil(width / stride) };
    if (!active) return { value: convolved, ...size };
    const bounds = [this.scalar("relu6.lowest", 0), this.scalar("relu6.highest", 6)];
    return { value: this.node("Clip", `${name}.active`, [convolved, ...bounds]), ...size };
  }

  block({ layers, residual }: Block, input: Planes): Planes {
    const output = layers.reduce((stream, layer) => this.convolution(layer, stream), input);
    if (!residual) return output;
    const value = this.node("Add", `${output.value}.residual`, [output.value, input.value]);
    return { ...output, value };
  }

  pooled(name: string, input: string, isUnit: boolean): void {
    const means = this.node("GlobalAveragePool", "pooled", [input]);
    const features = this.node("Flatten", isUnit ? "features" : name, [means], { axis: 1 });
    if (isUnit) this.unitLength(name, features);
  }
}

/** Standard deviation of the biases of an untrained model; with zero biases, embeddings of different images are nearly equal. */
const biasDeviation = 0.1;

function samePadding(
  side: number,
  { kernel, stride }: ConvolutionLayer,
): { readonly before: number; readonly after: number } {
  const total = Math.max((Math.ceil(side / stride) - 1) * stride + kernel - side, 0);
  const before = Math.floor(total / 2);
  return { before, after: total - before };
}
