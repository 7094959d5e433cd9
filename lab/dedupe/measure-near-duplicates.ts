import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { partBytes } from "../../bulk/table/part.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { openCosineBlocks } from "../../examples/search/cosine-blocks.ts";
import { nearDuplicates } from "../../examples/search/near-duplicates.ts";
import { readTable } from "../../examples/search/table.ts";

/**
 * Measures the near duplicates of a table of random embeddings: time, memory and recall against an exact comparison of sampled rows.
 *
 *     npx tsx lab/dedupe/measure-near-duplicates.ts <rows> [near-equal]
 */

const { width } = defaultModel.embedding;
const threshold = 0.7;
/** Rows that are compared exactly with all others. */
const sampledRows = 500;
/** One row of five is a copy of an earlier one. */
const copyShare = 0.2;
const rowsPerPart = 10_000;

const [rowsText, kind = "copies"] = process.argv.slice(2);
const rows = Number(rowsText);
if (!Number.isInteger(rows) || rows < 1_000 || !["copies", "near-equal"].includes(kind)) {
  console.error("usage: measure-near-duplicates.ts <rows, at least 1000> [near-equal]");
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

/** Scenes: images of one are more similar than others, but not near-duplicates. */
const scenes = Array.from({ length: 2_000 }, () => noisy(new Float32Array(width), 1));
/** The last images, from which copies are made. */
const recent: Float32Array[] = [];
let written = 0;

function nextVector(): Float32Array {
  if (kind === "near-equal") return noisy(scenes[0]!, 0.1);
  const pick = <Item>(items: readonly Item[]) =>
    items[Math.floor((random() + 0.5) * items.length)]!;
  // cosines of copies: 0.7 to 1; of images of one scene: about 0.4
  const isCopy = random() + 0.5 < copyShare && recent.length > 0;
  if (isCopy) return noisy(pick(recent), random() + 0.5);
  const vector = noisy(pick(scenes), 1.25);
  recent[written++ % 10_000] = vector;
  return vector;
}

async function writeTable(job: string): Promise<void> {
  await mkdir(join(job, "parts"), { recursive: true });
  for (let first = 0; first < rows; first += rowsPerPart) {
    const part = Array.from({ length: Math.min(rowsPerPart, rows - first) }, (_, i) => ({
      ...{ uri: `/${first + i}.jpg`, etag: "1", sha256: "", width: 1, height: 1 },
      embedding: nextVector(),
    }));
    const facts = { fingerprint: "", model: "measured", width, vectors: "float32" } as const;
    const name = `${String(first / rowsPerPart).padStart(6, "0")}.parquet`;
    await writeFile(join(job, "parts", name), partBytes(part, facts));
  }
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

const job = await mkdtemp(join(tmpdir(), "near-duplicates-"));
try {
  await timed(`write ${rows} rows`, () => writeTable(job));
  const table = await timed("read the table", () => readTable(job));
  const pairs = await timed("near duplicates", () => nearDuplicates(table, { threshold }));
  console.log(`${pairs.length} pairs`);
  await timed("near duplicates of 1000 more rows", () =>
    nearDuplicates(table, { threshold, isKnown: (index) => index < rows - 1_000 }),
  );
  if (kind === "copies") {
    const found = new Set(pairs.map(({ a, b }) => a * rows + b));
    const step = Math.floor(rows / sampledRows);
    const data = new Float32Array(sampledRows * width);
    for (let i = 0; i < sampledRows; i++) {
      data.set(table.data.subarray(i * step * width, (i * step + 1) * width), i * width);
    }
    let [similar, stored] = [0, 0];
    const blocks = await openCosineBlocks();
    await blocks.compare({ width, count: sampledRows, data }, table, {
      limits: new Float32Array(sampledRows).fill(threshold),
      onHit(i, other) {
        const row = i * step;
        if (row === other) return;
        similar++;
        if (found.has(Math.min(row, other) * rows + Math.max(row, other))) stored++;
      },
    });
    await blocks.close();
    console.log(
      `recall: ${stored} of ${similar} similar pairs of ${sampledRows} rows (${((100 * stored) / similar).toFixed(2)} %)`,
    );
  }
} finally {
  await rm(job, { recursive: true, force: true });
}
