import { type OnnxFile, type OnnxFileNode, type OnnxTensor, tensorTypes } from "../onnx/reader.ts";
import { elements, OnnxGraph } from "./onnx-graph.ts";
import { attentionOf } from "./recognise-attention.ts";
import { activationOf, type LinearMatch, linearOf, matchLayerNorm } from "./recognise-layers.ts";
import type { Tower, TowerBlock, TowerNorm } from "./tower.ts";

/** Reason why a graph is not an image tower. Internal to {@link recogniseTower}, which returns it. */
class Unrecognised extends Error {}

/**
 * Recognises the weights of an image tower in a graph, whichever exporter wrote it: the order of tokens and images, how query,
 * key and value are split, and fused or decomposed normalisation and GELU do not matter. Reshapes and transpositions are not
 * verified, so a model built from the result must be compared with the original.
 *
 * @param output - Name of the output with the embeddings. @default the first
 */
export function recogniseTower(
  file: OnnxFile,
  output?: string,
): { readonly tower: Tower } | { readonly mismatch: string } {
  try {
    if (file.hasMore) throw new Unrecognised("the file has functions or sparse weights");
    return { tower: new Recogniser(file).tower(output) };
  } catch (error) {
    if (error instanceof Unrecognised) return { mismatch: error.message };
    throw error;
  }
}

class Recogniser {
  readonly #file: OnnxFile;
  readonly #graph: OnnxGraph;

  constructor(file: OnnxFile) {
    this.#file = file;
    this.#graph = new OnnxGraph(file);
  }

  tower(outputName?: string): Tower {
    const { inputs, outputs } = this.#file;
    const [input] = inputs;
    const output = outputs.find(({ name }) => name === outputName) ?? outputs[0];
    if (input === undefined || output === undefined || inputs.length !== 1) {
      throw new Unrecognised("the graph must have one input and one output");
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
    if (blocks.length === 0) throw new Unrecognised("no residual block ends at the class token");

    const first = matchLayerNorm(this.#graph, value);
    const sequence = this.#sequence(first?.input ?? value, input.name);
    const width = sequence.patches.weight.dims[0] ?? 0;
    const imageSide = input.dims.at(-1);
    const patchSide = sequence.patches.weight.dims[2] ?? 0;
    const tokens = typeof imageSide === "number" ? (imageSide / patchSide) ** 2 + 1 : 0;
    if (typeof imageSide !== "number" || elements(sequence.positions) !== tokens * width) {
      throw new Unrecognised("its positions do not match its patches");
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

  /** Matches `x / max(norm of x, epsilon)`. */
  #unitLength(value: string): { readonly input: string; readonly unitLength: boolean } {
    const division = this.#graph.source(value);
    const [input, length] = division?.inputs ?? [];
    if (division?.op !== "Div" || input === undefined) return { input: value, unitLength: false };
    const repeated = this.#graph.source(length!);
    const bounded = repeated?.op === "Expand" ? this.#graph.source(repeated.inputs[0]!) : repeated;
    const isBounded = bounded?.op === "Clip" || bounded?.op === "Max";
    const norm = isBounded ? this.#graph.source(bounded.inputs[0]!) : bounded;
    if (norm?.op !== "ReduceL2" || !this.#graph.same(norm.inputs[0]!, input)) {
      throw new Unrecognised("its embedding is not divided by its L2 norm");
    }
    return { input, unitLength: true };
  }

  /** Matches `ln_post` of the class token, which is selected before or after it. */
  #classTokenNorm(value: string): { norm: TowerNorm; stream: string } {
    const selected = this.#firstToken(value);
    const found = matchLayerNorm(this.#graph, selected ?? value);
    if (found === undefined) throw new Unrecognised("no normalisation before the last projection");
    const stream = selected === undefined ? this.#firstToken(found.input) : found.input;
    if (stream === undefined) throw new Unrecognised("no selection of the class token");
    return { norm: found.norm, stream };
  }

  /** Tokens from which a value selects the first. */
  #firstToken(value: string): string | undefined {
    const node = this.#graph.source(value);
    const [data, second, third] = node?.inputs ?? [];
    if (node?.op === "Gather") {
      const [index, ...others] = this.#graph.integers(second) ?? [];
      return index === 0 && others.length === 0 ? data : undefined;
    }
    if (node?.op === "Slice") {
      const [start] = this.#graph.integers(second) ?? [];
      const [end] = this.#graph.integers(third) ?? [];
      return start === 0 && end === 1 ? data : undefined;
    }
    return undefined;
  }

  #linear(value: string): LinearMatch {
    const match = linearOf(this.#graph, value);
    if (match === undefined) throw new Unrecognised(`'${value}' is not the product of a matrix`);
    return match;
  }

  #block(
    value: string,
  ): { block: TowerBlock; input: string; heads: readonly number[] } | undefined {
    const mlp = this.#residual(value, (branch) => this.#mlp(branch));
    if (mlp === undefined) return undefined;
    const attention = this.#residual(mlp.stream, (branch) => attentionOf(this.#graph, branch));
    if (attention === undefined) throw new Unrecognised("an MLP without attention before it");
    const { heads, ...attentionParts } = attention.branch;
    return { block: { ...attentionParts, ...mlp.branch }, input: attention.stream, heads };
  }

  /** Matches `stream + branch(norm(stream))`. */
  #residual<T extends { readonly normed: string }>(
    value: string,
    branchOf: (value: string) => T | undefined,
  ): { stream: string; branch: Omit<T, "normed"> } | undefined {
    const node = this.#graph.source(value);
    if (node?.op !== "Add") return undefined;
    const [a, b] = node.inputs as [string, string];
    for (const [stream, branchValue] of [
      [a, b],
      [b, a],
    ] as const) {
      const branch = branchOf(branchValue);
      if (branch === undefined || this.#graph.origin(branch.normed) !== this.#graph.origin(stream))
        continue;
      const { normed: _, ...parts } = branch;
      return { stream, branch: parts };
    }
    return undefined;
  }

  #mlp(value: string) {
    const projection = linearOf(this.#graph, value);
    const activation = projection && activationOf(this.#graph, projection.input);
    const hidden = activation && linearOf(this.#graph, activation.input);
    const norm = hidden && matchLayerNorm(this.#graph, hidden.input);
    if (norm === undefined) return undefined;
    return {
      normed: norm.input,
      mlpNorm: norm.norm,
      hidden: hidden!.linear,
      activation: activation!.kind,
      projection: projection!.linear,
    };
  }

  #sequence(value: string, image: string): Pick<Tower, "patches" | "classToken" | "positions"> {
    const sum = this.#graph.source(value);
    const positions = sum?.op === "Add" ? this.#graph.withConstant(sum) : undefined;
    if (positions === undefined) throw new Unrecognised("no positions before the first block");
    const joined = this.#graph.source(positions.value);
    let classToken: OnnxTensor | undefined;
    let rest: string | undefined;
    if (joined?.op === "Concat" && joined.inputs.length === 2) {
      classToken = this.#token(joined.inputs[0]!);
      if (classToken === undefined) throw new Unrecognised("no class token");
      rest = joined.inputs[1];
    } else if (joined?.op === "Pad") {
      const pads = this.#graph.integers(joined.inputs[1]) ?? [];
      if (pads.join() === "0,1,0,0,0,0") rest = joined.inputs[0];
    }
    const convolution = rest === undefined ? undefined : this.#graph.source(rest);
    if (convolution?.op !== "Conv") throw new Unrecognised("no convolution of patches");
    const [pixels, weightName, biasName] = convolution.inputs;
    const weight = this.#graph.constant(weightName)?.tensor;
    const bias = biasName ? this.#graph.constant(biasName)?.tensor : undefined;
    if (
      pixels !== image ||
      weight === undefined ||
      !isPatchConvolution(convolution, weight) ||
      (biasName && bias === undefined)
    ) {
      throw new Unrecognised("its convolution does not divide the image into patches");
    }
    return { patches: { weight, bias }, classToken, positions: positions.constant };
  }

  /** Matches a constant that is repeated for each image. */
  #token(value: string): OnnxTensor | undefined {
    const constant = this.#graph.constant(value);
    if (constant !== undefined) return constant.tensor;
    const node = this.#graph.source(value);
    if (node?.op === "Expand" || node?.op === "Tile") return this.#token(node.inputs[0]!);
    // older open_clip: class embedding + zeros of the batch's shape
    if (node?.op === "Add") {
      const sum = this.#graph.withConstant(node);
      const zeros = sum && this.#graph.source(sum.value);
      return zeros?.op === "ConstantOfShape" || zeros?.op === "Expand" ? sum!.constant : undefined;
    }
    return undefined;
  }
}

/** Returns whether a convolution divides the image into patches without overlap or padding. */
function isPatchConvolution(node: OnnxFileNode, weight: OnnxTensor): boolean {
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
