import { rmSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { maxPairsPerVector } from "../search/cosine-blocks.ts";
import { type GroupOptions, group } from "./group.ts";
import { openPhotoDatabase, type PhotoDatabase } from "./photo-database.ts";
import { addPhotos } from "./test-index.ts";
import { silent, temporaryFolder } from "./test-photos.ts";

let database: PhotoDatabase;

beforeEach(() => {
  database = openPhotoDatabase(join(temporaryFolder(), "index"), "create");
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

/** Photos by path. The same value of `sha256` means the same bytes. */
function write(photos: Readonly<Record<string, readonly number[]>>, sha256?: string): void {
  addPhotos(
    database,
    Object.entries(photos).map(([path, vector]) => ({ path, vector, sha256: sha256 ?? path })),
  );
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
  expect(pairs).toBeLessThanOrEqual(count * maxPairsPerVector);
});

test("omits missing photos and photos without an embedding", async () => {
  write({ "/a": [1, 0], "/c": [1, 0] });
  addPhotos(database, [{ path: "/b" }]);
  database.run("UPDATE photos SET state = 'gone' WHERE path = '/a'");
  expect(await group(database, options)).toMatchObject({
    groups: [],
    photos: 1,
    withoutEmbedding: 1,
  });
});

test("omits the embedding of a photo that has changed since", async () => {
  write({ "/a": [1, 0], "/b": [1, 0] });
  database.run("UPDATE photos SET bytes = 2 WHERE path = '/b'");
  expect(await group(database, options)).toMatchObject({ groups: [], withoutEmbedding: 1 });
});

test("omits and reports a similar photo that can no longer be read", async () => {
  write({ "/a": [1, 0], "/b": [1, 0], "/c": [1, 0] });
  database.run("UPDATE photos SET hash = NULL WHERE path = '/b'");
  const notes: string[] = [];
  const progress = { ...silent, note: (text: string) => notes.push(text) };
  expect((await group(database, { ...options, progress })).groups).toEqual([["/a", "/c"]]);
  expect(notes).toEqual(["/b: cannot be read: no such file or directory"]);
});

test("groups by perceptual hash without any embedding", async () => {
  addPhotos(database, [{ path: "/a" }, { path: "/b" }, { path: "/c", hash: "0123456789abcdef" }]);
  const { groups, how } = await group(database, { ...options, by: "hash" });
  expect(groups).toEqual([["/a", "/b"]]);
  expect(how).toBe("perceptual hash, at most 8 of 64 bits differ");
});

test("fails if nothing was scanned or nothing was embedded, and if the model is not the only one", async () => {
  await expect(group(database, options)).rejects.toThrow(
    "no photos: run 'clipstack-dedupe scan' first",
  );
  write({ "/a": [1, 0] });
  await expect(group(database, { ...options, model: "other" })).rejects.toThrow(
    "--model 'other' has no embeddings in the index: must be one of example",
  );
  rmSync(join(database.folder, "example"), { recursive: true });
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
