import { openclipVitB32 } from "../contract/model-signature.ts";
import { type Agreement, compareModels, syntheticImages } from "./compare-models.ts";
import {
  type OnnxFile,
  type OnnxTensor,
  readFloats,
  readOnnx,
  tensorTypes,
} from "./onnx-reader.ts";
import { type OnnxModel, onnxChunks } from "./onnx-writer.ts";
import type { ModelFileDraft } from "./publish-file.ts";
import { recogniseTower } from "./recognise-tower.ts";
import { embedWith } from "./run-model.ts";
import { matrixDims, type Tower, type TowerLinear } from "./tower.ts";
import { allColumns, bytesOf, floatsOf, matrixOf } from "./tower-weights.ts";
import { imageTower } from "./vision-transformer.ts";

/** Result of converting a published file to the standard file. */
export interface StandardModel {
  /** Differences from the published file. */
  readonly changes: readonly string[];
  readonly opset: number;
  /** Agreement of the normalised embeddings. */
  readonly agreement: Agreement & { readonly images: number };
}

/** Tolerates another order of additions and the rounding of a vector's length in float32. */
const limits = { minCosine: 0.999_999, maxDifference: 1e-4 } as const;
const imageCount = 4;

/** Returns whether a file has the signature of `openclip_vit_b32`. */
export function isStandard(file: OnnxFile): boolean {
  const fits = (
    values: OnnxFile["inputs"],
    [spec]: (typeof openclipVitB32)["inputs" | "outputs"],
  ): boolean => {
    const [value, ...others] = values;
    return (
      others.length === 0 &&
      value?.name === spec.name &&
      value.dataType === tensorTypes.float &&
      typeof value.dims[0] === "string" &&
      value.dims.slice(1).join() === spec.dims.join()
    );
  };
  return fits(file.inputs, openclipVitB32.inputs) && fits(file.outputs, openclipVitB32.outputs);
}

/**
 * Writes the weights of a published image tower into the graph of `model generate`: input `image`, output `embedding` without
 * normalisation, dynamic batch.
 *
 * @param path - ONNX file of any exporter, with any tensor names and batch size.
 * @throws {Error} with one line if the tower is not recognised or the embeddings differ
 */
export async function writeStandardModel(
  path: string,
  draft: ModelFileDraft,
): Promise<StandardModel> {
  const file = readOnnx(path);
  const found = recogniseTower(file);
  if ("mismatch" in found) throw new Error(`its image tower is not recognised: ${found.mismatch}`);
  const { tower } = found;
  const images = syntheticImages(imageCount);
  // a published file may have batch size 1
  const expected = (await embedWith(path, images, 1)).map(unitLength);
  let last = "no number of attention heads fits";
  for (const heads of tower.heads) {
    const model = standardGraph(tower, heads);
    await draft.write(onnxChunks(model));
    const got = (await embedWith(draft.path, images, 1)).map(unitLength);
    const agreement = { images: images.length, ...compareModels(expected, got) };
    const { minCosine, maxDifference } = agreement;
    if (minCosine >= limits.minCosine && maxDifference <= limits.maxDifference) {
      return { changes: changesOf(file, tower), opset: model.opset, agreement };
    }
    last = `cosine ${minCosine}, difference ${maxDifference}`;
  }
  throw new Error(`its weights in the standard graph return different embeddings: ${last}`);
}

function changesOf({ inputs, outputs }: OnnxFile, { unitLength }: Tower): readonly string[] {
  const [input] = inputs;
  const [output] = outputs;
  const changes: string[] = [];
  if (typeof input?.dims[0] === "number") changes.push("dynamic batch");
  if (unitLength) changes.push("not normalised");
  if (input?.name !== "image" || output?.name !== "embedding") changes.push("names");
  return changes.length > 0 ? changes : ["graph"];
}

/** Returns the vector divided by its L2 norm. */
export function unitLength(vector: Float32Array): Float32Array {
  const length = Math.sqrt(vector.reduce((sum, value) => sum + value * value, 0));
  return length > 0 ? vector.map((value) => value / length) : vector;
}

/** Largest difference of an epsilon from the graph's, 1e-5. */
const epsilonTolerance = 1e-9;

/**
 * Returns the graph of the generated model with the weights of a tower.
 *
 * @param heads - One of `tower.heads`.
 * @throws {Error} if the tower computes something else
 */
function standardGraph(tower: Tower, heads: number): OnnxModel {
  const { width, blocks, firstNorm, patchSide, imageSide } = tower;
  const norms = [firstNorm, tower.lastNorm, ...blocks.flatMap((b) => [b.attentionNorm, b.mlpNorm])];
  if (firstNorm === undefined)
    throw new Error("it must have a normalisation before its first block");
  if (norms.some((norm) => Math.abs(norm!.epsilon - 1e-5) > epsilonTolerance)) {
    throw new Error("the epsilon of its normalisations must be 1e-5");
  }
  if (blocks.some(({ activation }) => activation !== "gelu")) {
    throw new Error("its activation must be GELU, unlike in OpenAI's weights");
  }
  if (tower.projection.bias !== undefined) throw new Error("its last projection must have no bias");
  const [, mlpWidth] = matrixDims(blocks[0]!.hidden.weight);
  const [, outputs] = matrixDims(tower.projection.weight);
  const tensors = new Map<string, () => Float32Array>();
  const vector = (name: string, tensor: OnnxTensor) => tensors.set(name, () => readFloats(tensor));
  const norm = (name: string, { gain, bias }: Tower["lastNorm"]) => {
    vector(`${name}.weight`, gain);
    vector(`${name}.bias`, bias);
  };
  const linear = (name: string, value: TowerLinear) => {
    tensors.set(`${name}.weight`, () => floatsOf(matrixOf(allColumns(value))));
    const [, to] = matrixDims(value.weight);
    tensors.set(`${name}.bias`, () => (value.bias ? readFloats(value.bias) : new Float32Array(to)));
  };

  vector("conv1.weight", tower.patches.weight);
  tensors.set("class_and_positional_embedding", () => embeddingOf(tower));
  norm("ln_pre", firstNorm);
  for (const [index, block] of blocks.entries()) {
    const name = `resblocks.${index}`;
    norm(`${name}.ln_1`, block.attentionNorm);
    tensors.set(`${name}.attn.in_proj.weight`, () => projectionOf(block, width));
    tensors.set(`${name}.attn.in_proj.bias`, () => projectionBiasOf(block, width));
    linear(`${name}.attn.out_proj`, block.output);
    norm(`${name}.ln_2`, block.mlpNorm);
    linear(`${name}.mlp.c_fc`, block.hidden);
    linear(`${name}.mlp.c_proj`, block.projection);
  }
  norm("ln_post", tower.lastNorm);
  tensors.set("proj", () => floatsOf(matrixOf(allColumns(tower.projection))));

  const sizes = { imageSide, patchSide, width, layers: blocks.length, heads, mlpWidth, outputs };
  return imageTower(sizes, (name) => {
    const values = tensors.get(name)?.();
    if (values === undefined) throw new Error(`the tower has no '${name}'`);
    return [bytesOf(values)];
  });
}

/** Positions: the first includes the class token, the others the bias of the patches. */
function embeddingOf({ positions, classToken, patches, width }: Tower): Float32Array {
  const values = readFloats(positions);
  const token = classToken && readFloats(classToken);
  const bias = patches.bias && readFloats(patches.bias);
  return values.map((value, index) => {
    const more = index < width ? token?.[index] : bias?.[index % width];
    return value + (more ?? 0);
  });
}

/** Queries, keys and values side by side: `[width, 3 · width]`. */
function projectionOf(block: Tower["blocks"][number], width: number): Float32Array {
  const all = new Float32Array(width * 3 * width);
  for (const [index, part] of [block.query, block.key, block.value].entries()) {
    const values = floatsOf(matrixOf(part));
    for (let row = 0; row < width; row++) {
      all.set(values.subarray(row * width, (row + 1) * width), (row * 3 + index) * width);
    }
  }
  return all;
}

function projectionBiasOf(block: Tower["blocks"][number], width: number): Float32Array {
  const all = new Float32Array(3 * width);
  for (const [index, { linear, part }] of [block.query, block.key, block.value].entries()) {
    if (linear.bias === undefined) continue;
    all.set(readFloats(linear.bias).subarray(part * width, (part + 1) * width), index * width);
  }
  return all;
}
