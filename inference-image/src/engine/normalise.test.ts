import fc from "fast-check";
import { expect, test } from "vitest";
import { normaliseInPlace } from "./normalise.ts";

test("gives any vector but zero unit norm and the same direction", () => {
  fc.assert(
    fc.property(
      fc.float32Array({ minLength: 1, maxLength: 64, min: -1000, max: 1000, noNaN: true }),
      (vector) => {
        const before = Float64Array.from(vector);
        const norm = Math.hypot(...before);
        fc.pre(norm > 1e-6);
        normaliseInPlace(vector);
        expect(Math.hypot(...vector)).toBeCloseTo(1, 5);
        for (const [index, value] of vector.entries()) {
          expect(value).toBeCloseTo(before[index]! / norm, 5);
        }
      },
    ),
  );
});

test("leaves a vector of zeros as it is", () => {
  expect(normaliseInPlace(new Float32Array(3))).toEqual(new Float32Array(3));
});
