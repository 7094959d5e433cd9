import { readFileSync } from "node:fs";
import protobuf from "protobufjs";

let root: protobuf.Root | undefined;

/** Returns a message type of ONNX's `onnx.proto` (release 1.23.2), such as `TensorProto`. */
export function onnxMessage(name: string): protobuf.Type {
  if (root === undefined) {
    const text = readFileSync(new URL("./proto/onnx.proto", import.meta.url), "utf8");
    root = new protobuf.Root();
    protobuf.parse(text, root, { keepCase: true });
    root.resolveAll();
  }
  return root.lookupType(`onnx.${name}`);
}
