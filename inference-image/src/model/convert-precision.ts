import { type OnnxFile, type OnnxFileNode, type OnnxTensor, tensorTypes } from "./onnx-reader.ts";
import type { OnnxInitializer, OnnxModel, OnnxNode } from "./onnx-writer.ts";
import { copyTensor } from "./pixel-input.ts";
import { quantise } from "./quantise.ts";
import { recogniseTower } from "./recognise-tower.ts";
import { standardGraph } from "./standard-model.ts";
import { matrixOf, whole } from "./tower-graph.ts";

/** What the weights of a model file can be turned into; its input and output stay float32. */
export const convertPrecisions = ["fp16", "int8"] as const;
export type ConvertPrecision = (typeof convertPrecisions)[number];

export interface ConvertedModel {
  readonly model: OnnxModel;
  /** Tensors of weights that are stored in the new precision. */
  readonly tensors: number;
}

/**
 * What a float32 image tower can be in another precision, with ONNX's own operators; the likeliest first, as the number of
 * attention heads may be hidden.
 *
 * `fp16`: weights and computation in half precision, from after the input to before the output, in the graph of the
 * generated model: some graphs crash ONNX Runtime's CPU provider in half precision. For a GPU; a CPU without half-precision
 * kernels converts around every operator.
 *
 * `int8`: products with a matrix of weights in 8-bit integers, one scale a column; the values that they are multiplied
 * with are quantised as they come, over the whole batch. The rest stays float32, and the graph as it is. For a CPU.
 *
 * @throws {Error} one line, when the file has something that cannot be converted, or nothing that can be.
 */
export function* convertPrecision(
  file: OnnxFile,
  precision: ConvertPrecision,
): Generator<ConvertedModel> {
  if (precision === "int8") {
    yield quantised(file);
    return;
  }
  const found = recogniseTower(file);
  if ("unlike" in found) {
    throw new Error(`${file.path}: its image tower is not recognised: ${found.unlike}`);
  }
  for (const heads of found.tower.heads) yield halved(standardGraph(found.tower, heads));
}

/** `TensorProto.DataType`, as the attribute of a `Cast` has it. */
const [float, half] = [1, 10];

function halved(model: OnnxModel): ConvertedModel {
  const ends = new Set([...model.inputs, ...model.outputs].map(({ name }) => name));
  const inHalf = (name: string) => (ends.has(name) ? `clipstack.half.${name}` : name);
  const cast = (from: string, output: string, to: number): OnnxNode => ({
    // the node that gave the output before has its name, maybe
    name: `clipstack.cast.${output}`,
    op: "Cast",
    inputs: [from],
    outputs: [output],
    attributes: { to },
  });
  const nodes = model.nodes.map((node) => ({
    ...node,
    inputs: node.inputs.map(inHalf),
    outputs: node.outputs.map(inHalf),
  }));
  return {
    tensors: model.initializers.filter(({ dataType }) => dataType === "FLOAT").length,
    model: {
      ...model,
      graphName: "in_fp16",
      nodes: [
        ...model.inputs.map(({ name }) => cast(name, inHalf(name), half)),
        ...nodes,
        ...model.outputs.map(({ name }) => cast(inHalf(name), name, float)),
      ],
      initializers: model.initializers.map((initializer) =>
        initializer.dataType === "FLOAT"
          ? { ...initializer, dataType: "FLOAT16", data: () => halfPieces(initializer.data()) }
          : initializer,
      ),
    },
  };
}

/** The values in half precision; a piece may end within one. */
function* halfPieces(pieces: Iterable<Uint8Array>): Generator<Uint8Array> {
  let left = new Uint8Array(0);
  for (const piece of pieces) {
    const bytes = new Uint8Array(left.length + piece.length);
    bytes.set(left);
    bytes.set(piece, left.length);
    const whole = bytes.length - (bytes.length % 4);
    left = bytes.slice(whole);
    yield new Uint8Array(halfBits(new Float32Array(bytes.buffer, 0, whole / 4)).buffer);
  }
}

/** A product with a matrix of weights. */
interface Product {
  readonly weight: OnnxTensor;
  readonly transposed: boolean;
  /** Name of what is added to it. */
  readonly bias?: string;
}

function quantised(file: OnnxFile): ConvertedModel {
  if (file.hasMore) throw new Error(`${file.path}: has functions or sparse weights: unsupported`);
  const nodes: OnnxNode[] = [];
  const added = new Map<string, OnnxInitializer>();
  const quantisedInputs = new Set<string>();
  const step = (op: string, inputs: readonly string[], output: string, to?: number) => {
    const attributes = to === undefined ? undefined : { to };
    nodes.push({ name: `clipstack.step.${output}`, op, inputs, outputs: [output], attributes });
    return output;
  };

  for (const node of file.nodes) {
    const product = productOf(file, node);
    const [input, output] = [node.inputs[0], node.outputs[0]];
    if (product === undefined || input === undefined || output === undefined) {
      nodes.push(copyNode(node));
      continue;
    }
    const { weight, transposed, bias } = product;
    const matrix = matrixOf(whole({ weight: { tensor: weight, transposed } }));
    const suffix = transposed ? ".transposed.int8" : ".int8";
    const { values, scales } = quantise(`${weight.name}${suffix}`, matrix);
    added.set(values.name, values).set(scales.name, scales);

    const [rounded, scale, zero] = ["int8", "scale", "zero"].map(
      (part) => `clipstack.${part}.${input}`,
    ) as [string, string, string];
    if (!quantisedInputs.has(input)) {
      quantisedInputs.add(input);
      const outputs = [rounded, scale, zero];
      nodes.push({ name: rounded, op: "DynamicQuantizeLinear", inputs: [input], outputs });
    }
    // ONNX Runtime makes one operator of these
    const name = (part: string) => `clipstack.${part}.${output}`;
    const sums = step("MatMulInteger", [rounded, values.name, zero], name("sums"));
    const floats = step("Cast", [sums], name("floats"), float);
    const factors = step("Mul", [scale, scales.name], name("factors"));
    const scaled = bias === undefined ? output : name("scaled");
    step("Mul", [floats, factors], scaled);
    if (bias !== undefined) step("Add", [scaled, bias], output);
  }

  const used = new Set(nodes.flatMap(({ inputs }) => inputs));
  const kept = [...file.initializers.values()].filter(({ name }) => used.has(name));
  if (added.size === 0) throw new Error(`${file.path}: has no product with a matrix of weights`);
  const shape = ({ name, dims }: OnnxFile["inputs"][number]) => ({ name, dims });
  return {
    tensors: added.size / 2,
    model: {
      producer: "clipstack",
      opset: file.opsets.get("") ?? 1,
      otherOpsets: Object.fromEntries([...file.opsets].filter(([domain]) => domain !== "")),
      irVersion: file.irVersion,
      graphName: "in_int8",
      inputs: file.inputs.map(shape),
      outputs: file.outputs.map(shape),
      nodes,
      initializers: [...kept.map((tensor) => copyTensor(file, tensor)), ...added.values()],
    },
  };
}

function productOf(file: OnnxFile, node: OnnxFileNode): Product | undefined {
  const weight = file.initializers.get(node.inputs[1] ?? "");
  if (node.domain !== "" || weight?.dataType !== tensorTypes.float || weight.dims.length !== 2) {
    return undefined;
  }
  if (node.op === "MatMul") return { weight, transposed: false };
  if (node.op !== "Gemm") return undefined;
  const { attributes } = node;
  const plain =
    (attributes.get("alpha")?.float ?? 1) === 1 &&
    (attributes.get("beta")?.float ?? 1) === 1 &&
    (attributes.get("transA")?.int ?? 0) === 0;
  if (!plain) return undefined;
  const transposed = attributes.get("transB")?.int === 1;
  return { weight, transposed, bias: node.inputs[2] || undefined };
}

function copyNode(node: OnnxFileNode): OnnxNode {
  return { ...node, domain: node.domain || undefined, attributes: undefined };
}

/** Half-precision numbers as their bits, rounded to the nearest, halves to the even one; too large is infinite. */
export function halfBits(values: Float32Array<ArrayBuffer>): Uint16Array<ArrayBuffer> {
  const bits = new Uint32Array(values.buffer, values.byteOffset, values.length);
  const result = new Uint16Array(values.length);
  for (let i = 0; i < bits.length; i++) {
    const all = bits[i]!;
    const size = all & 0x7fff_ffff;
    let found: number;
    if (size > 0x7f80_0000) found = 0x7e00;
    else if (size >= 0x4780_0000) found = 0x7c00;
    else if (size >= 0x3880_0000) {
      // the exponent's bias changes from 127 to 15, and 13 bits go
      found = (size - 0x3800_0000 + 0xfff + ((size >>> 13) & 1)) >>> 13;
    } else {
      // below 2⁻¹⁴ half precision counts in steps of 2⁻²⁴
      const steps = Math.abs(values[i]!) * 2 ** 24;
      const below = Math.floor(steps);
      const rest = steps - below;
      found = rest > 0.5 || (rest === 0.5 && below % 2 === 1) ? below + 1 : below;
    }
    result[i] = ((all >>> 16) & 0x8000) | found;
  }
  return result;
}
