import {
  type OnnxFile,
  type OnnxFileNode,
  type OnnxTensor,
  readFloats,
  readIntegers,
  tensorTypes,
} from "../onnx/reader.ts";
import type { TowerMatrix } from "./tower.ts";

/** Operators that move values without changing them. */
export const layoutOps: ReadonlySet<string> = new Set([
  "Identity",
  "Cast",
  "Reshape",
  "Flatten",
  "Transpose",
  "Squeeze",
  "Unsqueeze",
  "Dropout",
]);

/** Values of an ONNX graph by name. Operators that only change shape or layout are skipped. */
export class OnnxGraph {
  readonly #initializers: OnnxFile["initializers"];
  readonly #producers: ReadonlyMap<string, OnnxFileNode>;

  constructor(file: OnnxFile) {
    this.#initializers = file.initializers;
    this.#producers = new Map(
      file.nodes.flatMap((node) => node.outputs.map((name) => [name, node] as const)),
    );
  }

  /** Operator that computes a value, layout operators included. */
  producer(value: string): OnnxFileNode | undefined {
    return this.#producers.get(value);
  }

  /** Returns the name of the value from which this one was made by operators that only change its shape or layout. */
  origin(value: string): string {
    for (let name = value; ; ) {
      const node = this.producer(name);
      if (node === undefined || !layoutOps.has(node.op)) return name;
      name = node.inputs[0]!;
    }
  }

  /** Operator that computes a value, ignoring all that only move it. */
  source(value: string): OnnxFileNode | undefined {
    return this.producer(this.origin(value));
  }

  same(a: string, b: string): boolean {
    return this.origin(a) === this.origin(b);
  }

  /** Returns the weights of which a value consists, in any shape. `transposed` is set if the layout operators transpose the value. */
  constant(value: string | undefined): TowerMatrix | undefined {
    let transposed = false;
    for (let name = value; name !== undefined && name !== ""; ) {
      const tensor = this.#initializers.get(name);
      if (tensor !== undefined) return { tensor, transposed };
      const node = this.producer(name);
      if (node === undefined || !layoutOps.has(node.op)) return undefined;
      if (node.op === "Transpose") transposed = !transposed;
      name = node.inputs[0];
    }
    return undefined;
  }

  integers(value: string | undefined): readonly number[] | undefined {
    const constant = value === undefined ? undefined : this.constant(value);
    return constant && readIntegers(constant.tensor);
  }

  scalar(tensor: OnnxTensor): number | undefined {
    if (tensor.dataType !== tensorTypes.float || elements(tensor) !== 1) return undefined;
    return readFloats(tensor)[0];
  }

  scalarOf(value: string): number | undefined {
    const constant = this.constant(value);
    return constant && this.scalar(constant.tensor);
  }

  /** Operands of a node, if one of them is constant. */
  withConstant(node: OnnxFileNode): { constant: OnnxTensor; value: string } | undefined {
    const [a, b] = node.inputs as [string, string];
    const right = this.constant(b);
    if (right !== undefined) return { constant: right.tensor, value: a };
    const left = this.constant(a);
    return left && { constant: left.tensor, value: b };
  }

  /** Product of the constant factors of a value, and its other factors. */
  factors(value: string): { constant: number; others: readonly string[]; unknown: boolean } {
    const node = this.source(value);
    const [a, b] = node?.inputs ?? [];
    if ((node?.op === "Mul" || node?.op === "Div") && a !== undefined && b !== undefined) {
      const divisor = this.scalarOf(b);
      if (divisor !== undefined) {
        const rest = this.factors(a);
        const constant = node.op === "Mul" ? rest.constant * divisor : rest.constant / divisor;
        return { ...rest, constant };
      }
      const factor = this.scalarOf(a);
      if (factor !== undefined && node.op === "Mul") {
        const rest = this.factors(b);
        return { ...rest, constant: rest.constant * factor };
      }
      // a factor computed from a shape, such as 1 / sqrt(head width)
      if (this.followsFromShapes(b, 0)) return { ...this.factors(a), unknown: true };
      if (node.op === "Mul") {
        const [left, right] = [this.factors(a), this.factors(b)];
        return {
          constant: left.constant * right.constant,
          others: [...left.others, ...right.others],
          unknown: left.unknown || right.unknown,
        };
      }
    }
    return { constant: 1, others: [value], unknown: false };
  }

  /** Returns whether a value is computed from shapes and constants alone. */
  followsFromShapes(value: string, depth: number): boolean {
    if (this.#initializers.has(value)) return true;
    const node = this.producer(value);
    if (node === undefined || depth > 16) return false;
    return (
      node.op === "Shape" || node.inputs.every((input) => this.followsFromShapes(input, depth + 1))
    );
  }
}

export function elements({ dims }: OnnxTensor): number {
  return dims.reduce((product, dim) => product * dim, 1);
}
