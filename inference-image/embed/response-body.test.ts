import fc from "fast-check";
import { expect, test } from "vitest";
import { defaultModel } from "../../contract/models/index.ts";
import { binaryBody, jsonBody } from "./response-body.ts";

const value = fc.oneof(
  fc.float({ min: -1, max: 1, noNaN: true }),
  fc.constantFrom(0, -0, 1, -1, 1e-9, -4e-9, 0.1, 0.5, -0.00001),
);
const vectors = fc.array(
  fc
    .array(value, { minLength: 1, maxLength: 20 })
    .map((values) =>
      Float32Array.from(
        { length: defaultModel.embedding.width },
        (_, index) => values[index % values.length]!,
      ),
    ),
  { maxLength: 3 },
);

test("a JSON response equals JSON.stringify of the rounded values", async () => {
  await fc.assert(
    fc.asyncProperty(vectors, fc.string(), async (rows, model) => {
      const rounded = rows.map((row) => Array.from(row, (one) => Math.round(one * 1e8) / 1e8));
      const expected = JSON.parse(JSON.stringify({ embeddings: rounded, model }));
      expect(JSON.parse((await jsonBody(rows, model)).toString())).toEqual(expected);
    }),
  );
});

test("a binary response is little-endian float32, row by row", () => {
  const rows = [0, 1].map((row) => Float32Array.from({ length: 3 }, (_, at) => row + at / 4));
  const bytes = binaryBody(rows);
  expect(Array.from({ length: 6 }, (_, at) => bytes.readFloatLE(4 * at))).toEqual([
    0, 0.25, 0.5, 1, 1.25, 1.5,
  ]);
});
