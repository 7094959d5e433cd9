import { readFileSync } from "node:fs";
import { imagePixels, normalisedImage } from "../../contract/model-shapes.ts";
import { type ImageTower, valueRanges } from "../../contract/model-spec.ts";
import { GraphBuilder } from "../graph/graph-builder.ts";
import { onnxMessage } from "../onnx/proto.ts";
import type { OnnxFile } from "../onnx/reader.ts";
import { onnxChunks } from "../onnx/writer.ts";

/** Messages of `onnx.proto`, decoded, with the fields that are changed. */
interface ModelMessage {
  readonly graph: GraphMessage;
}
interface GraphMessage {
  node: unknown[];
  initializer: { readonly name: string }[];
  input: { readonly name: string }[];
}

/** Prefix of the added values, so that they do not collide with the names of the graph. */
const prefix = "pixel_input";

/**
 * Returns a model file with 8-bit pixels as input: the graph of `path` after a conversion of pixels to its normalised input. The
 * conversion uses standard operators; layout, channel order and normalisation are those of the tower. External data becomes part of the
 * file.
 *
 * @param source - Image tower with the FP32 input of the spec.
 * @throws {Error} with one line if the graph has no such input
 */
export function pixelInputModel(source: OnnxFile, tower: ImageTower): Uint8Array {
  const { path } = source;
  const type = onnxMessage("ModelProto");
  const model = type.decode(readFileSync(path)) as unknown as ModelMessage;
  const { graph } = model;
  const { tensor: name } = tower.input;
  const index = graph.input.findIndex((input) => input.name === name);
  if (index < 0) {
    const names = graph.input.map((input) => `'${input.name}'`).join(", ");
    throw new Error(`${path}: must have the input '${name}', got ${names || "none"}`);
  }
  for (const tensor of graph.initializer) {
    const { bytes, externalFile } = source.initializers.get(tensor.name) ?? {};
    if (externalFile === undefined) continue;
    if (bytes === undefined) throw new Error(`${path}: '${tensor.name}' has an unsupported type`);
    Object.assign(tensor, { raw_data: bytes, data_location: 0, external_data: [] });
  }
  const added = type.decode(conversionModel(tower)) as unknown as ModelMessage;
  const values = `${prefix}.values`;
  for (const node of graph.node as { input: string[] }[]) {
    node.input = node.input.map((input) => (input === name ? values : input));
  }
  graph.input[index] = added.graph.input[0]!;
  graph.node = [...added.graph.node, ...graph.node];
  graph.initializer = [...added.graph.initializer, ...graph.initializer];
  return type.encode(model as object).finish();
}

/** Model that converts `[batch, height, width, 3]` UINT8 to the normalised input. */
function conversionModel(tower: ImageTower): Uint8Array {
  const { input } = tower;
  const graph = new GraphBuilder();
  const step = (name: string) => `${prefix}.${name}`;
  // not every execution provider moves bytes, so pixels become floats first
  let value = graph.node("Cast", step("floats"), [input.tensor], { to: 1 });
  if (input.channelOrder === "bgr") {
    const order = graph.integers(step("channel_order"), [2, 1, 0]);
    value = graph.node("Gather", step("channels"), [value, order], { axis: 3 });
  }
  const scale = 255 / valueRanges[input.valueRange];
  const constant = (name: string, values: readonly number[]) =>
    graph.floats(step(name), [3], () => Float32Array.from(values, (item) => item * scale));
  value = graph.node("Sub", step("centred"), [value, constant("mean", input.mean)]);
  const isNhwc = input.layout === "nhwc";
  const deviations = constant("std", input.std);
  value = graph.node("Div", step(isNhwc ? "values" : "scaled"), [value, deviations]);
  if (!isNhwc) value = graph.transpose(step("values"), value, [0, 3, 1, 2]);
  return Buffer.concat(
    Array.from(
      onnxChunks({
        ...{ producer: "clipstack", opset: 17, irVersion: 8, graphName: prefix },
        inputs: [
          { name: input.tensor, dataType: "UINT8", dims: ["batch", ...imagePixels(tower).dims] },
        ],
        outputs: [{ name: value, dims: ["batch", ...normalisedImage(tower).dims] }],
        nodes: graph.nodes,
        initializers: graph.initializers,
      }),
      (piece) => Buffer.from(piece),
    ),
  );
}
