import {
  type OnnxFile,
  type OnnxFileNode,
  type OnnxTensor,
  readFloats,
  readIntegers,
  tensorTypes,
} from "./onnx-reader.ts";

/** A matrix of weights, used as `x · W` with `W` [from, to]. */
export interface TowerMatrix {
  readonly tensor: OnnxTensor;
  /** The file has it as [to, from]. */
  readonly transposed: boolean;
}

export interface TowerLinear {
  readonly weight: TowerMatrix;
  /** `[to]`. */
  readonly bias?: OnnxTensor;
}

export interface TowerNorm {
  readonly gain: OnnxTensor;
  readonly bias: OnnxTensor;
  readonly epsilon: number;
}

/** Columns of a projection: query, key and value may share one matrix. */
export interface ProjectionColumns {
  readonly linear: TowerLinear;
  /** Which of `of` equal parts of the columns. */
  readonly part: number;
  readonly of: 1 | 3;
}

export interface TowerBlock {
  readonly attentionNorm: TowerNorm;
  readonly query: ProjectionColumns;
  readonly key: ProjectionColumns;
  readonly value: ProjectionColumns;
  readonly output: TowerLinear;
  readonly mlpNorm: TowerNorm;
  readonly hidden: TowerLinear;
  readonly activation: "gelu" | "quick-gelu";
  readonly projection: TowerLinear;
}

/** A CLIP image tower, as its weights: what they are for, and not how the graph was written. */
export interface Tower {
  /** Convolution of non-overlapping square patches: `[width, 3, side, side]`. */
  readonly patches: { readonly weight: OnnxTensor; readonly bias?: OnnxTensor };
  /** `[width]` in any shape; `undefined` where it is part of `positions`. */
  readonly classToken?: OnnxTensor;
  /** `[1 + patches, width]`. */
  readonly positions: OnnxTensor;
  readonly firstNorm?: TowerNorm;
  readonly blocks: readonly TowerBlock[];
  readonly lastNorm: TowerNorm;
  readonly projection: TowerLinear;
  /** The embedding is divided by its length at the end. */
  readonly unitLength: boolean;
  readonly width: number;
  readonly patchSide: number;
  readonly imageSide: number;
  /** What the number of attention heads can be, the likeliest first: shapes may hide it. */
  readonly heads: readonly number[];
}

/** Why a graph is not recognised: it is not an error, another graph is simply another graph. */
class Unlike extends Error {}

/**
 * Find the parts of an image tower in a graph, whoever wrote it: the order of tokens and images, how query, key and value
 * are taken apart, fused or spelled-out normalisation and GELU do not matter. Reshapes and transpositions are believed to
 * do what an image tower needs, so what is built from the result must be compared with the original.
 */
export function recogniseTower(
  file: OnnxFile,
): { readonly tower: Tower } | { readonly unlike: string } {
  try {
    if (file.hasMore) throw new Unlike("the file has functions or sparse weights");
    return { tower: new Recogniser(file).tower() };
  } catch (error) {
    if (error instanceof Unlike) return { unlike: error.message };
    throw error;
  }
}

/** Operators that move values and do not change them. */
const layoutOps = new Set([
  "Identity",
  "Cast",
  "Reshape",
  "Flatten",
  "Transpose",
  "Squeeze",
  "Unsqueeze",
  "Dropout",
]);

class Recogniser {
  readonly #file: OnnxFile;
  readonly #producers: ReadonlyMap<string, OnnxFileNode>;

  constructor(file: OnnxFile) {
    this.#file = file;
    this.#producers = new Map(
      file.nodes.flatMap((node) => node.outputs.map((name) => [name, node] as const)),
    );
  }

  tower(): Tower {
    const [input] = this.#file.inputs;
    const [output] = this.#file.outputs;
    if (input === undefined || output === undefined || this.#file.inputs.length !== 1) {
      throw new Unlike("it has not one input and one output");
    }
    const { input: embedding, unitLength } = this.#unitLength(output.name);
    const projection = this.#linear(embedding);
    const { norm: lastNorm, stream } = this.#classTokenNorm(projection.input);

    const blocks: TowerBlock[] = [];
    const heads = new Set<number>();
    let value = stream;
    for (;;) {
      const found = this.#block(value);
      if (found === undefined) break;
      blocks.unshift(found.block);
      for (const candidate of found.heads) heads.add(candidate);
      value = found.input;
    }
    if (blocks.length === 0) throw new Unlike("no residual block ends at the class token");

    const first = this.#norm(value);
    const sequence = this.#sequence(first?.input ?? value, input.name);
    const width = sequence.patches.weight.dims[0] ?? 0;
    const imageSide = input.dims.at(-1);
    const patchSide = sequence.patches.weight.dims[2] ?? 0;
    const tokens = typeof imageSide === "number" ? (imageSide / patchSide) ** 2 + 1 : 0;
    if (typeof imageSide !== "number" || elements(sequence.positions) !== tokens * width) {
      throw new Unlike("its positions do not fit its patches");
    }
    return {
      ...sequence,
      firstNorm: first?.norm,
      blocks,
      lastNorm,
      projection: projection.linear,
      unitLength,
      width,
      patchSide,
      imageSide,
      heads: [...heads],
    };
  }

  /** `x / max(length of x, epsilon)`, where it is that. */
  #unitLength(value: string): { readonly input: string; readonly unitLength: boolean } {
    const division = this.#source(value);
    const [input, length] = division?.inputs ?? [];
    if (division?.op !== "Div" || input === undefined) return { input: value, unitLength: false };
    const repeated = this.#source(length!);
    const bounded = repeated?.op === "Expand" ? this.#source(repeated.inputs[0]!) : repeated;
    const isBounded = bounded?.op === "Clip" || bounded?.op === "Max";
    const norm = isBounded ? this.#source(bounded.inputs[0]!) : bounded;
    if (norm?.op !== "ReduceL2" || !this.#same(norm.inputs[0]!, input)) {
      throw new Unlike("its embedding is divided by something that is not its length");
    }
    return { input, unitLength: true };
  }

  /** `ln_post` of the class token: the token is chosen before or after it. */
  #classTokenNorm(value: string): { norm: TowerNorm; stream: string } {
    const chosen = this.#firstToken(value);
    const found = this.#norm(chosen ?? value);
    if (found === undefined) throw new Unlike("no normalisation before the last projection");
    const stream = chosen === undefined ? this.#firstToken(found.input) : found.input;
    if (stream === undefined) throw new Unlike("no choice of the class token");
    return { norm: found.norm, stream };
  }

  /** What the first token is taken of. */
  #firstToken(value: string): string | undefined {
    const node = this.#source(value);
    const [data, second, third] = node?.inputs ?? [];
    if (node?.op === "Gather") {
      const [index, ...others] = this.#integers(second) ?? [];
      return index === 0 && others.length === 0 ? data : undefined;
    }
    if (node?.op === "Slice") {
      const [start] = this.#integers(second) ?? [];
      const [end] = this.#integers(third) ?? [];
      return start === 0 && end === 1 ? data : undefined;
    }
    return undefined;
  }

  #block(
    value: string,
  ): { block: TowerBlock; input: string; heads: readonly number[] } | undefined {
    const mlp = this.#residual(value, (branch) => this.#mlp(branch));
    if (mlp === undefined) return undefined;
    const attention = this.#residual(mlp.stream, (branch) => this.#attention(branch));
    if (attention === undefined) throw new Unlike("an MLP without attention before it");
    const { heads, ...attentionParts } = attention.branch;
    return { block: { ...attentionParts, ...mlp.branch }, input: attention.stream, heads };
  }

  /** `stream + branch(norm(stream))`. */
  #residual<T extends { readonly normed: string }>(
    value: string,
    branchOf: (value: string) => T | undefined,
  ): { stream: string; branch: Omit<T, "normed"> } | undefined {
    const node = this.#source(value);
    if (node?.op !== "Add") return undefined;
    const [a, b] = node.inputs as [string, string];
    for (const [stream, branchValue] of [
      [a, b],
      [b, a],
    ] as const) {
      const branch = branchOf(branchValue);
      if (branch === undefined || this.#origin(branch.normed) !== this.#origin(stream)) continue;
      const { normed: _, ...parts } = branch;
      return { stream, branch: parts };
    }
    return undefined;
  }

  #mlp(value: string) {
    const projection = this.#tryLinear(value);
    const activation = projection && this.#activation(projection.input);
    const hidden = activation && this.#tryLinear(activation.input);
    const norm = hidden && this.#norm(hidden.input);
    if (norm === undefined) return undefined;
    return {
      normed: norm.input,
      mlpNorm: norm.norm,
      hidden: hidden!.linear,
      activation: activation!.kind,
      projection: projection!.linear,
    };
  }

  #activation(value: string): { kind: TowerBlock["activation"]; input: string } | undefined {
    const node = this.#source(value);
    if (node?.op === "Gelu" && (node.attributes.get("approximate")?.text ?? "none") === "none") {
      return { kind: "gelu", input: node.inputs[0]! };
    }
    if (node?.op !== "Mul") return undefined;
    const { constant, others } = this.#factors(value);
    if (others.length !== 2) return undefined;
    for (const [input, gate] of [others, [...others].reverse()] as [string, string][]) {
      const gateNode = this.#source(gate);
      if (gateNode?.op === "Sigmoid" && near(constant, 1)) {
        const inner = this.#factors(gateNode.inputs[0]!);
        const same = inner.others.length === 1 && this.#same(inner.others[0]!, input);
        if (same && near(inner.constant, 1.702)) return { kind: "quick-gelu", input };
      }
      if (gateNode?.op === "Add" && near(constant, 0.5)) {
        const plus = this.#withConstant(gateNode);
        const erf = plus && this.#source(plus.value);
        if (erf?.op !== "Erf" || !near(this.#scalar(plus!.constant), 1)) continue;
        const inner = this.#factors(erf.inputs[0]!);
        const same = inner.others.length === 1 && this.#same(inner.others[0]!, input);
        if (same && near(inner.constant, Math.SQRT1_2)) return { kind: "gelu", input };
      }
    }
    return undefined;
  }

  #attention(value: string) {
    const output = this.#tryLinear(value);
    const mixed = output && this.#source(output.input);
    if (mixed?.op !== "MatMul") return undefined;
    const softmax = this.#source(mixed.inputs[0]!);
    if (softmax?.op !== "Softmax") return undefined;
    const scores = this.#factors(softmax.inputs[0]!);
    const product = scores.others.length === 1 ? this.#source(scores.others[0]!) : undefined;
    if (product?.op !== "MatMul") return undefined;

    const [queries, keys] = product.inputs.map((input) => this.#factors(input));
    const query = this.#part(queries!.others[0]!);
    const key = this.#part(keys!.others[0]!);
    const mixedValue = this.#part(mixed.inputs[1]!);
    if (query === undefined || key === undefined || mixedValue === undefined) return undefined;
    const inputs = [query, key, mixedValue].map((part) => this.#origin(part.input));
    if (new Set(inputs).size !== 1) return undefined;
    const norm = this.#norm(query.input);
    if (norm === undefined) return undefined;

    const known = [scores, queries!, keys!].every(({ unknown }) => !unknown);
    const scale = scores.constant * queries!.constant * keys!.constant;
    const width = elements(norm.norm.gain);
    return {
      normed: norm.input,
      attentionNorm: norm.norm,
      query: query.part,
      key: key.part,
      value: mixedValue.part,
      output: output!.linear,
      heads: headCounts(width, known ? scale : undefined, this.#headHints(queries!.others[0]!)),
    };
  }

  /** The columns of a projection that a value is, and the input of that projection. */
  #part(value: string): { part: ProjectionColumns; input: string } | undefined {
    let choice: number | undefined;
    for (let at = value; ; ) {
      const linear = this.#tryLinear(at);
      if (linear !== undefined) {
        const [from, to] = matrixDims(linear.linear.weight);
        const of = to === 3 * from ? 3 : 1;
        if ((of === 3) !== (choice !== undefined)) return undefined;
        // a slice says where it starts: which third, or which column
        const part = choice !== undefined && choice > 2 ? choice / from : (choice ?? 0);
        if (![0, 1, 2].includes(part)) return undefined;
        return { part: { linear: linear.linear, part, of }, input: linear.input };
      }
      const node = this.#source(at);
      if (node === undefined) return undefined;
      const [data, second] = node.inputs;
      if (node.op === "Split") choice = node.outputs.indexOf(this.#origin(at));
      else if (node.op === "Gather" || node.op === "Slice") {
        const [index] = this.#integers(second) ?? [];
        if (index === undefined || choice !== undefined) return undefined;
        choice = index;
      } else return undefined;
      at = data!;
    }
  }

  /** Small whole numbers that the shape of a reshape between the projection and the heads is made of. */
  #headHints(value: string): readonly number[] {
    const hints = new Set<number>();
    const seen = new Set<string>();
    const visit = (name: string, depth: number): void => {
      if (depth > 12 || seen.has(name)) return;
      seen.add(name);
      for (const number of this.#integers(name) ?? []) hints.add(number);
      const node = this.#producers.get(name);
      if (node !== undefined && node.op !== "Shape") {
        for (const input of node.inputs) visit(input, depth + 1);
      }
    };
    for (let at = value; ; ) {
      const node = this.#producers.get(at);
      if (node === undefined || (!layoutOps.has(node.op) && node.op !== "Gather")) break;
      if (node.op === "Reshape") visit(node.inputs[1]!, 0);
      at = node.inputs[0]!;
    }
    return [...hints];
  }

  #sequence(value: string, image: string): Pick<Tower, "patches" | "classToken" | "positions"> {
    const sum = this.#source(value);
    const positions = sum?.op === "Add" ? this.#withConstant(sum) : undefined;
    if (positions === undefined) throw new Unlike("no positions before the first block");
    const joined = this.#source(positions.value);
    let classToken: OnnxTensor | undefined;
    let rest: string | undefined;
    if (joined?.op === "Concat" && joined.inputs.length === 2) {
      classToken = this.#token(joined.inputs[0]!);
      if (classToken === undefined) throw new Unlike("no class token");
      rest = joined.inputs[1];
    } else if (joined?.op === "Pad") {
      const pads = this.#integers(joined.inputs[1]) ?? [];
      if (pads.join() === "0,1,0,0,0,0") rest = joined.inputs[0];
    }
    const convolution = rest === undefined ? undefined : this.#source(rest);
    if (convolution?.op !== "Conv") throw new Unlike("no convolution of patches");
    const [pixels, weightName, biasName] = convolution.inputs;
    const weight = this.#constant(weightName)?.tensor;
    const bias = biasName ? this.#constant(biasName)?.tensor : undefined;
    if (
      pixels !== image ||
      weight === undefined ||
      !isPatchConvolution(convolution, weight) ||
      (biasName && bias === undefined)
    ) {
      throw new Unlike("its convolution is not one of patches of the image");
    }
    return { patches: { weight, bias }, classToken, positions: positions.constant };
  }

  /** A constant that is repeated for each image. */
  #token(value: string): OnnxTensor | undefined {
    const constant = this.#constant(value);
    if (constant !== undefined) return constant.tensor;
    const node = this.#source(value);
    if (node?.op === "Expand" || node?.op === "Tile") return this.#token(node.inputs[0]!);
    // older open_clip: class embedding + zeros of the batch's shape
    if (node?.op === "Add") {
      const sum = this.#withConstant(node);
      const zeros = sum && this.#source(sum.value);
      return zeros?.op === "ConstantOfShape" || zeros?.op === "Expand" ? sum!.constant : undefined;
    }
    return undefined;
  }

  #norm(value: string): { norm: TowerNorm; input: string } | undefined {
    const node = this.#source(value);
    if (node?.op === "LayerNormalization") {
      const [input, gainName, biasName] = node.inputs;
      const gain = this.#constant(gainName)?.tensor;
      const bias = this.#constant(biasName)?.tensor;
      const axis = node.attributes.get("axis")?.int ?? -1;
      if (gain === undefined || bias === undefined || (axis !== -1 && axis !== 2)) return undefined;
      const epsilon = node.attributes.get("epsilon")?.float ?? 1e-5;
      return { norm: { gain, bias, epsilon }, input: input! };
    }
    return this.#spelledOutNorm(node);
  }

  /** `(x - mean) / sqrt(variance + epsilon) * gain + bias`, as exporters write it below opset 17. */
  #spelledOutNorm(node: OnnxFileNode | undefined) {
    const shifted = node?.op === "Add" ? this.#withConstant(node) : undefined;
    const scaledNode = shifted && this.#source(shifted.value);
    const scaled = scaledNode?.op === "Mul" ? this.#withConstant(scaledNode) : undefined;
    const division = scaled && this.#source(scaled.value);
    if (division?.op !== "Div") return undefined;
    const centred = this.#source(division.inputs[0]!);
    const root = this.#source(division.inputs[1]!);
    if (centred?.op !== "Sub" || root?.op !== "Sqrt") return undefined;
    const mean = this.#source(centred.inputs[1]!);
    const sum = this.#source(root.inputs[0]!);
    const variance = sum?.op === "Add" ? this.#withConstant(sum) : undefined;
    if (mean?.op !== "ReduceMean" || variance === undefined) return undefined;
    if (this.#source(variance.value)?.op !== "ReduceMean") return undefined;
    if (this.#origin(mean.inputs[0]!) !== this.#origin(centred.inputs[0]!)) return undefined;
    const epsilon = this.#scalar(variance.constant);
    if (epsilon === undefined) return undefined;
    return {
      norm: { gain: scaled!.constant, bias: shifted!.constant, epsilon },
      input: centred.inputs[0]!,
    };
  }

  #linear(value: string): { linear: TowerLinear; input: string } {
    const found = this.#tryLinear(value);
    if (found === undefined) throw new Unlike(`'${value}' is not the product of a matrix`);
    return found;
  }

  #tryLinear(value: string): { linear: TowerLinear; input: string } | undefined {
    const node = this.#source(value);
    if (node?.op === "Add") {
      const sum = this.#withConstant(node);
      const product = sum && this.#tryLinear(sum.value);
      if (product === undefined || product.linear.bias !== undefined) return undefined;
      const [, to] = matrixDims(product.linear.weight);
      if (elements(sum!.constant) !== to) return undefined;
      return { linear: { ...product.linear, bias: sum!.constant }, input: product.input };
    }
    const [input, weightName, biasName] = node?.inputs ?? [];
    if (node?.op !== "MatMul" && node?.op !== "Gemm") return undefined;
    const weight = this.#constant(weightName);
    if (weight === undefined || weight.tensor.dims.length !== 2) return undefined;
    if (node.op === "MatMul") return { linear: { weight }, input: input! };
    const attribute = (name: string) => node.attributes.get(name);
    const bias = biasName ? this.#constant(biasName)?.tensor : undefined;
    const plain =
      (attribute("alpha")?.float ?? 1) === 1 &&
      (attribute("beta")?.float ?? 1) === 1 &&
      (attribute("transA")?.int ?? 0) === 0 &&
      (!biasName || bias !== undefined);
    if (!plain) return undefined;
    const transposed = weight.transposed !== ((attribute("transB")?.int ?? 0) === 1);
    return { linear: { weight: { tensor: weight.tensor, transposed }, bias }, input: input! };
  }

  /** The product of a value's constant factors, and what else is multiplied. */
  #factors(value: string): { constant: number; others: readonly string[]; unknown: boolean } {
    const node = this.#source(value);
    const [a, b] = node?.inputs ?? [];
    if ((node?.op === "Mul" || node?.op === "Div") && a !== undefined && b !== undefined) {
      const divisor = this.#scalarOf(b);
      if (divisor !== undefined) {
        const rest = this.#factors(a);
        const constant = node.op === "Mul" ? rest.constant * divisor : rest.constant / divisor;
        return { ...rest, constant };
      }
      const factor = this.#scalarOf(a);
      if (factor !== undefined && node.op === "Mul") {
        const rest = this.#factors(b);
        return { ...rest, constant: rest.constant * factor };
      }
      // a factor that is computed from a shape, such as 1 / sqrt(width of a head)
      if (this.#isOfShapes(b, 0)) return { ...this.#factors(a), unknown: true };
      if (node.op === "Mul") {
        const [left, right] = [this.#factors(a), this.#factors(b)];
        return {
          constant: left.constant * right.constant,
          others: [...left.others, ...right.others],
          unknown: left.unknown || right.unknown,
        };
      }
    }
    return { constant: 1, others: [value], unknown: false };
  }

  /** Whether a value follows from shapes and constants alone. */
  #isOfShapes(value: string, depth: number): boolean {
    if (this.#file.initializers.has(value)) return true;
    const node = this.#producers.get(value);
    if (node === undefined || depth > 16) return false;
    return node.op === "Shape" || node.inputs.every((input) => this.#isOfShapes(input, depth + 1));
  }

  /** The two sides of a node, one of which is constant. */
  #withConstant(node: OnnxFileNode): { constant: OnnxTensor; value: string } | undefined {
    const [a, b] = node.inputs as [string, string];
    const right = this.#constant(b);
    if (right !== undefined) return { constant: right.tensor, value: a };
    const left = this.#constant(a);
    return left && { constant: left.tensor, value: b };
  }

  #scalarOf(value: string): number | undefined {
    const constant = this.#constant(value);
    return constant && this.#scalar(constant.tensor);
  }

  #scalar(tensor: OnnxTensor): number | undefined {
    if (tensor.dataType !== tensorTypes.float || elements(tensor) !== 1) return undefined;
    return readFloats(tensor)[0];
  }

  #integers(value: string | undefined): readonly number[] | undefined {
    const constant = value === undefined ? undefined : this.#constant(value);
    return constant && readIntegers(constant.tensor);
  }

  /** A tensor of the file that a value is, whatever its shape became; `transposed` once or not. */
  #constant(value: string | undefined): TowerMatrix | undefined {
    let transposed = false;
    for (let at = value; at !== undefined && at !== ""; ) {
      const tensor = this.#file.initializers.get(at);
      if (tensor !== undefined) return { tensor, transposed };
      const node = this.#producers.get(at);
      if (node === undefined || !layoutOps.has(node.op)) return undefined;
      if (node.op === "Transpose") transposed = !transposed;
      at = node.inputs[0];
    }
    return undefined;
  }

  #same(a: string, b: string): boolean {
    return this.#origin(a) === this.#origin(b);
  }

  /** The name of a value, before all that only moves it. */
  #origin(value: string): string {
    for (let at = value; ; ) {
      const node = this.#producers.get(at);
      if (node === undefined || !layoutOps.has(node.op)) return at;
      at = node.inputs[0]!;
    }
  }

  /** The operator that computes a value, before all that only moves it. */
  #source(value: string): OnnxFileNode | undefined {
    return this.#producers.get(this.#origin(value));
  }
}

/** Whether a convolution cuts the image into patches that do not overlap, and nothing is padded. */
export function isPatchConvolution(node: OnnxFileNode, weight: OnnxTensor): boolean {
  const [, channels, height, width] = weight.dims;
  const all = (name: string, expected: number | undefined) =>
    (node.attributes.get(name)?.ints ?? []).every((value) => value === expected);
  return (
    weight.dims.length === 4 &&
    weight.dataType === tensorTypes.float &&
    channels === 3 &&
    height === width &&
    node.attributes.get("strides")?.ints?.length === 2 &&
    all("strides", height) &&
    all("dilations", 1) &&
    all("pads", 0) &&
    ["", "NOTSET", "VALID"].includes(node.attributes.get("auto_pad")?.text ?? "") &&
    (node.attributes.get("group")?.int ?? 1) === 1
  );
}

/** Size of a matrix as it is used: `[from, to]`. */
export function matrixDims({ tensor, transposed }: TowerMatrix): readonly [number, number] {
  const [rows, columns] = tensor.dims as [number, number];
  return transposed ? [columns, rows] : [rows, columns];
}

/** Heads that a tower of this width can have: as the scale says, else 64 wide as CLIP's are, else as a shape says. */
function headCounts(
  width: number,
  scale: number | undefined,
  hints: readonly number[],
): readonly number[] {
  const fits = (count: number) => count >= 1 && count <= 64 && width % count === 0;
  const ofScale = scale === undefined ? [] : [Math.round(width * scale * scale)].filter(fits);
  return [...ofScale, width / 64, ...hints].filter(fits);
}

function elements({ dims }: OnnxTensor): number {
  return dims.reduce((product, dim) => product * dim, 1);
}

function near(value: number | undefined, expected: number): boolean {
  return value !== undefined && Math.abs(value - expected) < 1e-4 * expected;
}
