import { expect, test } from "vitest";
import { bestDuplicateScore, cosines, nearestNeighbours, neighbourAgreement } from "./accuracy.ts";

const vectors = (...degrees: readonly number[]) =>
  degrees.map((angle, index) => {
    const radians = (angle * Math.PI) / 180;
    // lengths do not matter
    return Float32Array.of((index + 1) * Math.cos(radians), (index + 1) * Math.sin(radians));
  });

const labels = ["a", "a", "b", "b", "c"];

test("the nearest neighbour has the highest cosine", () => {
  expect(nearestNeighbours(vectors(0, 10, 12, 90))).toEqual([1, 2, 1, 2]);
});

test("agreement is the share of vectors with the same neighbour", () => {
  const expected = vectors(0, 10, 12, 90);
  expect(neighbourAgreement(expected, expected)).toBe(1);
  expect(neighbourAgreement(expected, vectors(0, 5, 12, 90))).toBe(0.75);
});

test("the best threshold separates duplicates from other pairs", () => {
  const score = bestDuplicateScore(labels, cosines(vectors(0, 3, 60, 64, 70)));
  expect(score).toMatchObject({ precision: 1, recall: 1 });
  expect(score.threshold).toBeCloseTo(Math.cos((4 * Math.PI) / 180), 5);
});

test("a pair that is nearer than a duplicate lowers the precision", () => {
  const score = bestDuplicateScore(labels, cosines(vectors(0, 3, 60, 64, 65)));
  expect(score).toMatchObject({ precision: 2 / 3, recall: 1 });
});

test("fails without duplicates", () => {
  expect(() => bestDuplicateScore(["a", "b"], cosines(vectors(0, 1)))).toThrow(
    "no two labels are equal",
  );
});
