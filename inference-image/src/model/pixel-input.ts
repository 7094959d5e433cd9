import { clipNormalisation, openclipVitB32U8 } from "../contract/model-signature.ts";
import { type OnnxFile, type OnnxTensor, readFloats, tensorPieces } from "./onnx-reader.ts";
import {
  elementTypeOf,
  type OnnxElementType,
  type OnnxInitializer,
  type OnnxModel,
  type OnnxNode,
} from "./onnx-writer.ts";
import { isPatchConvolution } from "./recognise-tower.ts";

const [{ name: inputName, dims: inputDims }] = openclipVitB32U8.inputs;

/** What the rest of the graph knows the normalised image as. */
const planesName = "clipstack.planes";

/**
 * Any graph whose input is the normalised image, with 8-bit pixels as input instead; nothing else of it changes. The
 * normalisation goes into the first convolution where that is exact: where it cuts out patches and pads nothing.
 *
 * @throws {Error} one line, when the file has something that cannot be copied.
 */
export function withPixelInput(file: OnnxFile): {
  readonly model: OnnxModel;
  readonly normalisation: "folded" | "prepended";
} {
  const [input] = file.inputs;
  if (file.hasMore) throw new Error(`${file.path}: has functions or sparse weights: unsupported`);
  if (input === undefined || file.inputs.length !== 1) {
    throw new Error(`${file.path}: must have one input, got ${file.inputs.length}`);
  }
  // the planes have the shape of the input, so who asks for its shape only is no hindrance
  const readers = file.nodes.filter(
    ({ op, inputs }) => inputs.includes(input.name) && op !== "Shape",
  );
  const convolution = readers.length === 1 ? readers[0] : undefined;
  const weight = file.initializers.get(convolution?.inputs[1] ?? "");
  const bias = file.initializers.get(convolution?.inputs[2] ?? "");
  const folds =
    convolution?.op === "Conv" &&
    weight !== undefined &&
    isPatchConvolution(convolution, weight) &&
    (bias !== undefined || !convolution.inputs[2]);

  const initializers = [...file.initializers.values()]
    .filter(({ name }) => !folds || name !== weight.name || isUsedElsewhere(file, name))
    .map((tensor) => copyTensor(file, tensor));
  const nodes = file.nodes.map(
    (node): OnnxNode => ({
      ...node,
      domain: node.domain || undefined,
      attributes: undefined,
      inputs:
        folds && node === convolution
          ? [planesName, foldedName("weight"), foldedName("bias")]
          : node.inputs.map((name) => (name === input.name ? planesName : name)),
    }),
  );

  const opset = file.opsets.get("") ?? 1;
  const otherOpsets = Object.fromEntries([...file.opsets].filter(([domain]) => domain !== ""));
  return {
    normalisation: folds ? "folded" : "prepended",
    model: {
      producer: "clipstack",
      opset,
      otherOpsets,
      irVersion: file.irVersion,
      graphName: "with_pixel_input",
      inputs: [{ name: inputName, dataType: "UINT8", dims: ["batch", ...inputDims] }],
      outputs: file.outputs.map(({ name, dataType, dims }) => ({
        name,
        dims,
        dataType: elementTypeOf(dataType),
      })),
      nodes: [...(folds ? planes() : normalisedPlanes()), ...nodes],
      initializers: [
        ...initializers,
        ...(folds ? foldedConvolution(weight, bias) : normalisation()),
      ],
    },
  };
}

const foldedName = (part: string) => `clipstack.convolution.${part}`;

function isUsedElsewhere(file: OnnxFile, name: string): boolean {
  return file.nodes.filter(({ inputs }) => inputs.includes(name)).length > 1;
}

/** Interleaved bytes to planes of floats, 0 to 255. */
function planes(): readonly OnnxNode[] {
  const floats = "clipstack.floats";
  return [
    step("Cast", [inputName], floats, { to: 1 }),
    step("Transpose", [floats], planesName, { perm: [0, 3, 1, 2] }),
  ];
}

/** `p · (1 / (255 · std)) − mean / std`, by channel. */
function normalisedPlanes(): readonly OnnxNode[] {
  const [floats, scaled, shifted] = ["floats", "scaled", "shifted"].map(
    (name) => `clipstack.${name}`,
  ) as [string, string, string];
  return [
    step("Cast", [inputName], floats, { to: 1 }),
    step("Mul", [floats, "clipstack.scale"], scaled),
    step("Add", [scaled, "clipstack.shift"], shifted),
    step("Transpose", [shifted], planesName, { perm: [0, 3, 1, 2] }),
  ];
}

function step(
  op: string,
  inputs: readonly string[],
  output: string,
  attributes?: OnnxNode["attributes"],
): OnnxNode {
  return { name: output, op, inputs, outputs: [output], attributes };
}

function normalisation(): readonly OnnxInitializer[] {
  const { mean, std } = clipNormalisation;
  return [
    floats("clipstack.scale", [3], () => Float32Array.from(std, (value) => 1 / (255 * value))),
    floats("clipstack.shift", [3], () =>
      Float32Array.from(mean, (value, channel) => -value / std[channel]!),
    ),
  ];
}

function foldedConvolution(
  weight: OnnxTensor,
  bias: OnnxTensor | undefined,
): readonly OnnxInitializer[] {
  const [outputs = 0, channels = 0] = weight.dims;
  const area = weight.dims.slice(2).reduce((product, dim) => product * dim, 1);
  const { mean, std } = clipNormalisation;
  const channelOf = (index: number) => Math.floor(index / area) % channels;
  return [
    floats(foldedName("weight"), weight.dims, () =>
      readFloats(weight).map((value, index) => value / (255 * std[channelOf(index)]!)),
    ),
    floats(foldedName("bias"), [outputs], () => {
      const left = new Float64Array(outputs);
      if (bias !== undefined) left.set(readFloats(bias));
      for (const [index, value] of readFloats(weight).entries()) {
        const channel = channelOf(index);
        const out = Math.floor(index / (area * channels));
        left[out] = left[out]! - (value * mean[channel]!) / std[channel]!;
      }
      return Float32Array.from(left);
    }),
  ];
}

function floats(
  name: string,
  dims: readonly number[],
  values: () => Float32Array<ArrayBuffer>,
): OnnxInitializer {
  return { name, dataType: "FLOAT", dims, data: () => [new Uint8Array(values().buffer)] };
}

/**
 * A tensor of a file as it is.
 *
 * @throws {Error} one line, when it has a type that cannot be written.
 */
export function copyTensor(
  file: OnnxFile,
  { name, dataType: code, dims, ...data }: OnnxTensor,
): OnnxInitializer {
  const dataType = elementTypeOf(code);
  const { bytes, integers } = data;
  const count = dims.reduce((product, dim) => product * dim, 1);
  if (dataType === undefined || (bytes === undefined && integers === undefined && count > 0)) {
    throw new Error(`${file.path}: tensor '${name}' has a type that cannot be copied`);
  }
  return {
    name,
    dataType,
    dims,
    data: () =>
      bytes !== undefined ? tensorPieces(bytes) : [integerBytes(dataType, integers ?? [])],
  };
}

/** Values that the file has as a list of integers, in the bytes of their type. */
function integerBytes(dataType: OnnxElementType, values: readonly number[]): Uint8Array {
  if (dataType === "INT64") {
    return new Uint8Array(BigInt64Array.from(values, (value) => BigInt(value)).buffer);
  }
  if (dataType === "INT32") return new Uint8Array(Int32Array.from(values).buffer);
  // half floats are kept as the number of their bits
  if (["UINT16", "INT16", "FLOAT16", "BFLOAT16"].includes(dataType)) {
    return new Uint8Array(Uint16Array.from(values).buffer);
  }
  return Uint8Array.from(values);
}
