import { expect, test } from "vitest";
import { parquetTable } from "./arrow-parquet.ts";
import {
  type EmbeddedImage,
  failuresBytes,
  halfFloats,
  partBytes,
  readFailures,
  readPart,
} from "./part.ts";

const row: EmbeddedImage = {
  uri: "s3://photos/ü.jpg",
  etag: "1",
  sha256: "0".repeat(64),
  width: 640,
  height: 480,
  embedding: Float32Array.of(0.6, -0.8, 0),
};
const facts = { fingerprint: "f".repeat(64), model: "m", width: 3, vectors: "float32" } as const;

test("a part contains its rows and the fingerprint", () => {
  const rows = [row, { ...row, uri: "s3://photos/b.jpg" }];
  expect(readPart(partBytes(rows, facts))).toEqual({ fingerprint: facts.fingerprint, rows });
});

test.each([
  ["float32", "FixedSizeList[3]<Float32>"],
  ["float16", "FixedSizeList[3]<Float16>"],
] as const)("embeddings of %s are lists of fixed size", (vectors, type) => {
  const table = parquetTable(partBytes([row], { ...facts, vectors }));
  expect(String(table.getChild("embedding")?.type)).toBe(type);
});

test("a part without rows can be read", () => {
  expect(readPart(partBytes([], facts)).rows).toEqual([]);
});

test("half floats are rounded to the nearest, ties to even", () => {
  const cases = [0, 1, -1, 0.5, 0.49999, 1 + 2 ** -11, 1 + 3 * 2 ** -11, 2 ** -24, 2 ** -14, 1 / 3];
  const half = [0, 0x3c00, 0xbc00, 0x3800, 0x3800, 0x3c00, 0x3c02, 1, 0x0400, 0x3555];
  expect([...halfFloats(Float32Array.from(cases))]).toEqual(half);
});

test("failures contain code and reason", () => {
  const failure = { uri: "a", etag: "", code: "undecodable_image", reason: "cannot be decoded" };
  expect(readFailures(failuresBytes([failure]))).toEqual([failure]);
});
