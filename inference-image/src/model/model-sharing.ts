import type { Sharing, ValueMetadata } from "../engine/onnx-session.ts";
import { type OnnxValue, readOnnx, tensorTypes } from "./onnx-reader.ts";

/** The runtime's names of what goes into and comes out of a model whose weights are shared. */
const valueTypes: Readonly<Record<number, string | undefined>> = {
  [tensorTypes.float]: "float32",
  [tensorTypes.uint8]: "uint8",
};

/**
 * What sessions must know of a model file to share its weights; `undefined` where they cannot: its large weights must lie in one
 * other file, and its outputs must be FP32 of a known size.
 *
 * @throws {Error} one line, when the file is missing, is not ONNX, is cut short, or lacks its external data.
 */
export function readSharing(modelPath: string): Sharing | undefined {
  const model = readOnnx(modelPath);
  const inputs = model.inputs.map(metadataOf);
  const outputs = model.outputs.map(metadataOf);
  const fits =
    inputs.every(({ type }) => type !== "") &&
    outputs.every(
      ({ type, shape }) =>
        type === "float32" && shape.slice(1).every((dim) => typeof dim === "number"),
    );
  const apart = [...model.initializers.values()].flatMap(({ name, dataType, dims, bytes }) =>
    bytes === undefined || bytes.file === model.path ? [] : [{ name, dataType, dims, ...bytes }],
  );
  const [file, ...others] = new Set(apart.map((initializer) => initializer.file));
  if (!fits || file === undefined || others.length > 0) return undefined;
  const initializers = apart.map(({ file: _one, ...initializer }) => initializer);
  return { inputs, outputs, weights: { file, initializers } };
}

function metadataOf({ name, dataType, dims }: OnnxValue): ValueMetadata {
  return { name, type: valueTypes[dataType] ?? "", shape: dims };
}
