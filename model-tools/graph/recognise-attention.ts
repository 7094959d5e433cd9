import { elements, layoutOps, type OnnxGraph } from "./onnx-graph.ts";
import { linearOf, matchLayerNorm } from "./recognise-layers.ts";
import { matrixDims, type ProjectionColumns } from "./tower.ts";

/** Matches multi-head self-attention with its normalisation and output projection. */
export function attentionOf(graph: OnnxGraph, value: string) {
  const output = linearOf(graph, value);
  const mixed = output && graph.source(output.input);
  if (mixed?.op !== "MatMul") return undefined;
  const softmax = graph.source(mixed.inputs[0]!);
  if (softmax?.op !== "Softmax") return undefined;
  const scores = graph.factors(softmax.inputs[0]!);
  const product = scores.others.length === 1 ? graph.source(scores.others[0]!) : undefined;
  if (product?.op !== "MatMul") return undefined;

  const [queries, keys] = product.inputs.map((input) => graph.factors(input));
  const query = columnsOf(graph, queries!.others[0]!);
  const key = columnsOf(graph, keys!.others[0]!);
  const mixedValue = columnsOf(graph, mixed.inputs[1]!);
  if (query === undefined || key === undefined || mixedValue === undefined) return undefined;
  const inputs = [query, key, mixedValue].map((part) => graph.origin(part.input));
  if (new Set(inputs).size !== 1) return undefined;
  const norm = matchLayerNorm(graph, query.input);
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
    heads: headCounts(width, known ? scale : undefined, headHints(graph, queries!.others[0]!)),
  };
}

/** Columns of the projection that computes a value, and the input of that projection. */
function columnsOf(
  graph: OnnxGraph,
  value: string,
): { part: ProjectionColumns; input: string } | undefined {
  let choice: number | undefined;
  for (let at = value; ; ) {
    const linear = linearOf(graph, at);
    if (linear !== undefined) {
      const [from, to] = matrixDims(linear.linear.weight);
      const of = to === 3 * from ? 3 : 1;
      if ((of === 3) !== (choice !== undefined)) return undefined;
      // a slice gives the first column, a gather or split the index of the third
      const part = choice !== undefined && choice > 2 ? choice / from : (choice ?? 0);
      if (![0, 1, 2].includes(part)) return undefined;
      return { part: { linear: linear.linear, part, of }, input: linear.input };
    }
    const node = graph.source(at);
    if (node === undefined) return undefined;
    const [data, second] = node.inputs;
    if (node.op === "Split") choice = node.outputs.indexOf(graph.origin(at));
    else if (node.op === "Gather" || node.op === "Slice") {
      const [index] = graph.integers(second) ?? [];
      if (index === undefined || choice !== undefined) return undefined;
      choice = index;
    } else return undefined;
    at = data!;
  }
}

/** Integers from which the shapes of reshapes between the projection and the heads are computed. */
function headHints(graph: OnnxGraph, value: string): readonly number[] {
  const hints = new Set<number>();
  const seen = new Set<string>();
  const visit = (name: string, depth: number): void => {
    if (depth > 12 || seen.has(name)) return;
    seen.add(name);
    for (const number of graph.integers(name) ?? []) hints.add(number);
    const node = graph.producer(name);
    if (node !== undefined && node.op !== "Shape") {
      for (const input of node.inputs) visit(input, depth + 1);
    }
  };
  for (let at = value; ; ) {
    const node = graph.producer(at);
    if (node === undefined || (!layoutOps.has(node.op) && node.op !== "Gather")) break;
    if (node.op === "Reshape") visit(node.inputs[1]!, 0);
    at = node.inputs[0]!;
  }
  return [...hints];
}

/** Candidates for the number of heads: from the scale of the scores, from CLIP's head width of 64, then from shapes. */
function headCounts(
  width: number,
  scale: number | undefined,
  hints: readonly number[],
): readonly number[] {
  const fits = (count: number) => count >= 1 && count <= 64 && width % count === 0;
  const ofScale = scale === undefined ? [] : [Math.round(width * scale * scale)].filter(fits);
  return [...ofScale, width / 64, ...hints].filter(fits);
}
