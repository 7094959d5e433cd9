import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { onnxChunks } from "../../model-tools/onnx/writer.ts";
import { type GroupOptions, group } from "./group.ts";
import { openPhotoDatabase, type PhotoDatabase } from "./photo-database.ts";
import {
  cosineBlockGraph,
  hashPairs,
  maxPairsPerPhoto,
  openCosineBlocks,
} from "./similar-pairs.ts";
import { cosineBlockModel } from "./test-cosine-block.ts";
import { silent, temporaryFolder } from "./test-photos.ts";
import { noisyCopies } from "./test-vectors.ts";

test("the embedded graph equals the output of the ONNX writer", () => {
  const bytes = Buffer.concat([...onnxChunks(cosineBlockModel)].map((chunk) => Buffer.from(chunk)));
  expect(cosineBlockGraph).toBe(bytes.toString("base64"));
});

test("finds the same pairs as a simple loop, over all blocks", async () => {
  const table = noisyCopies({ originals: 1_700, copies: 2, width: 16, noise: 0.1, seed: 3 });
  const { width, count, data } = table;
  const expected: string[] = [];
  for (let a = 0; a < count; a++) {
    for (let b = a + 1; b < count; b++) {
      let cosine = 0;
      for (let k = 0; k < width; k++) cosine += data[a * width + k]! * data[b * width + k]!;
      if (cosine >= 0.97) expected.push(`${a}-${b}`);
    }
  }
  expect(expected.length).toBeGreaterThan(1_000);
  const found: string[] = [];
  const blocks = await openCosineBlocks();
  const onHit = (a: number, b: number) => found.push(`${a}-${b}`);
  await blocks.compare(table, table, {
    limits: new Float32Array(table.count).fill(0.97),
    self: true,
    onHit,
  });
  await blocks.close();
  expect(found.sort()).toEqual(expected.sort());
});

test("finds hashes that differ in few bits", async () => {
  const hashes = ["0000000000000000", "0000000000000007", "f000000000000000", "fffffff0000fffff"];
  const pairs: (readonly [number, number])[] = [];
  await hashPairs(hashes, 4, { onPair: (a, b) => pairs.push([a, b]) });
  expect(pairs).toEqual([
    [0, 1],
    [0, 2],
  ]);
});

let folder: string;
let database: PhotoDatabase;

beforeEach(() => {
  folder = join(temporaryFolder(), "photos");
  mkdirSync(folder);
  database = openPhotoDatabase(join(folder, "../photos.db"), "create");
});

afterEach(() => database.close());

const options: GroupOptions = {
  by: "embedding",
  threshold: 0.9,
  confirm: 64,
  distance: 8,
  linkage: "complete",
  progress: silent,
};

/** Writes photos that exist only in the index. The same value of `md5` means the same bytes. */
function write(photos: Readonly<Record<string, readonly number[]>>, md5?: string): void {
  database.run(
    "INSERT OR IGNORE INTO models (id, name, width, probe, weights) VALUES (1, 'example', 2, '[1,0]', 'unknown')",
  );
  for (const [path, values] of Object.entries(photos)) {
    database.run(
      `INSERT INTO photos (path, root, bytes, mtime_ms, state, seen, md5, hash) VALUES (?, '/', 1, 1, 'present', 1, ?, '00ff00ff00ff00ff')`,
      path,
      md5 ?? path,
    );
    const norm = Math.hypot(...values);
    const vector = Float32Array.from(values, (value) => value / norm);
    database.run(
      "INSERT OR REPLACE INTO embeddings (model, md5, vector) VALUES (1, ?, ?)",
      md5 ?? path,
      new Uint8Array(vector.buffer),
    );
  }
}

test("groups similar photos in the order of their paths", async () => {
  write({ "/c": [1, 0.1], "/b": [0, 1], "/a": [1, 0], "/d": [0.05, 1], "/e": [-1, 0] });
  const { groups, photos, withoutEmbedding } = await group(database, options);
  expect({ groups, photos, withoutEmbedding }).toEqual({
    groups: [
      ["/a", "/c"],
      ["/b", "/d"],
    ],
    photos: 5,
    withoutEmbedding: 0,
  });
});

const chain = { "/a": [1, 0], "/b": [1, 0.45], "/c": [1, 1], "/d": [0, 1] };

test("splits a chain of similar photos, so that every two of a group are similar", async () => {
  write(chain);
  const { groups } = await group(database, options);
  // a and b are closer than b and c
  expect(groups).toEqual([["/b", "/c"]]);
});

test("joins a chain of similar photos with the linkage chain", async () => {
  write(chain);
  const { groups, how } = await group(database, { ...options, linkage: "chain" });
  expect(groups).toEqual([["/a", "/b", "/c"]]);
  expect(how).toBe("example, cosine of at least 0.9, chains of similar photos");
});

test("confirms similar embeddings with the perceptual hash, in any orientation", async () => {
  write({ "/a": [1, 0], "/b": [1, 0.01], "/c": [1, 0.02] });
  // a mirrored picture negates every second column
  database.run("UPDATE photos SET hash = 'aa55aa55aa55aa55' WHERE path = '/b'");
  database.run("UPDATE photos SET hash = '0f0f0f0f0f0f0f0f' WHERE path = '/c'");
  const { groups } = await group(database, { ...options, confirm: 4 });
  expect(groups).toEqual([["/a", "/b"]]);
});

test("compares only new embeddings with those of earlier runs", async () => {
  write({ "/a": [1, 0], "/b": [0, 1] });
  expect(await group(database, options)).toMatchObject({ compared: 2, groups: [] });
  write({ "/c": [1, 0.1] });
  expect(await group(database, options)).toMatchObject({ compared: 1, groups: [["/a", "/c"]] });
  expect(await group(database, options)).toMatchObject({ compared: 0, groups: [["/a", "/c"]] });
});

test("compares all embeddings again if the stored pairs do not suffice", async () => {
  write({ "/a": [1, 0], "/b": [1, 0.3] });
  expect(await group(database, { ...options, threshold: 0.99 })).toMatchObject({ groups: [] });
  expect(await group(database, options)).toMatchObject({ compared: 2, groups: [["/a", "/b"]] });
  const stricter = { ...options, threshold: 0.99 };
  expect(await group(database, stricter)).toMatchObject({ compared: 0, groups: [] });
});

test("finds one group of many near-equal photos, with a bounded number of pairs", async () => {
  const count = 1_000;
  write(Object.fromEntries(Array.from({ length: count }, (_, i) => [`/${i}`, [1, i / 1e5]])));
  const { groups } = await group(database, options);
  expect(groups.map(({ length }) => length)).toEqual([count]);
  const pairs = database.get<{ readonly n: number }>("SELECT count(*) AS n FROM pairs")!.n;
  expect(pairs).toBeLessThanOrEqual(count * maxPairsPerPhoto);
});

test("omits missing photos and photos without an embedding", async () => {
  write({ "/a": [1, 0], "/b": [1, 0], "/c": [1, 0] });
  database.run("UPDATE photos SET state = 'gone' WHERE path = '/a'");
  database.run("DELETE FROM embeddings WHERE md5 = '/b'");
  expect(await group(database, options)).toMatchObject({
    groups: [],
    photos: 1,
    withoutEmbedding: 1,
  });
});

test("groups by perceptual hash without any embedding", async () => {
  write({ "/a": [1, 0], "/b": [0, 1] });
  database.run("DELETE FROM embeddings");
  const { groups, how } = await group(database, { ...options, by: "hash" });
  expect(groups).toEqual([["/a", "/b"]]);
  expect(how).toBe("perceptual hash, at most 8 of 64 bits differ");
});

test("fails if nothing was scanned or nothing was embedded", async () => {
  await expect(group(database, options)).rejects.toThrow(
    "no photos: run 'clipstack-dedupe scan' first",
  );
  write({ "/a": [1, 0] });
  database.run("DELETE FROM embeddings");
  await expect(group(database, options)).rejects.toThrow(
    "no embeddings: run 'clipstack-dedupe embed' first, or group with --by hash",
  );
});

test("photos with the same bytes are in one group with similar photos", async () => {
  write({ "/copy 1": [1, 0], "/copy 2": [1, 0], "/copy 3": [1, 0] }, "same");
  write({ "/a": [1, 0.1], "/b": [0, 1] });
  const copies = ["/copy 1", "/copy 2", "/copy 3"];
  expect((await group(database, options)).groups).toEqual([["/a", ...copies]]);
  const alone = await group(database, { ...options, threshold: 1 });
  expect(alone).toMatchObject({ groups: [copies], photos: 5 });
});
