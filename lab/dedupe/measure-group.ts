import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { defaultModel } from "../../contract/models/index.ts";
import { compareNew, openHashes, readVectors } from "../../examples/photo-dedupe/compare.ts";
import { group } from "../../examples/photo-dedupe/group.ts";
import { findModel, type IndexModel } from "../../examples/photo-dedupe/index-model.ts";
import {
  openPhotoDatabase,
  type PhotoDatabase,
} from "../../examples/photo-dedupe/photo-database.ts";
import { openCosineBlocks } from "../../examples/photo-dedupe/similar-pairs.ts";

/**
 * Measures `group` on random embeddings: time, memory and recall against an exact comparison of sampled photos.
 *
 *     npx tsx lab/dedupe/measure-group.ts <photos> [near-equal]
 */

const { width } = defaultModel.embedding;
const limits = { threshold: 0.7, bits: 20 };
/** Photos added after the first run. */
const addedPhotos = 1_000;
/** Photos that are compared exactly with all others. */
const sampledPhotos = 500;
/** One photo of five is a copy of an earlier one. */
const copyShare = 0.2;

const [photosText, kind = "copies"] = process.argv.slice(2);
const photos = Number(photosText);
if (!Number.isInteger(photos) || photos < 1_000 || !["copies", "near-equal"].includes(kind)) {
  console.error("usage: measure-group.ts <photos, at least 1000> [near-equal]");
  process.exit(2);
}

let state = 1;
/** Uniform in -0.5 … 0.5: xorshift32. */
function random(): number {
  state ^= state << 13;
  state ^= state >>> 17;
  state ^= state << 5;
  return (state >>> 0) / 2 ** 32 - 0.5;
}

/** Similarity of a vector with its noisy copy: cosine of about 1 / sqrt(1 + noise²). */
function noisy(vector: Float32Array, noise: number): Float32Array {
  const scale = noise * Math.sqrt(12 / width);
  const copy = vector.map((value) => value + scale * random());
  const norm = Math.sqrt(copy.reduce((sum, value) => sum + value * value, 0));
  return copy.map((value) => value / norm);
}

/** Scenes: photos of one are more similar than others, but not near-duplicates. */
const scenes = Array.from({ length: 2_000 }, () => noisy(new Float32Array(width), 1));
/** The last photos, from which copies are made. */
const recent: Float32Array[] = [];
const recentPhotos = 10_000;
let written = 0;

function nextVector(): Float32Array {
  if (kind === "near-equal") return noisy(scenes[0]!, 0.1);
  const pick = <Item>(items: readonly Item[]) =>
    items[Math.floor((random() + 0.5) * items.length)]!;
  // cosines of copies: 0.7 to 1; of photos of one scene: about 0.4
  const isCopy = random() + 0.5 < copyShare && recent.length > 0;
  if (isCopy) return noisy(pick(recent), random() + 0.5);
  const vector = noisy(pick(scenes), 1.25);
  recent[written++ % recentPhotos] = vector;
  return vector;
}

function addPhotos(database: PhotoDatabase, first: number, count: number): void {
  for (let start = first; start < first + count; start += 10_000) {
    database.transaction(() => {
      for (let i = start; i < Math.min(start + 10_000, first + count); i++) {
        const md5 = Math.imul(i, 0x9e37_79b1).toString(16).padStart(32, "0") + i;
        database.run(
          `INSERT INTO photos (path, root, bytes, mtime_ms, state, seen, md5, hash)
           VALUES (?, '/', 1, 1, 'present', 1, ?, '00ff00ff00ff00ff')`,
          `/${i}`,
          md5,
        );
        database.run(
          "INSERT INTO embeddings (model, md5, vector) VALUES (1, ?, ?)",
          md5,
          new Uint8Array(nextVector().buffer as ArrayBuffer),
        );
      }
    });
  }
}

/** Share of the similar pairs of sampled photos that are stored. */
async function recall(database: PhotoDatabase, model: IndexModel): Promise<string> {
  const ids = database
    .all<{ readonly id: number }>("SELECT id FROM embeddings ORDER BY id")
    .map(({ id }) => id);
  const step = Math.floor(ids.length / sampledPhotos);
  const sample = ids.filter((_, i) => i % step === 0);
  const rows = readVectors(database, model, sample);
  const hashes = openHashes(database, model);
  const blocks = await openCosineBlocks();
  let similar = 0;
  let stored = 0;
  for (let first = 0; first < ids.length; first += 50_000) {
    const columns = ids.slice(first, first + 50_000);
    await blocks.compare(rows, readVectors(database, model, columns), {
      limits: new Float32Array(rows.count).fill(limits.threshold),
      onHit(row, column) {
        const [a, b] = [sample[row]!, columns[column]!];
        if (a === b || hashes.distance(a, b, limits.bits) > limits.bits) return;
        similar++;
        const pair = database.get(
          "SELECT 1 FROM pairs WHERE model = ? AND a = ? AND b = ?",
          model.id,
          Math.min(a, b),
          Math.max(a, b),
        );
        if (pair !== undefined) stored++;
      },
    });
  }
  await blocks.close();
  return `${stored} of ${similar} similar pairs of ${sample.length} photos (${((100 * stored) / similar).toFixed(2)} %)`;
}

async function timed<Result>(name: string, work: () => Promise<Result>): Promise<Result> {
  const startedAt = performance.now();
  const cpu = process.cpuUsage();
  const result = await work();
  const { user, system } = process.cpuUsage(cpu);
  const seconds = (performance.now() - startedAt) / 1000;
  const memory = process.resourceUsage().maxRSS / 1024;
  console.log(
    `${name}: ${seconds.toFixed(1)} s, ${((user + system) / 1e6).toFixed(1)} CPU s, at most ${memory.toFixed(0)} MiB so far`,
  );
  return result;
}

const folder = await mkdtemp(join(tmpdir(), "measure-group-"));
const database = openPhotoDatabase(join(folder, "photos.db"), "create");
try {
  database.run(
    "INSERT INTO models (id, name, width, probe, weights) VALUES (1, 'measured', ?, '[]', 'unknown')",
    width,
  );
  await timed(`write ${photos} embeddings`, async () => addPhotos(database, 0, photos));
  const model = findModel(database);
  await timed("compare", () => compareNew(database, model, limits));
  addPhotos(database, photos, addedPhotos);
  await timed(`compare ${addedPhotos} more`, () => compareNew(database, model, limits));
  const { groups } = await timed("group the stored pairs", () =>
    group(database, {
      by: "embedding",
      threshold: limits.threshold,
      confirm: limits.bits,
      distance: 0,
      linkage: "complete",
    }),
  );
  const largest = groups.reduce((most, { length }) => Math.max(most, length), 0);
  console.log(`${groups.length} groups, the largest with ${largest} photos`);
  if (kind === "copies") {
    console.log(await timed("exact comparison of the sample", () => recall(database, model)));
  }
} finally {
  database.close();
  await rm(folder, { recursive: true, force: true });
}
