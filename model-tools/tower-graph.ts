import {
  clipNormalisation,
  openclipVitB32,
  openclipVitB32U8,
} from "../contract/model-signature.ts";
import { type OnnxTensor, readFloats } from "./onnx-reader.ts";
import {
  int64Initializer,
  type OnnxAttribute,
  type OnnxInitializer,
  type OnnxModel,
  type OnnxNode,
} from "./onnx-writer.ts";
import {
  matrixDims,
  type ProjectionColumns,
  type Tower,
  type TowerLinear,
  type TowerNorm,
} from "./recognise-tower.ts";

/** Operator set of the graphs: the first with LayerNormalization. */
const opset = 17;

const [{ name: inputName, dims: inputDims }] = openclipVitB32U8.inputs;
const [{ name: outputName, dims: outputDims }] = openclipVitB32.outputs;

/**
 * The graph that computes a tower from 8-bit pixels with the least work, with ONNX's own operators: the pixel normalisation is in the weights
 * of the patches, which are a matrix product, and the last block computes queries, MLP and `ln_post` of the class
 * token only, without keys and values of the other tokens. Weights are read from the tower's file when they are written.
 *
 * The tokens of all images are the rows of one matrix, so that a bias is added where its product is computed (`Gemm`); keys and
 * values have no biases. A key's adds the same to all scores of a query, which softmax ignores; a value's is added to
 * every mix, whose weights have the sum 1, so it is part of the output's bias: `b + b_value · W`.
 *
 * @param heads - Number of attention heads: one of `tower.heads`.
 */
export function towerGraph(tower: Tower, heads: number): OnnxModel {
  const { width, patchSide, imageSide, blocks } = tower;
  const grid = imageSide / patchSide;
  const tokens = grid * grid + 1;
  const headWidth = width / heads;
  const patchValues = patchSide * patchSide * 3;

  const nodes: OnnxNode[] = [];
  const initializers = new Map<string, OnnxInitializer>();

  const node = (
    op: string,
    name: string,
    inputs: readonly string[],
    attributes?: Record<string, OnnxAttribute>,
  ): string => {
    nodes.push({ name, op, inputs, outputs: [name], attributes });
    return name;
  };

  const add = (initializer: OnnxInitializer): string => {
    initializers.set(initializer.name, initializer);
    return initializer.name;
  };
  const integers = (name: string, values: readonly number[]) => add(int64Initializer(name, values));
  const floats = (name: string, dims: readonly number[], values: () => Float32Array): string =>
    add({ name, dataType: "FLOAT", dims, data: () => [bytesOf(values())] });
  const vector = (name: string, tensor: OnnxTensor) =>
    floats(name, [elements(tensor)], () => readFloats(tensor));

  const product = (name: string, input: string, matrix: Matrix, bias?: string): string => {
    const { from, to, pieces } = matrix;
    const weight = add({
      name: `${name}.weight`,
      dataType: "FLOAT",
      dims: [from, to],
      data: pieces,
    });
    return bias === undefined
      ? node("MatMul", name, [input, weight])
      : node("Gemm", name, [input, weight, bias]);
  };
  const linear = (name: string, input: string, part: ProjectionColumns, factor = 1): string =>
    product(name, input, matrixOf(part, factor), biasOf(name, part, factor));
  const biasOf = (name: string, part: ProjectionColumns, factor = 1): string | undefined => {
    const { bias } = part.linear;
    if (bias === undefined) return undefined;
    const { to } = matrixOf(part);
    return floats(`${name}.bias`, [to], () =>
      readFloats(bias)
        .subarray(part.part * to, (part.part + 1) * to)
        .map((value) => value * factor),
    );
  };
  const norm = (name: string, input: string, { gain, bias, epsilon }: TowerNorm): string =>
    node(
      "LayerNormalization",
      name,
      [input, vector(`${name}.gain`, gain), vector(`${name}.bias`, bias)],
      { axis: -1, epsilon: { float: epsilon } },
    );
  const reshape = (name: string, input: string, shape: readonly number[]): string =>
    node("Reshape", name, [input, integers(`shape.${shape.join("x")}`, shape)]);
  /** The tokens of each image, of the rows of all. */
  const byImage = (input: string): string =>
    reshape(`${input}.by_image`, input, [-1, tokens, width]);
  const asRows = (input: string): string => reshape(`${input}.rows`, input, [-1, width]);
  /** First of the tokens of each image, as rows. */
  const firstToken = (name: string, tokensOf: string): string =>
    asRows(
      node("Slice", name, [
        tokensOf,
        integers("first_token.start", [0]),
        integers("first_token.end", [1]),
        integers("first_token.axis", [1]),
      ]),
    );

  /** Of the scores; it is in the weights of the queries. */
  const scale = 1 / Math.sqrt(headWidth);

  /** The mixed values of all tokens. */
  const attention = (name: string, block: Tower["blocks"][number], normed: string): string => {
    const byHead = (projected: string, perm: readonly number[]) =>
      node(
        "Transpose",
        `${projected}.by_head`,
        [reshape(`${projected}.heads`, projected, [-1, tokens, heads, headWidth])],
        { perm },
      );
    const query = linear(`${name}.query`, normed, block.query, scale);
    const key = product(`${name}.key`, normed, matrixOf(block.key));
    const value = product(`${name}.value`, normed, matrixOf(block.value));
    const scores = node("MatMul", `${name}.scores`, [
      byHead(query, [0, 2, 1, 3]),
      byHead(key, [0, 2, 3, 1]),
    ]);
    const mixed = node("MatMul", `${name}.mixed`, [
      node("Softmax", `${name}.weights`, [scores], { axis: -1 }),
      byHead(value, [0, 2, 1, 3]),
    ]);
    return asRows(node("Transpose", `${name}.by_token`, [mixed], { perm: [0, 2, 1, 3] }));
  };

  /**
   * The mixed values of the class token, without the keys and values of all tokens: `q · (W_k x) = (q · W_k) · x`, and the mix of
   * `W_v x` is `W_v` times the mix of `x`. That is one row for each head where there was one for each token.
   */
  const classAttention = (name: string, block: Tower["blocks"][number], normed: string): string => {
    const tokensOf = byImage(normed);
    const classToken = firstToken(`${name}.class_token`, tokensOf);
    const swap = (from: string, perm: readonly number[]) =>
      node("Transpose", `${from}.swapped`, [from], { perm });
    /** `[images, heads, …]` to and from `[heads, images, …]`, so that each head's rows are one matrix. */
    const swapHeads = (from: string) => swap(from, [1, 0, 2]);
    const byHead = (part: "key" | "value", dims: readonly number[], values: () => Float32Array) =>
      floats(`${name}.${part}.by_head`, dims, values);
    const query = reshape(
      `${name}.query.heads`,
      linear(`${name}.query`, classToken, block.query, scale),
      [-1, heads, headWidth],
    );
    const asked = node("MatMul", `${name}.asked`, [
      swapHeads(query),
      byHead("key", [heads, headWidth, width], () => columnsByHead(block.key, heads, "rows")),
    ]);
    const scores = node("MatMul", `${name}.scores`, [swapHeads(asked), swap(tokensOf, [0, 2, 1])]);
    const mix = node("MatMul", `${name}.mix`, [
      node("Softmax", `${name}.weights`, [scores], { axis: -1 }),
      tokensOf,
    ]);
    const mixed = node("MatMul", `${name}.mixed`, [
      swapHeads(mix),
      byHead("value", [heads, width, headWidth], () =>
        columnsByHead(block.value, heads, "columns"),
      ),
    ]);
    return asRows(swapHeads(mixed));
  };

  const attentionOutput = (name: string, mixed: string, block: Tower["blocks"][number]): string => {
    const part = allColumns(block.output);
    const values = block.value.linear.bias;
    if (values === undefined) return linear(name, mixed, part);
    const bias = floats(`${name}.bias`, [width], () => mixedBias(block, values));
    return product(name, mixed, matrixOf(part), bias);
  };

  const scalar = (name: string, value: number) => floats(name, [], () => Float32Array.of(value));
  const activation = (name: string, input: string, kind: "gelu" | "quick-gelu"): string => {
    if (kind === "quick-gelu") {
      const steep = node("Mul", `${name}.steep`, [input, scalar("quick_gelu.slope", 1.702)]);
      return node("Mul", name, [input, node("Sigmoid", `${name}.gate`, [steep])]);
    }
    const divided = node("Div", `${name}.div`, [input, scalar("gelu.sqrt2", Math.SQRT2)]);
    const gate = node("Add", `${name}.gate`, [
      node("Erf", `${name}.erf`, [divided]),
      scalar("gelu.one", 1),
    ]);
    const gated = node("Mul", `${name}.gated`, [input, gate]);
    return node("Mul", name, [gated, scalar("gelu.half", 0.5)]);
  };

  // A patch is 32 rows of 96 bytes: moved as bytes, then multiplied by the convolution's weights.
  const cut = (pixels: string): string =>
    reshape(
      "patches.flat",
      node(
        "Transpose",
        "patches.rows",
        [reshape("patches.split", pixels, [0, grid, patchSide, grid, 3 * patchSide])],
        { perm: [0, 1, 3, 2, 4] },
      ),
      [0, grid * grid, patchValues],
    );
  // not every execution provider moves bytes: they are floats first
  const patchInput = cut(node("Cast", "pixels", [inputName], { to: 1 }));
  const { matrix: patchMatrix, positions } = foldPatches(tower);
  const patches = node("MatMul", "patches", [
    patchInput,
    add({
      name: "patches.weight",
      dataType: "FLOAT",
      dims: [patchValues, width],
      data: patchMatrix,
    }),
  ]);
  // a zero row makes room for the class token without asking for the batch size
  let stream = node("Add", "embedded", [
    node("Pad", "patches.padded", [patches, integers("patches.pads", [0, 1, 0, 0, 0, 0])]),
    floats("positions", [tokens, width], positions),
  ]);
  if (tower.firstNorm !== undefined) stream = norm("ln_pre", stream, tower.firstNorm);
  stream = asRows(stream);

  for (const [index, block] of blocks.entries()) {
    const name = `blocks.${index}`;
    const isLast = index === blocks.length - 1;
    const normed = norm(`${name}.ln_1`, stream, block.attentionNorm);
    if (isLast) stream = firstToken(`${name}.class_stream`, byImage(stream));
    const mixed = isLast
      ? classAttention(`${name}.attn`, block, normed)
      : attention(`${name}.attn`, block, normed);
    const attended = node("Add", `${name}.attended`, [
      stream,
      attentionOutput(`${name}.attn.out`, mixed, block),
    ]);
    const hidden = linear(
      `${name}.mlp.hidden`,
      norm(`${name}.ln_2`, attended, block.mlpNorm),
      allColumns(block.hidden),
    );
    const active = activation(`${name}.mlp.active`, hidden, block.activation);
    stream = node("Add", `${name}.out`, [
      attended,
      linear(`${name}.mlp.out`, active, allColumns(block.projection)),
    ]);
  }

  const classToken = norm("ln_post", reshape("class_token", stream, [0, width]), tower.lastNorm);
  linear(outputName, classToken, allColumns(tower.projection));

  return {
    producer: "clipstack",
    opset,
    irVersion: 8,
    graphName: "clip_image_tower_u8",
    inputs: [{ name: inputName, dataType: "UINT8", dims: ["batch", ...inputDims] }],
    outputs: [{ name: outputName, dims: ["batch", ...outputDims] }],
    nodes,
    initializers: [...initializers.values()],
  };
}

/** A matrix as it is written: `[from, to]`, row-major. */
export interface Matrix {
  readonly from: number;
  readonly to: number;
  /** The values as bytes. */
  readonly pieces: () => Iterable<Uint8Array>;
}

/** A part of a projection, its values times a factor. */
export function matrixOf({ linear: { weight }, part, of }: ProjectionColumns, factor = 1): Matrix {
  const [from, all] = matrixDims(weight);
  const to = all / of;
  const { tensor, transposed } = weight;
  const { bytes } = tensor;
  if (!transposed && of === 1 && factor === 1 && bytes !== undefined) {
    return { from, to, pieces: () => [bytes] };
  }
  return {
    from,
    to,
    pieces: () => {
      const values = readFloats(tensor);
      const matrix = new Float32Array(from * to);
      const [rowStep, columnStep] = transposed ? [1, from] : [all, 1];
      for (let row = 0; row < from; row++) {
        let at = row * rowStep + part * to * columnStep;
        for (let column = 0; column < to; column++, at += columnStep) {
          matrix[row * to + column] = values[at]! * factor;
        }
      }
      return [bytesOf(matrix)];
    },
  };
}

/**
 * The columns of each head of a projection, one head after the other: as `columns` of `[heads, from, width of a head]`, or turned into
 * `rows`, `[heads, width of a head, from]`.
 */
function columnsByHead(
  part: ProjectionColumns,
  heads: number,
  as: "rows" | "columns",
): Float32Array {
  const matrix = matrixOf(part);
  const { from, to } = matrix;
  const values = floatsOf(matrix);
  const headWidth = to / heads;
  const [rowStep, columnStep] = as === "columns" ? [headWidth, 1] : [1, from];
  const turned = new Float32Array(from * to);
  for (let row = 0; row < from; row++) {
    for (let column = 0; column < to; column++) {
      const inHead = column % headWidth;
      const head = (column - inHead) * from;
      turned[head + row * rowStep + inHead * columnStep] = values[row * to + column]!;
    }
  }
  return turned;
}

/** The values of a matrix, row-major. */
export function floatsOf({ from, to, pieces }: Matrix): Float32Array {
  const values = new Float32Array(from * to);
  const bytes = new Uint8Array(values.buffer);
  let filled = 0;
  for (const piece of pieces()) {
    bytes.set(piece, filled);
    filled += piece.length;
  }
  return values;
}

/** All columns of a projection. */
export function allColumns(linear: TowerLinear): ProjectionColumns {
  return { linear, part: 0, of: 1 };
}

/** The bias of an attention's output, with what the biases of its values add to it. Computed in float64. */
function mixedBias({ output, value }: Tower["blocks"][number], values: OnnxTensor): Float32Array {
  const matrix = matrixOf(allColumns(output));
  const { from, to } = matrix;
  const weights = floatsOf(matrix);
  const added = readFloats(values).subarray(value.part * from, (value.part + 1) * from);
  const sums = Float64Array.from(output.bias ? readFloats(output.bias) : new Float32Array(to));
  for (let row = 0; row < from; row++) {
    for (let column = 0; column < to; column++) {
      sums[column]! += added[row]! * weights[row * to + column]!;
    }
  }
  return Float32Array.from(sums);
}

/**
 * The convolution of normalised planes, `Σ w · (p / 255 − mean) / std + b`, as a matrix of pixels, `Σ w / (255 · std) · p`,
 * and what is left over, `b − Σ w · mean / std`, as a part of the positions. Computed in float64.
 */
function foldPatches({ patches, classToken, positions, width, patchSide }: Tower) {
  const area = patchSide * patchSide;
  const { mean, std } = clipNormalisation;
  return {
    *matrix(): Generator<Uint8Array> {
      const weight = readFloats(patches.weight);
      // one row of the patch at a time
      const rows = new Float32Array(patchSide * 3 * width);
      for (let y = 0; y < patchSide; y++) {
        for (let x = 0; x < patchSide; x++) {
          for (let channel = 0; channel < 3; channel++) {
            const scale = 1 / (255 * std[channel]!);
            const to = (x * 3 + channel) * width;
            for (let out = 0; out < width; out++) {
              const value = weight[(out * 3 + channel) * area + y * patchSide + x]!;
              rows[to + out] = value * scale;
            }
          }
        }
        yield bytesOf(rows);
      }
    },
    positions(): Float32Array {
      const sums = readFloats(positions);
      const weight = readFloats(patches.weight);
      const bias = patches.bias && readFloats(patches.bias);
      for (let out = 0; out < width; out++) {
        let left = bias?.[out] ?? 0;
        for (let channel = 0; channel < 3; channel++) {
          let sum = 0;
          const start = (out * 3 + channel) * area;
          for (let i = start; i < start + area; i++) sum += weight[i]!;
          left -= (sum * mean[channel]!) / std[channel]!;
        }
        for (let at = width + out; at < sums.length; at += width) sums[at] = sums[at]! + left;
      }
      const token = classToken && readFloats(classToken);
      for (let i = 0; token !== undefined && i < width; i++) sums[i] = sums[i]! + token[i]!;
      return sums;
    },
  };
}

function bytesOf(values: Float32Array): Uint8Array {
  return new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
}

function elements({ dims }: OnnxTensor): number {
  return dims.reduce((product, dim) => product * dim, 1);
}
