import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { evaluate } from "./evaluate.ts";
import { group } from "./group.ts";
import { openPhotoDatabase, type PhotoDatabase } from "./photo-database.ts";
import { addPhotos } from "./test-index.ts";
import { silent, temporaryFolder } from "./test-photos.ts";

let folder: string;
let database: PhotoDatabase;

beforeEach(() => {
  folder = join(temporaryFolder(), "photos");
  mkdirSync(folder);
  database = openPhotoDatabase(join(folder, "../index"), "create");
});

afterEach(() => database.close());

interface Photo {
  readonly file: string;
  readonly original: string;
  readonly hash: string;
  /** Of the embedding. */
  readonly angle?: number;
}

function write(photos: readonly Photo[]): void {
  addPhotos(
    database,
    photos.map(({ file, hash, angle }) => ({
      path: join(folder, file),
      hash,
      vector: angle === undefined ? undefined : [Math.cos(angle), Math.sin(angle)],
    })),
  );
  const labels = photos.map(({ file, original }) => ({ file, original }));
  writeFileSync(join(folder, "labels.json"), JSON.stringify(labels));
}

const photos: readonly Photo[] = [
  { file: "a.jpg", original: "a", hash: "0000000000000000", angle: 0 },
  { file: "a-small.jpg", original: "a", hash: "0000000000000001", angle: 0.02 },
  { file: "a-crop.jpg", original: "a", hash: "00000000ffffffff", angle: 0.03 },
  { file: "b.jpg", original: "b", hash: "0000000000000003", angle: 2 },
];

test("computes precision and recall over all pairs", async () => {
  write(photos);
  const {
    photos: count,
    duplicates,
    hash,
    embedding,
    confirmed,
    groups,
  } = await evaluate(database, folder, { confirm: 20 });
  expect({ photos: count, duplicates }).toEqual({ photos: 4, duplicates: 3 });
  // pairs within 2 bits: a and a-small (correct); a and b, a-small and b (wrong)
  expect(hash.scores.find(({ limit }) => limit === 2)).toEqual({
    limit: 2,
    precision: 1 / 3,
    recall: 1 / 3,
  });
  expect(embedding?.best).toEqual({ limit: 0.999, precision: 1, recall: 1 });
  // the hash of a-crop differs from the others in more bits
  expect(confirmed?.best).toEqual({ limit: 0.999, precision: 1, recall: 1 / 3 });
  expect(groups).toBeUndefined();
});

test("computes precision and recall of the groups", async () => {
  write(photos);
  await group(database, {
    by: "embedding",
    threshold: 0.9,
    confirm: 64,
    distance: 0,
    linkage: "complete",
    progress: silent,
  });
  const { groups } = await evaluate(database, folder, { confirm: 20 });
  expect(groups).toEqual({ precision: 1, recall: 1 });
});

test("omits embeddings while some are missing", async () => {
  write(photos.map((photo, i) => (i === 2 ? { ...photo, angle: undefined } : photo)));
  expect((await evaluate(database, folder, { confirm: 20 })).embedding).toBeUndefined();
});

test("fails if the labels are missing or invalid", async () => {
  await expect(evaluate(database, folder, { confirm: 20 })).rejects.toThrow(
    `labels '${join(folder, "labels.json")}': no such file or directory`,
  );
  writeFileSync(join(folder, "labels.json"), JSON.stringify([{}, {}]));
  await expect(evaluate(database, folder, { confirm: 20 })).rejects.toThrow(
    /labels '.*': 0.file: /,
  );
});

test("fails if a labelled photo was not scanned", async () => {
  write(photos);
  database.run("DELETE FROM photos WHERE path LIKE '%b.jpg'");
  await expect(evaluate(database, folder, { confirm: 20 })).rejects.toThrow(
    `'b.jpg' of the labels is not in '${database.folder}': scan '${folder}' first`,
  );
});
