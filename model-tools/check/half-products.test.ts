import { expect, test } from "vitest";
import { type OnnxFileAttribute, tensorTypes } from "../onnx/reader.ts";
import { productsNotInHalf } from "./half-products.ts";

const { float, half } = tensorTypes;

const node = (
  op: string,
  inputs: readonly string[],
  output: string,
  attributes: Readonly<Record<string, OnnxFileAttribute>> = {},
) => ({
  name: output,
  op,
  domain: "",
  inputs,
  outputs: [output],
  attributes: new Map(Object.entries(attributes)),
});

const graph = (weight: number, ...nodes: readonly ReturnType<typeof node>[]) => ({
  inputs: [{ name: "image", dataType: float, dims: ["batch", 4] }],
  initializers: new Map([["weight", { name: "weight", dataType: weight, dims: [4, 4] }]]),
  nodes,
});
const cast = (input: string, output: string, to: number) =>
  node("Cast", [input], output, { to: { int: to } });

test("accepts a graph that casts its input and output", () => {
  const nodes = [
    cast("image", "x", half),
    node("MatMul", ["x", "weight"], "y"),
    node("Transpose", ["y"], "z"),
    node("MatMul", ["y", "z"], "attention"),
    cast("attention", "embedding", float),
  ];
  expect(productsNotInHalf(graph(half, ...nodes))).toEqual([]);
});

test("names multiplications with FP32 weights, or of FP32 activations alone", () => {
  expect(productsNotInHalf(graph(float, node("Gemm", ["image", "weight"], "y")))).toEqual(["y"]);
  const nodes = [
    cast("image", "x", half),
    node("MatMul", ["x", "weight"], "y"),
    cast("y", "y32", float),
    node("Softmax", ["y32"], "z"),
    node("MatMul", ["z", "y32"], "attention"),
  ];
  expect(productsNotInHalf(graph(half, ...nodes))).toEqual(["attention"]);
});

test("names a multiplication whose input has an unknown type", () => {
  const nodes = [node("Custom", [], "x"), node("MatMul", ["x", "weight"], "y")];
  expect(productsNotInHalf(graph(half, ...nodes))).toEqual(["y"]);
});
