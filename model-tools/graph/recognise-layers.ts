import type { OnnxFileNode } from "../onnx/reader.ts";
import { elements, type OnnxGraph } from "./onnx-graph.ts";
import { matrixDims, type TowerBlock, type TowerLinear, type TowerNorm } from "./tower.ts";

/** Linear layer that computes a value, and its input. */
export interface LinearMatch {
  readonly linear: TowerLinear;
  readonly input: string;
}

/** Matches a product with a constant matrix, and its bias. */
export function linearOf(graph: OnnxGraph, value: string): LinearMatch | undefined {
  const node = graph.source(value);
  if (node?.op === "Add") {
    const sum = graph.withConstant(node);
    const product = sum && linearOf(graph, sum.value);
    if (product === undefined || product.linear.bias !== undefined) return undefined;
    const [, to] = matrixDims(product.linear.weight);
    if (elements(sum!.constant) !== to) return undefined;
    return { linear: { ...product.linear, bias: sum!.constant }, input: product.input };
  }
  const [input, weightName, biasName] = node?.inputs ?? [];
  if (node?.op !== "MatMul" && node?.op !== "Gemm") return undefined;
  const weight = graph.constant(weightName);
  if (weight === undefined || weight.tensor.dims.length !== 2) return undefined;
  if (node.op === "MatMul") return { linear: { weight }, input: input! };
  const attribute = (name: string) => node.attributes.get(name);
  const bias = biasName ? graph.constant(biasName)?.tensor : undefined;
  const isProduct =
    (attribute("alpha")?.float ?? 1) === 1 &&
    (attribute("beta")?.float ?? 1) === 1 &&
    (attribute("transA")?.int ?? 0) === 0 &&
    (!biasName || bias !== undefined);
  if (!isProduct) return undefined;
  const transposed = weight.transposed !== ((attribute("transB")?.int ?? 0) === 1);
  return { linear: { weight: { tensor: weight.tensor, transposed }, bias }, input: input! };
}

/** Matches a layer normalisation, fused or decomposed. */
export function matchLayerNorm(
  graph: OnnxGraph,
  value: string,
): { norm: TowerNorm; input: string } | undefined {
  const node = graph.source(value);
  if (node?.op === "LayerNormalization") {
    const [input, gainName, biasName] = node.inputs;
    const gain = graph.constant(gainName)?.tensor;
    const bias = graph.constant(biasName)?.tensor;
    const axis = node.attributes.get("axis")?.int ?? -1;
    if (gain === undefined || bias === undefined || (axis !== -1 && axis !== 2)) return undefined;
    const epsilon = node.attributes.get("epsilon")?.float ?? 1e-5;
    return { norm: { gain, bias, epsilon }, input: input! };
  }
  return decomposedNorm(graph, node);
}

/** `(x - mean) / sqrt(variance + epsilon) * gain + bias`, as exported below opset 17. */
function decomposedNorm(graph: OnnxGraph, node: OnnxFileNode | undefined) {
  const shifted = node?.op === "Add" ? graph.withConstant(node) : undefined;
  const scaledNode = shifted && graph.source(shifted.value);
  const scaled = scaledNode?.op === "Mul" ? graph.withConstant(scaledNode) : undefined;
  const division = scaled && graph.source(scaled.value);
  if (division?.op !== "Div") return undefined;
  const centred = graph.source(division.inputs[0]!);
  const root = graph.source(division.inputs[1]!);
  if (centred?.op !== "Sub" || root?.op !== "Sqrt") return undefined;
  const mean = graph.source(centred.inputs[1]!);
  const sum = graph.source(root.inputs[0]!);
  const variance = sum?.op === "Add" ? graph.withConstant(sum) : undefined;
  if (mean?.op !== "ReduceMean" || variance === undefined) return undefined;
  if (graph.source(variance.value)?.op !== "ReduceMean") return undefined;
  if (graph.origin(mean.inputs[0]!) !== graph.origin(centred.inputs[0]!)) return undefined;
  const epsilon = graph.scalar(variance.constant);
  if (epsilon === undefined) return undefined;
  return {
    norm: { gain: scaled!.constant, bias: shifted!.constant, epsilon },
    input: centred.inputs[0]!,
  };
}

/** Matches GELU, fused or decomposed, and quick GELU. */
export function activationOf(
  graph: OnnxGraph,
  value: string,
): { kind: TowerBlock["activation"]; input: string } | undefined {
  const node = graph.source(value);
  if (node?.op === "Gelu" && (node.attributes.get("approximate")?.text ?? "none") === "none") {
    return { kind: "gelu", input: node.inputs[0]! };
  }
  if (node?.op !== "Mul") return undefined;
  const { constant, others } = graph.factors(value);
  if (others.length !== 2) return undefined;
  for (const [input, gate] of [others, [...others].reverse()] as [string, string][]) {
    const gateNode = graph.source(gate);
    if (gateNode?.op === "Sigmoid" && near(constant, 1)) {
      const inner = graph.factors(gateNode.inputs[0]!);
      const same = inner.others.length === 1 && graph.same(inner.others[0]!, input);
      if (same && near(inner.constant, 1.702)) return { kind: "quick-gelu", input };
    }
    if (gateNode?.op === "Add" && near(constant, 0.5)) {
      const plus = graph.withConstant(gateNode);
      const erf = plus && graph.source(plus.value);
      if (erf?.op !== "Erf" || !near(graph.scalar(plus!.constant), 1)) continue;
      const inner = graph.factors(erf.inputs[0]!);
      const same = inner.others.length === 1 && graph.same(inner.others[0]!, input);
      if (same && near(inner.constant, Math.SQRT1_2)) return { kind: "gelu", input };
    }
  }
  return undefined;
}

function near(value: number | undefined, expected: number): boolean {
  return value !== undefined && Math.abs(value - expected) < 1e-4 * expected;
}
