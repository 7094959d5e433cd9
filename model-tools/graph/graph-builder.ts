import { type OnnxTensor, readFloats } from "../onnx/reader.ts";
import {
  int64Initializer,
  type OnnxAttribute,
  type OnnxInitializer,
  type OnnxNode,
  scalarInitializer,
} from "../onnx/writer.ts";
import { elements } from "./onnx-graph.ts";
import type { ProjectionColumns, TowerBlock, TowerNorm } from "./tower.ts";
import { bytesOf, type Matrix, matrixOf } from "./tower-weights.ts";

/** Collects the nodes and initializers of a graph. Each method adds one layer and returns the name of its output. */
export class GraphBuilder {
  readonly nodes: OnnxNode[] = [];
  readonly #initializers = new Map<string, OnnxInitializer>();

  get initializers(): readonly OnnxInitializer[] {
    return [...this.#initializers.values()];
  }

  node(
    op: string,
    name: string,
    inputs: readonly string[],
    attributes?: Record<string, OnnxAttribute>,
  ): string {
    this.nodes.push({ name, op, inputs, outputs: [name], attributes });
    return name;
  }

  initializer(initializer: OnnxInitializer): string {
    this.#initializers.set(initializer.name, initializer);
    return initializer.name;
  }

  integers(name: string, values: readonly number[]): string {
    return this.initializer(int64Initializer(name, values));
  }

  floats(name: string, dims: readonly number[], values: () => Float32Array): string {
    return this.initializer({ name, dataType: "FLOAT", dims, data: () => [bytesOf(values())] });
  }

  #vector(name: string, tensor: OnnxTensor): string {
    return this.floats(name, [elements(tensor)], () => readFloats(tensor));
  }

  scalar(name: string, value: number): string {
    return this.initializer(scalarInitializer(name, value));
  }

  reshape(name: string, input: string, shape: readonly number[]): string {
    return this.node("Reshape", name, [input, this.integers(`shape.${shape.join("x")}`, shape)]);
  }

  transpose(name: string, input: string, perm: readonly number[]): string {
    return this.node("Transpose", name, [input], { perm });
  }

  product(name: string, input: string, { from, to, pieces }: Matrix, bias?: string): string {
    const weight = this.initializer({
      name: `${name}.weight`,
      dataType: "FLOAT",
      dims: [from, to],
      data: pieces,
    });
    return bias === undefined
      ? this.node("MatMul", name, [input, weight])
      : this.node("Gemm", name, [input, weight, bias]);
  }

  /** @param factor - Multiplies weights and bias. */
  linear(name: string, input: string, columns: ProjectionColumns, factor = 1): string {
    const matrix = matrixOf(columns, factor);
    return this.product(name, input, matrix, this.#bias(name, columns, matrix.to, factor));
  }

  #bias(
    name: string,
    { linear: { bias }, part }: ProjectionColumns,
    to: number,
    factor: number,
  ): string | undefined {
    if (bias === undefined) return undefined;
    return this.floats(`${name}.bias`, [to], () =>
      readFloats(bias)
        .subarray(part * to, (part + 1) * to)
        .map((value) => value * factor),
    );
  }

  norm(name: string, input: string, { gain, bias, epsilon }: TowerNorm): string {
    const inputs = [input, this.#vector(`${name}.gain`, gain), this.#vector(`${name}.bias`, bias)];
    return this.node("LayerNormalization", name, inputs, { axis: -1, epsilon: { float: epsilon } });
  }

  /** Divides each row by its L2 norm. */
  unitLength(name: string, input: string): string {
    const attributes = { axes: [-1], keepdims: 1 };
    const length = this.node("ReduceL2", `${name}.length`, [input], attributes);
    return this.node("Div", name, [input, length]);
  }

  activation(name: string, input: string, kind: TowerBlock["activation"]): string {
    if (kind === "quick-gelu") {
      const steep = this.node("Mul", `${name}.steep`, [
        input,
        this.scalar("quick_gelu.slope", 1.702),
      ]);
      return this.node("Mul", name, [input, this.node("Sigmoid", `${name}.gate`, [steep])]);
    }
    const divided = this.node("Div", `${name}.div`, [input, this.scalar("gelu.sqrt2", Math.SQRT2)]);
    const erf = this.node("Erf", `${name}.erf`, [divided]);
    const gate = this.node("Add", `${name}.gate`, [erf, this.scalar("gelu.one", 1)]);
    const gated = this.node("Mul", `${name}.gated`, [input, gate]);
    return this.node("Mul", name, [gated, this.scalar("gelu.half", 0.5)]);
  }
}
