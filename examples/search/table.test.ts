import { mkdtemp, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Table, type Vector, vectorFromArray } from "apache-arrow";
import { expect, test } from "vitest";
import { parquetBytes } from "../../bulk/table/arrow-parquet.ts";
import { partBytes } from "../../bulk/table/part.ts";
import { readTable } from "./table.ts";

const facts = { fingerprint: "f", model: "m", width: 2, vectors: "float32" } as const;

function part(name: string, width: number, others: object = {}) {
  const sizes = { width: 1, height: 1 };
  const row = { uri: name, etag: "", sha256: "0".repeat(64), ...sizes };
  return partBytes([{ ...row, embedding: new Float32Array(width).fill(0.5) }], {
    ...facts,
    width,
    ...others,
  });
}

async function folderOf(files: Readonly<Record<string, Uint8Array>>) {
  const folder = await mkdtemp(join(tmpdir(), "table-"));
  for (const [name, content] of Object.entries(files)) await writeFile(join(folder, name), content);
  return folder;
}

test("reads the rows of all files", async () => {
  const folder = await folderOf({ "a.parquet": part("a", 2), "b.parquet": part("b", 2) });
  expect(await readTable(folder)).toMatchObject({ uris: ["a", "b"], count: 2, width: 2 });
});

test.each([
  ["of another dimension", part("b", 3), "m f with 3 values"],
  ["of other weights", part("b", 2, { fingerprint: "g" }), "m g with 2 values"],
])("rejects vectors %s", async (_, other, got) => {
  const folder = await folderOf({ "a.parquet": part("a", 2), "b.parquet": other });
  await expect(readTable(folder)).rejects.toMatchObject({
    code: "usage",
    message: `'${folder}' must contain vectors of one model, got m f with 2 values and ${got}`,
  });
});

test.each([
  ["uri", { other: vectorFromArray(["a"]) }, "got none"],
  [
    "embedding",
    { uri: vectorFromArray(["a"]), etag: vectorFromArray([""]), embedding: vectorFromArray([[1]]) },
    "got List<Float64>",
  ],
])("names a file that another program wrote, without the column %s", async (name, columns, got) => {
  const folder = await folderOf({
    "a.parquet": parquetBytes(new Table(columns as Record<string, Vector>)),
  });
  await expect(readTable(folder)).rejects.toThrow(
    `'${join(folder, "a.parquet")}' must have the column ${name} as 'clipstack bulk' writes it, ${got}`,
  );
});

test("names a damaged file", async () => {
  const folder = await folderOf({ "a.parquet": Buffer.from("x") });
  await expect(readTable(folder)).rejects.toThrow(
    `'${join(folder, "a.parquet")}' cannot be read: EOF: Parquet file too small`,
  );
});
