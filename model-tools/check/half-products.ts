import { tensorrtFile } from "../../contract/model-config.ts";
import { type OnnxFile, type OnnxFileNode, readOnnx, tensorTypes } from "../onnx/reader.ts";

/** Operators that multiply matrices: those of ONNX, and those into which ONNX Runtime fuses them. */
const products = new Set([
  ...["MatMul", "Gemm", "Conv", "ConvTranspose", "Einsum", "Attention"],
  ...["FusedMatMul", "FusedConv", "FusedGemm", "MultiHeadAttention", "GroupQueryAttention"],
]);

const integerOutputs = new Set(["Shape", "Size", "NonZero", "ArgMax", "ArgMin"]);
const booleanOutputs = new Set(["Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"]);
const booleanType = 9;

/**
 * Names of the matrix multiplications of a graph whose inputs are not all in half precision. A strongly typed TensorRT network
 * (version 11) executes these in FP32.
 */
export function productsNotInHalf({
  inputs,
  initializers,
  nodes,
}: Pick<OnnxFile, "inputs" | "initializers" | "nodes">): readonly string[] {
  const types = new Map([...inputs, ...initializers.values()].map((it) => [it.name, it.dataType]));
  const found: string[] = [];
  for (const node of nodes) {
    const read = node.inputs.filter((name) => name !== "");
    if (products.has(node.op) && read.some((name) => types.get(name) !== tensorTypes.half)) {
      found.push(node.name || `${node.op} of ${node.outputs[0]}`);
    }
    const type = outputType(node, types);
    // of an operator with several outputs, such as Split or LayerNormalization, the type of the first
    if (type !== undefined) for (const name of node.outputs) types.set(name, type);
  }
  return found;
}

/** @throws {Error} one line, if TensorRT 11 would execute a matrix multiplication of the file in FP32 */
export function requireHalfProducts(file: string): void {
  const [product] = productsNotInHalf(readOnnx(file));
  if (product === undefined) return;
  throw new Error(
    `${file}: every matrix multiplication must be in half precision for TensorRT, got FP32 in ${product}; 'clipstack model convert --precision fp16 --keep-graph' writes ${tensorrtFile}`,
  );
}

function outputType(
  { op, inputs, attributes }: OnnxFileNode,
  types: ReadonlyMap<string, number>,
): number | undefined {
  if (op === "Cast") return attributes.get("to")?.int;
  if (integerOutputs.has(op)) return tensorTypes.int64;
  if (booleanOutputs.has(op)) return booleanType;
  if (op === "ConstantOfShape") {
    return attributes.get("value")?.tensor?.dataType ?? tensorTypes.float;
  }
  const typed = op === "Where" || op === "DequantizeLinear" ? inputs[1] : inputs[0];
  return types.get(typed ?? "");
}
