import type { OnnxModel } from "../../model-tools/onnx/writer.ts";

/** Graph embedded as bytes in `cosine-blocks.ts`: rows times columns, and the largest value of each row. */
export const cosineBlockModel: OnnxModel = {
  producer: "clipstack",
  opset: 17,
  irVersion: 8,
  graphName: "cosines",
  inputs: [
    { name: "rows", dims: ["m", "width"] },
    { name: "columns", dims: ["n", "width"] },
  ],
  outputs: [
    { name: "cosines", dims: ["m", "n"] },
    { name: "largest", dims: ["m"] },
  ],
  nodes: [
    {
      name: "cosines",
      op: "Gemm",
      inputs: ["rows", "columns"],
      outputs: ["cosines"],
      attributes: { transB: 1 },
    },
    {
      name: "largest",
      op: "ReduceMax",
      inputs: ["cosines"],
      outputs: ["largest"],
      attributes: { axes: [1], keepdims: 0 },
    },
  ],
  initializers: [],
};
