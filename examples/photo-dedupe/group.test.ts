import { mkdirSync } from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { afterEach, beforeEach, expect, test } from "vitest";
import { onnxChunks } from "../../inference-image/src/model/onnx-writer.ts";
import { completeLinkage, components } from "./cluster.ts";
import { cosineBlockGraph } from "./cosine-block.ts";
import { type GroupOptions, group } from "./group.ts";
import { openPhotoDatabase, type PhotoDatabase } from "./photo-database.ts";
import {
  approximatePairs,
  exactPairs,
  hashPairs,
  type Pair,
  type VectorTable,
} from "./similar-pairs.ts";
import { cosineBlockModel } from "./test-cosine-block.ts";
import { silent, temporaryFolder } from "./test-photos.ts";
import { noisyCopies } from "./test-vectors.ts";
import { vectorBytes } from "./vectors.ts";

const byIndex = (x: Pair, y: Pair) => x.a - y.a || x.b - y.b;

async function pairsOf(
  find: typeof exactPairs,
  table: VectorTable,
  threshold: number,
): Promise<readonly string[]> {
  const pairs: Pair[] = [];
  await find(table, { threshold }, (pair) => pairs.push(pair));
  return [...new Set(pairs.sort(byIndex).map(({ a, b }) => `${a}-${b}`))];
}

test("the graph of the matrix product is what the writer of ONNX files makes", () => {
  const bytes = Buffer.concat([...onnxChunks(cosineBlockModel)].map((chunk) => Buffer.from(chunk)));
  expect(cosineBlockGraph).toBe(bytes.toString("base64"));
});

test("finds the pairs that a plain loop finds, over all blocks", async () => {
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
  expect(await pairsOf(exactPairs, table, 0.97)).toEqual(expected);
});

test("the index finds nearly all pairs, and the same ones every time", async () => {
  const table = noisyCopies({ originals: 1_000, copies: 3, width: 64, noise: 0.05, seed: 4 });
  const exact = await pairsOf(exactPairs, table, 0.9);
  const found = await pairsOf(approximatePairs, table, 0.9);
  const known = new Set(exact);
  expect(found.every((pair) => known.has(pair))).toBe(true);
  expect(found.length).toBeGreaterThan(0.99 * exact.length);
  expect(await pairsOf(approximatePairs, table, 0.9)).toEqual(found);
});

test("finds hashes that differ in few bits", async () => {
  const hashes = ["0000000000000000", "0000000000000007", "f000000000000000", "ffffffffffffffff"];
  const pairs: Pair[] = [];
  await hashPairs(hashes, { distance: 4 }, (pair) => pairs.push(pair));
  expect(pairs).toEqual([
    { a: 0, b: 1, similarity: 1 - 3 / 64 },
    { a: 0, b: 2, similarity: 1 - 4 / 64 },
  ]);
});

const chain: readonly Pair[] = [
  { a: 0, b: 1, similarity: 0.99 },
  { a: 1, b: 2, similarity: 0.98 },
  { a: 3, b: 4, similarity: 0.97 },
];

test("components join a chain, in whatever order its pairs come", () => {
  for (const order of [chain, [...chain].reverse()]) {
    const clusterer = components(6);
    for (const pair of order) clusterer.add(pair);
    expect(clusterer.groups()).toEqual([
      [0, 1, 2],
      [3, 4],
    ]);
  }
});

test("complete linkage joins only what is all similar, the most similar first", () => {
  for (const order of [chain, [...chain].reverse()]) {
    const clusterer = completeLinkage();
    for (const pair of order) clusterer.add(pair);
    expect(clusterer.groups()).toEqual([
      [0, 1],
      [3, 4],
    ]);
  }
});

test("complete linkage joins groups whose pairs are all similar", () => {
  const clusterer = completeLinkage();
  for (const [a, b, similarity] of [
    [0, 1, 0.99],
    [2, 3, 0.99],
    [0, 2, 0.95],
    [0, 3, 0.95],
    [1, 2, 0.95],
    [1, 3, 0.94],
    [3, 4, 0.96],
  ] as const) {
    clusterer.add({ a, b, similarity });
  }
  expect(clusterer.groups()).toEqual([[0, 1, 2, 3]]);
});

/** As the definition has it, over all similarities; those below the threshold are 0. */
function linkedPlainly(similarity: readonly (readonly number[])[]): readonly (readonly number[])[] {
  let groups = similarity.map((_, i) => [i]);
  for (;;) {
    let best = { least: 0, first: -1, second: -1 };
    for (const [first, one] of groups.entries()) {
      for (const [second, other] of groups.entries()) {
        if (second <= first) continue;
        const least = Math.min(...one.flatMap((a) => other.map((b) => similarity[a]![b]!)));
        if (least > best.least) best = { least, first, second };
      }
    }
    const { first, second } = best;
    if (first < 0) break;
    const joined = [...groups[first]!, ...groups[second]!].sort((a, b) => a - b);
    groups = groups.map((members, i) => (i === first ? joined : members));
    groups.splice(second, 1);
  }
  return groups.filter(({ length }) => length > 1);
}

test("complete linkage gives the groups of its definition", () => {
  // few values, so that many are equal
  const values = fc.integer({ min: 0, max: 6 });
  fc.assert(
    fc.property(
      fc
        .integer({ min: 2, max: 9 })
        .chain((n) =>
          fc.tuple(fc.constant(n), fc.array(values, { minLength: n * n, maxLength: n * n })),
        ),
      ([n, drawn]) => {
        const similarity = Array.from({ length: n }, (_, a) =>
          Array.from({ length: n }, (_, b) => drawn[Math.min(a, b) * n + Math.max(a, b)]!),
        );
        const clusterer = completeLinkage();
        for (let b = n - 1; b > 0; b--) {
          for (let a = 0; a < b; a++) {
            const value = similarity[a]![b]!;
            if (value > 0) clusterer.add({ a, b, similarity: value });
          }
        }
        expect(clusterer.groups()).toEqual(linkedPlainly(similarity));
      },
    ),
  );
});

let folder: string;
let database: PhotoDatabase;

beforeEach(() => {
  folder = join(temporaryFolder(), "photos");
  mkdirSync(folder);
  database = openPhotoDatabase(join(folder, "../photos.db"), { missing: "create" });
});

afterEach(() => database.close());

const options: GroupOptions = {
  by: "embedding",
  threshold: 0.9,
  distance: 8,
  linkage: "components",
  method: "auto",
  progress: silent,
};

/** Photos that are in the database only. */
function write(photos: Readonly<Record<string, readonly number[]>>, model = 1): void {
  database.run(
    "INSERT OR IGNORE INTO models (id, label, probe, weights) VALUES (?, 'test', ?, ?)",
    [model, vectorBytes(new Float32Array([model, 0])), "random"],
  );
  for (const [path, values] of Object.entries(photos)) {
    database.run(
      `INSERT INTO photos (path, root, bytes, mtime_ms, state, seen, md5, hash) VALUES (?, '/', 1, 1, 'present', 1, ?, '00ff00ff00ff00ff')`,
      [path, path],
    );
    const { id } = database.get<{ readonly id: number }>("SELECT max(id) AS id FROM photos")!;
    const norm = Math.hypot(...values);
    database.run("INSERT INTO embeddings (photo_id, model_id, md5, vector) VALUES (?, ?, ?, ?)", [
      id,
      model,
      path,
      vectorBytes(Float32Array.from(values, (value) => value / norm)),
    ]);
  }
}

test("groups what is similar, in the order of the paths", async () => {
  write({ "/c": [1, 0.1], "/b": [0, 1], "/a": [1, 0], "/d": [0.05, 1], "/e": [-1, 0] });
  const { groups, photos, left } = await group(database, options);
  expect({ groups, photos, left }).toEqual({
    groups: [
      ["/a", "/c"],
      ["/b", "/d"],
    ],
    photos: 5,
    left: 0,
  });
});

test("a group keeps its id when another photo comes to it", async () => {
  write({ "/b": [1, 0], "/c": [1, 0.1] });
  const ids = () => database.all("SELECT DISTINCT group_id FROM group_members");
  await group(database, options);
  const before = ids();
  write({ "/d": [1, 0.05] });
  await group(database, options);
  expect(ids()).toEqual(before);
});

test("leaves out photos that are gone or have no embedding", async () => {
  write({ "/a": [1, 0], "/b": [1, 0], "/c": [1, 0] });
  database.run("UPDATE photos SET state = 'gone' WHERE path = '/a'");
  database.run("DELETE FROM embeddings WHERE photo_id = 2");
  expect(await group(database, options)).toMatchObject({ groups: [], photos: 1, left: 1 });
});

test("groups by perceptual hash without any embedding", async () => {
  write({ "/a": [1, 0], "/b": [0, 1] });
  database.run("DELETE FROM embeddings");
  const { groups, how } = await group(database, { ...options, by: "hash" });
  expect(groups).toEqual([["/a", "/b"]]);
  expect(how).toBe("perceptual hash, at most 8 of 64 bits differ, components");
});

test("fails when nothing was scanned, and when nothing was embedded", async () => {
  await expect(group(database, options)).rejects.toThrow(
    "no photos: run 'clipstack-dedupe scan' first",
  );
  write({ "/a": [1, 0] });
  database.run("DELETE FROM embeddings");
  await expect(group(database, options)).rejects.toThrow(
    "no embeddings: run 'clipstack-dedupe embed' first, or group with --by hash",
  );
});

test("fails when the embeddings are of several models", async () => {
  write({ "/a": [1, 0], "/b": [1, 0] });
  write({ "/c": [1, 0] }, 2);
  await expect(group(database, options)).rejects.toThrow(
    "2 and 1 photos were embedded with different models: run 'clipstack-dedupe embed --replace'",
  );
});

test("photos with the same bytes are a group, with what is similar to them", async () => {
  const copies = Array.from({ length: 300 }, (_, i) => `/copy ${String(i).padStart(3, "0")}`);
  write(Object.fromEntries(copies.map((path) => [path, [1, 0]])));
  for (const table of ["photos", "embeddings"]) database.run(`UPDATE ${table} SET md5 = 'same'`);
  write({ "/a": [1, 0.1], "/b": [0, 1] });
  for (const method of ["exact", "approximate"] as const) {
    const { groups } = await group(database, { ...options, linkage: "complete", method });
    expect(groups, method).toEqual([["/a", ...copies]]);
  }
  const alone = await group(database, { ...options, threshold: 1 });
  expect(alone).toMatchObject({ groups: [copies], photos: 302 });
});

// what an index misses differs with the processor's arithmetic
test.each([1, 2, 3, 4, 5, 6])(
  "the index finds all pairs of a group that is larger than a first look, seed %i",
  async (seed) => {
    const table = noisyCopies({ originals: 2, copies: 149, width: 16, noise: 0.02, seed });
    const clusterer = completeLinkage();
    await approximatePairs(table, { threshold: 0.9 }, (pair) => clusterer.add(pair));
    expect(clusterer.groups().map(({ length }) => length)).toEqual([150, 150]);
  },
);
