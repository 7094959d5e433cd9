import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { evaluate } from "./evaluate.ts";
import { openPhotoDatabase, type PhotoDatabase } from "./photo-database.ts";
import { temporaryFolder } from "./test-photos.ts";
import { vectorBytes } from "./vectors.ts";

let folder: string;
let database: PhotoDatabase;

beforeEach(() => {
  folder = join(temporaryFolder(), "photos");
  mkdirSync(folder);
  database = openPhotoDatabase(join(folder, "../photos.db"), { missing: "create" });
  database.run("INSERT INTO models (id, label, probe, weights) VALUES (1, 'test', ?, 'random')", [
    vectorBytes(new Float32Array([1, 0])),
  ]);
});

afterEach(() => database.close());

interface Photo {
  readonly file: string;
  readonly original: string;
  readonly change: string;
  readonly hash: string;
  readonly angle: number;
}

function write(photos: readonly Photo[]): void {
  for (const { file, hash, angle } of photos) {
    database.run(
      `INSERT INTO photos (path, root, bytes, mtime_ms, state, seen, md5, hash) VALUES (?, ?, 1, 1, 'present', 1, ?, ?)`,
      [join(folder, file), folder, file, hash],
    );
    const { id } = database.get<{ readonly id: number }>("SELECT max(id) AS id FROM photos")!;
    database.run("INSERT INTO embeddings (photo_id, model_id, md5, vector) VALUES (?, 1, ?, ?)", [
      id,
      file,
      vectorBytes(new Float32Array([Math.cos(angle), Math.sin(angle)])),
    ]);
  }
  const labels = photos.map(({ file, original, change }) => ({ file, original, change }));
  writeFileSync(join(folder, "labels.json"), JSON.stringify({ schema: 1, photos: labels }));
}

const photos: readonly Photo[] = [
  { file: "a.jpg", original: "a", change: "none", hash: "0000000000000000", angle: 0 },
  { file: "a-small.jpg", original: "a", change: "smaller", hash: "0000000000000001", angle: 0.02 },
  { file: "a-crop.jpg", original: "a", change: "cropped", hash: "00000000ffffffff", angle: 0.03 },
  { file: "b.jpg", original: "b", change: "none", hash: "0000000000000003", angle: 2 },
];

test("computes precision and recall over all pairs", async () => {
  write(photos);
  const { photos: count, duplicates, hash, embedding, weights } = await evaluate(database, folder);
  expect({ photos: count, duplicates, weights }).toEqual({
    photos: 4,
    duplicates: 3,
    weights: "random",
  });
  // within 2 bits: a and a-small, which is right; a and b, a-small and b, which is wrong
  expect(hash.scores.find(({ limit }) => limit === 2)).toEqual({
    limit: 2,
    precision: 1 / 3,
    recall: 1 / 3,
  });
  expect(embedding?.best).toEqual({ limit: 0.999, precision: 1, recall: 1 });
  expect(embedding?.recallByChange).toEqual({ smaller: 1, cropped: 1 });
});

test("says nothing about embeddings while some are missing", async () => {
  write(photos);
  database.run("DELETE FROM embeddings WHERE photo_id = 2");
  expect((await evaluate(database, folder)).embedding).toBeUndefined();
});

test("fails when there are no labels, or they are wrong", async () => {
  await expect(evaluate(database, folder)).rejects.toThrow(
    `labels '${join(folder, "labels.json")}' does not exist`,
  );
  writeFileSync(join(folder, "labels.json"), JSON.stringify({ schema: 1, photos: [{}] }));
  await expect(evaluate(database, folder)).rejects.toThrow(/labels '.*': photos/);
});

test("fails when a labelled photo was not scanned", async () => {
  write(photos);
  database.run("DELETE FROM photos WHERE path LIKE '%b.jpg'");
  await expect(evaluate(database, folder)).rejects.toThrow(
    `'b.jpg' of the labels is not in '${database.file}': scan '${folder}' first`,
  );
});
