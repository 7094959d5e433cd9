import fc from "fast-check";
import { expect, test } from "vitest";
import { unitVector } from "./embeddings.ts";

test("normalises any non-zero vector and keeps its direction", () => {
  fc.assert(
    fc.property(
      fc.float32Array({ minLength: 1, maxLength: 64, min: -1000, max: 1000, noNaN: true }),
      (vector) => {
        const before = Float64Array.from(vector);
        const norm = Math.hypot(...before);
        fc.pre(norm > 1e-6);
        unitVector(vector, 0);
        expect(Math.hypot(...vector)).toBeCloseTo(1, 5);
        for (const [index, value] of vector.entries()) {
          expect(value).toBeCloseTo(before[index]! / norm, 5);
        }
      },
    ),
  );
});

test.each([
  [[0, 0], "0"],
  [[1, Number.NaN], "NaN"],
  [[Number.NEGATIVE_INFINITY, 1], "Infinity"],
])("fails on %o", (values, norm) => {
  expect(() => unitVector(Float32Array.from(values), 3)).toThrow(
    `[failed] image 3 must have an embedding of finite, non-zero norm, got ${norm}`,
  );
});
