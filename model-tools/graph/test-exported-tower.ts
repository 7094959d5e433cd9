import { normalPieces } from "../generate/random-weights.ts";
import {
  int64Initializer,
  type OnnxAttribute,
  type OnnxInitializer,
  type OnnxModel,
  type OnnxNode,
  scalarInitializer,
} from "../onnx/writer.ts";

/**
 * Small image tower for tests, in the style of PyTorch's exporter for open_clip below opset 17. It differs from the
 * generated model everywhere: tokens before images, an expanded and concatenated class token, decomposed normalisation,
 * transposed matrices in `Gemm`, query, key and value by `Split`, the scale on the query, bias first.
 */
export interface ExportedTowerOptions {
  /** @default "erf" */
  readonly activation?: "erf" | "sigmoid" | "tanh";
  /** Zero padding around the image in rows and columns; the convolution is then not a pure patch embedding. */
  readonly padding?: number;
  /**
   * Batch size declared in the file.
   *
   * @default "batch" - any number
   */
  readonly batch?: 1 | "batch";
  /** Normalises the embedding, as `encode_image(normalize=True)` does. */
  readonly unitLength?: boolean;
}

const [width, heads, layers, patchSide, outputs, imageSide] = [32, 4, 2, 32, 512, 224];
const grid = imageSide / patchSide;
const headWidth = width / heads;

export function exportedTower(options: ExportedTowerOptions = {}): OnnxModel {
  const { activation = "erf", padding = 0, batch: images = "batch", unitLength = false } = options;
  const nodes: OnnxNode[] = [];
  const initializers = new Map<string, OnnxInitializer>();
  const keep = (initializer: OnnxInitializer) => {
    initializers.set(initializer.name, initializer);
    return initializer.name;
  };
  const random = (name: string, dims: readonly number[], deviation: number) => {
    const count = dims.reduce((product, dim) => product * dim, 1);
    return keep({
      name,
      dataType: "FLOAT",
      dims,
      data: () => normalPieces(9, name, count, deviation),
    });
  };
  const scalar = (value: number) => keep(scalarInitializer(`scalar.${value}`, value));
  const integers = (...values: number[]) =>
    keep(int64Initializer(`ints.${values.join("_")}`, values));
  const node = (
    op: string,
    inputs: readonly string[],
    attributes?: Record<string, OnnxAttribute>,
    output = `${op}_${nodes.length}`,
    others: readonly string[] = [],
  ): string => {
    nodes.push({ name: output, op, inputs, outputs: [output, ...others], attributes });
    return output;
  };
  const transpose = (value: string, ...perm: number[]) => node("Transpose", [value], { perm });

  const norm = (name: string, x: string): string => {
    const centred = node("Sub", [x, node("ReduceMean", [x], { axes: [-1] })]);
    const variance = node("ReduceMean", [node("Pow", [centred, scalar(2)])], { axes: [-1] });
    const divided = node("Div", [centred, node("Sqrt", [node("Add", [variance, scalar(1e-5)])])]);
    const gained = node("Mul", [divided, random(`${name}.weight`, [width], 1)]);
    return node("Add", [gained, random(`${name}.bias`, [width], 0.1)]);
  };
  const linear = (name: string, x: string, from: number, to: number): string =>
    node("Add", [
      random(`${name}.bias`, [to], 0.1),
      node("MatMul", [x, random(`${name}.weight`, [from, to], 1.5 / Math.sqrt(from))]),
    ]);
  const active = (x: string): string => {
    if (activation === "sigmoid") {
      return node("Mul", [x, node("Sigmoid", [node("Mul", [scalar(1.702), x])])]);
    }
    const op = activation === "erf" ? "Erf" : "Tanh";
    const gate = node("Add", [node(op, [node("Div", [x, scalar(Math.SQRT2)])]), scalar(1)]);
    return node("Mul", [node("Mul", [x, scalar(0.5)]), gate]);
  };

  const block = (name: string, x: string): string => {
    // [tokens, images, width]
    const normed = transpose(norm(`${name}.ln_1`, x), 1, 0, 2);
    const projected = linear(`${name}.in_proj`, normed, width, 3 * width);
    const [query, key, value] = ["q", "k", "v"].map((part) => `${name}.${part}`) as [
      string,
      string,
      string,
    ];
    node("Split", [projected, integers(width, width, width)], { axis: 2 }, query, [key, value]);
    // [images, heads, tokens, width of a head]
    const byHead = (part: string) =>
      transpose(node("Reshape", [part, integers(0, 0, heads, headWidth)]), 1, 2, 0, 3);
    const scaled = node("Mul", [byHead(query), scalar(1 / Math.sqrt(headWidth))]);
    const scores = node("MatMul", [scaled, transpose(byHead(key), 0, 1, 3, 2)]);
    const mixed = node("MatMul", [node("Softmax", [scores], { axis: -1 }), byHead(value)]);
    const rows = node("Reshape", [transpose(mixed, 0, 2, 1, 3), integers(-1, width)]);
    const out = node(
      "Gemm",
      [
        rows,
        random(`${name}.out_proj.weight`, [width, width], 0.3),
        random(`${name}.out_proj.bias`, [width], 0.1),
      ],
      { transB: 1 },
    );
    const attended = node("Add", [x, node("Reshape", [out, integers(-1, grid ** 2 + 1, width)])]);
    const hidden = active(linear(`${name}.c_fc`, norm(`${name}.ln_2`, attended), width, 4 * width));
    return node("Add", [attended, linear(`${name}.c_proj`, hidden, 4 * width, width)]);
  };

  const patches = node(
    "Conv",
    [
      "image",
      random("conv1.weight", [width, 3, patchSide, patchSide], 4 / Math.sqrt(3 * patchSide ** 2)),
      random("conv1.bias", [width], 0.3),
    ],
    {
      kernel_shape: [patchSide, patchSide],
      strides: [patchSide, patchSide],
      pads: Array<number>(4).fill(padding),
      dilations: [1, 1],
      group: 1,
    },
  );
  const flat = transpose(node("Reshape", [patches, integers(0, width, -1)]), 0, 2, 1);
  const batch = node("Gather", [node("Shape", ["image"]), integers(0)], { axis: 0 });
  const shape = node("Concat", [batch, integers(1), integers(width)], { axis: 0 });
  const token = node("Expand", [random("class_embedding", [1, 1, width], 0.5), shape]);
  const sequence = node("Add", [
    node("Concat", [token, flat], { axis: 1 }),
    random("positional_embedding", [grid ** 2 + 1, width], 0.5),
  ]);
  let x = norm("ln_pre", sequence);
  for (let layer = 0; layer < layers; layer++) x = block(`resblocks.${layer}`, x);
  const classToken = node("Gather", [norm("ln_post", x), keep(zero)], { axis: 1 });
  const projected = node(
    "MatMul",
    [classToken, random("proj", [width, outputs], 1 / Math.sqrt(width))],
    undefined,
    unitLength ? "projected" : "embedding",
  );
  if (unitLength) {
    const length = node("ReduceL2", [projected], { axes: [-1], keepdims: 1 });
    const bounded = node("Clip", [length, scalar(1e-12)]);
    const repeated = node("Expand", [bounded, node("Shape", [projected])]);
    node("Div", [projected, repeated], undefined, "embedding");
  }

  return {
    producer: "pytorch",
    opset: 14,
    irVersion: 7,
    graphName: "main_graph",
    inputs: [{ name: "image", dims: [images, 3, imageSide, imageSide] }],
    outputs: [{ name: "embedding", dims: [images, outputs] }],
    nodes,
    initializers: [...initializers.values()],
  };
}

/** Scalar index, which removes the axis. */
const zero: OnnxInitializer = {
  name: "zero",
  dataType: "INT64",
  dims: [],
  data: () => [new Uint8Array(8)],
};
