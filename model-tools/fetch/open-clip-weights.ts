import type { Modality, ModelSpec } from "../../contract/model-spec.ts";
import { textTower } from "../generate/text-transformer.ts";
import { imageTower } from "../generate/vision-transformer.ts";
import { bytesOf } from "../graph/tower-weights.ts";
import type { OnnxModel } from "../onnx/writer.ts";
import type { Safetensors } from "./safetensors.ts";

/** Width of an attention head in open_clip's transformers: `head_width: int = 64`. */
const headWidth = 64;

/**
 * Returns a tower of a spec with the weights of open_clip's CLIP with a vision transformer.
 *
 * @param file - Weights of the complete model: `visual.conv1.weight`, `token_embedding.weight`, …; the activation is GELU.
 * @throws {Error} with one line if a tensor is missing or has another shape
 */
export function openClipTower(spec: ModelSpec, modality: Modality, file: Safetensors): OnnxModel {
  return modality === "image" ? openClipImageTower(spec, file) : openClipTextTower(spec, file);
}

function openClipImageTower(spec: ModelSpec, file: Safetensors): OnnxModel {
  const kernels = file.shape("visual.conv1.weight");
  if (kernels?.length !== 4) {
    throw new Error(
      "the weights have no tensor 'visual.conv1.weight', so they contain no OpenCLIP vision transformer",
    );
  }
  const [width, , patchSide] = kernels as [number, number, number, number];
  const blocks = blockSizes(file, "visual.transformer", width);
  const sizes = { family: "open-clip", patchSide, width, ...blocks } as const;
  return imageTower(spec, sizes, (name, dims) => [
    bytesOf(
      name === "class_and_positional_embedding"
        ? imagePositions(file, dims)
        : valuesOf(file, "visual.", name, dims),
    ),
  ]);
}

function openClipTextTower(spec: ModelSpec, file: Safetensors): OnnxModel {
  const [, width] = file.shape("token_embedding.weight") ?? [];
  if (width === undefined) {
    throw new Error(
      "the weights have no tensor 'token_embedding.weight', so they contain no OpenCLIP text tower",
    );
  }
  const sizes = { family: "clip", width, ...blockSizes(file, "transformer", width) } as const;
  return textTower(spec, sizes, (name, dims) => [
    bytesOf(valuesOf(file, "", name === "token_embedding" ? `${name}.weight` : name, dims)),
  ]);
}

function blockSizes(file: Safetensors, transformer: string, width: number) {
  const block = (index: number) => `${transformer}.resblocks.${index}`;
  let layers = 0;
  while (file.shape(`${block(layers)}.ln_1.weight`) !== undefined) layers++;
  const [mlpWidth = 0] = file.shape(`${block(0)}.mlp.c_fc.weight`) ?? [];
  return { layers, heads: width / headWidth, mlpWidth };
}

/** Tensor of the graph in the file. PyTorch stores the matrices of blocks as `[to, from]`, the graph as `[from, to]`. */
function valuesOf(
  file: Safetensors,
  prefix: string,
  name: string,
  dims: readonly number[],
): Float32Array {
  const source = `${prefix}${name.replace(/^resblocks/, "transformer.resblocks").replace(/in_proj\./, "in_proj_")}`;
  if (dims.length !== 2 || !name.startsWith("resblocks")) return file.floats(source, dims);
  const [from, to] = dims as [number, number];
  return transposed(file.floats(source, [to, from]), to, from);
}

/** Positions; the first includes the class token. */
function imagePositions(file: Safetensors, dims: readonly number[]): Float32Array {
  const positions = file.floats("visual.positional_embedding", dims);
  const token = file.floats("visual.class_embedding", dims.slice(1));
  return positions.map((value, index) => value + (token[index] ?? 0));
}

/** @param values - Matrix `[rows, columns]`. */
function transposed(values: Float32Array, rows: number, columns: number): Float32Array {
  const result = new Float32Array(values.length);
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      result[column * rows + row] = values[row * columns + column]!;
    }
  }
  return result;
}
