import { createWriteStream } from "node:fs";
import { copyFile, mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import { Table, Utf8, vectorFromArray } from "apache-arrow";
import { pack } from "tar-stream";
import { beforeAll, expect, test } from "vitest";
import { modelCatalogue } from "../contract/models/index.ts";
import { ensureTinyModel } from "../model-tools/generate/generate.ts";
import { loadImages, makeLoadImages } from "../model-tools/samples/load-images.ts";
import { consolidate } from "./consolidate.ts";
import { tableSource } from "./job/source.ts";
import { openStore } from "./store/open-store.ts";
import { parquetBytes, parquetTable } from "./table/arrow-parquet.ts";
import { readPart } from "./table/part.ts";
import {
  failuresOf,
  filesIn,
  plannedJob,
  tableOf,
  temporaryFolder,
  tinyWorker,
} from "./test-job.ts";
import { verifyJob } from "./verify.ts";
import { runBulkWorker } from "./work/worker.ts";

let photos: string;
let job: string;
const names = Array.from({ length: 40 }, (_, index) => `${10 + index}.jpg`);

beforeAll(async () => {
  [photos, job] = [await temporaryFolder(), await temporaryFolder()];
  const files = await makeLoadImages(loadImages.thumbnail);
  for (const [index, name] of names.entries()) {
    await writeFile(join(photos, name), files[index % files.length]!);
  }
  await plannedJob(photos, job);
  await runBulkWorker(await tinyWorker(job));
});

/** Runs a job on `source`. */
async function ranJob(source: string): Promise<string> {
  const folder = await temporaryFolder();
  await plannedJob(source, folder);
  await runBulkWorker(await tinyWorker(folder));
  return folder;
}

/** Facts of the rows that do not depend on the source. */
const hashes = async (folder: string) => (await tableOf(folder)).map(({ sha256 }) => sha256);

test("embeds the images of tar files, and a damaged tar file is an error", async () => {
  const source = await temporaryFolder();
  const tar = pack();
  const written = pipeline(tar, createWriteStream(join(source, "a.tar")));
  for (const name of names) {
    tar.entry({ name: name.replace("jpg", "json") }, "{}");
    tar.entry({ name }, await readFile(join(photos, name)));
  }
  tar.finalize();
  await written;
  await copyFile(join(photos, names[0]!), join(source, "c.tar#1.jpg"));
  await writeFile(join(source, "b.tar"), (await readFile(join(source, "a.tar"))).fill(1, 30_000));
  const folder = await ranJob(source);
  const [first] = await tableOf(folder);
  expect(first?.uri).toBe(`${join(source, "a.tar")}#10.jpg`);
  expect((await hashes(folder)).slice(0, names.length)).toEqual(await hashes(job));
  expect((await failuresOf(folder)).at(-1)).toMatchObject({
    uri: join(source, "b.tar"),
    code: "undecodable_image",
  });
  const findings = async () => (await verifyJob(await tinyWorker(folder), 0)).findings;
  expect(await findings()).toEqual([]);
  // a member without row and error is known only by its number
  const count = (await failuresOf(folder)).length;
  await writeFile(join(folder, "errors/000000.parquet"), "damaged");
  expect((await findings())[0]).toBe(`errors/000000.parquet: must have ${count} rows, got 0`);
});

test("embeds the URIs of CSV and Parquet files", async () => {
  const folder = await temporaryFolder();
  const uris = names.map((name) => join(photos, name));
  await writeFile(
    join(folder, "a.csv"),
    `caption,url\n${uris.map((uri) => `"a, b",${uri}\n`).join("")}`,
  );
  const table = new Table({ uri: vectorFromArray(uris, new Utf8()) });
  await writeFile(join(folder, "a.parquet"), parquetBytes(table));
  for (const name of ["a.csv", "a.parquet"]) {
    expect(await hashes(await ranJob(join(folder, name)))).toEqual(await hashes(job));
  }
  await writeFile(join(folder, "b.csv"), "uri\nphoto.jpg\n");
  await expect(plannedJob(join(folder, "b.csv"), await temporaryFolder())).rejects.toThrow(
    "b.csv: uri must be an absolute path, s3://… or https://…, got 'photo.jpg'",
  );
});

test("another model embeds the images of a job's table, and later what the table has gained", async () => {
  const [source, first, second] = [
    await temporaryFolder(),
    await temporaryFolder(),
    await temporaryFolder(),
  ];
  for (const name of names.slice(0, 12)) await copyFile(join(photos, name), join(source, name));
  await writeFile(join(source, "broken.jpg"), "none");
  const model = modelCatalogue.get("dinov2-small")!;
  const BULK_MODEL_FILE = await ensureTinyModel(model);
  /** Runs the first job, then the second one from its table. */
  const runBoth = async () => {
    await plannedJob(source, first);
    await runBulkWorker(await tinyWorker(first));
    const planned = await plannedJob(tableSource(first), second, { model });
    await runBulkWorker(await tinyWorker(second, { BULK_MODEL_FILE }));
    return planned;
  };
  expect(await runBoth()).toMatchObject({ entries: 12, added: 12 });
  const facts = async (folder: string) =>
    (await tableOf(folder)).map(({ embedding: _, ...row }) => row);
  expect(await facts(second)).toEqual(await facts(first));
  expect((await tableOf(second))[0]?.embedding).toHaveLength(model.embedding.width);
  await copyFile(join(photos, names[12]!), join(source, names[12]!));
  expect(await runBoth()).toMatchObject({ entries: 13, added: 1, changed: 0, removed: 0 });
  expect(await facts(second)).toEqual(await facts(first));
});

test("verification embeds a sample again, and finds no fault in a complete table", async () => {
  const result = await verifyJob(await tinyWorker(job), 20);
  expect(result).toMatchObject({ shards: 4, rows: 40, failures: 0, sampled: 20, findings: [] });
  expect(result.lowestCosine).toBeGreaterThan(0.9999);
});

test("verification finds parts of other shards, changed files and missing shards", async () => {
  const folder = await ranJob(photos);
  await copyFile(join(folder, "parts/000001.parquet"), join(folder, "parts/000000.parquet"));
  const { findings } = await verifyJob(await tinyWorker(folder), 0);
  expect(findings[0]).toMatch(/^parts\/000000\.parquet: must have \d+ bytes, got \d+$/);
  expect(findings[1]).toMatch(
    /000000\.parquet: .*10\.jpg is neither in the table nor in the errors$/,
  );
  expect(findings).toHaveLength(21);
  expect(findings.at(-1)).toBe("11 more");
  await writeFile(join(folder, "model.json"), JSON.stringify({ schema: 1, fingerprint: "other" }));
  const other = await verifyJob(await tinyWorker(folder), 1);
  expect(other.findings[1]).toMatch(
    /^parts\/000000\.parquet: must have the fingerprint other, got /,
  );
});

test("consolidates parts into few files, as Parquet and as NumPy files with metadata", async () => {
  const [store, target] = [await openStore(job), await openStore(await temporaryFolder())];
  const options = { store, target, rowsPerFile: 15 };
  expect(await consolidate({ ...options, format: "parquet" })).toEqual({ rows: 40, files: 2 });
  expect(await consolidate({ ...options, format: "npy" })).toEqual({ rows: 40, files: 2 });
  const expected = await tableOf(job);
  const rows = readPart(await target.read("table_0.parquet")).rows;
  expect(rows).toEqual(expected.slice(0, 20));
  const npy = Buffer.from(await target.read("img_emb/img_emb_1.npy"));
  const width = expected[0]!.embedding.length;
  const dataAt = 10 + npy.readUInt16LE(8);
  expect(npy.toString("latin1", 0, dataAt)).toBe(
    `\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (20, ${width}), }`.padEnd(
      127,
    ) + "\n",
  );
  expect(dataAt % 64).toBe(0);
  const values = new Float32Array(
    npy.buffer.slice(npy.byteOffset + dataAt, npy.byteOffset + npy.length),
  );
  expect(values.subarray(width, 2 * width)).toEqual(expected[21]!.embedding);
  const metadata = parquetTable(await target.read("metadata/metadata_1.parquet"));
  expect(metadata.getChild("uri")?.get(1)).toBe(expected[21]!.uri);
  // into fewer files: rows must not be there twice
  for (const format of ["parquet", "npy"] as const)
    await consolidate({ store, target, rowsPerFile: 100, format });
  expect(await filesIn(target.address)).toEqual([
    ".drafts",
    "img_emb",
    "metadata",
    "table_0.parquet",
  ]);
  expect(await filesIn(target.address, "img_emb")).toEqual(["img_emb_0.npy"]);
  expect(await filesIn(target.address, "metadata")).toEqual(["metadata_0.parquet"]);
  const parts = await openStore(join(job, "parts"));
  await expect(
    consolidate({ store, target: parts, rowsPerFile: 1, format: "npy" }),
  ).rejects.toThrow(`${job}/parts: must not be in ${job}/parts/, which has the parts of the job`);
});

test("fails to consolidate parts that are damaged or of another job, and names them", async () => {
  const folder = await ranJob(photos);
  const [store, target] = [await openStore(folder), await openStore(await temporaryFolder())];
  const outcome = () => consolidate({ store, target, format: "parquet", rowsPerFile: 15 });
  const part = join(folder, "parts/000001.parquet");
  const content = await readFile(part);
  await writeFile(part, content.subarray(0, -100));
  await expect(outcome()).rejects.toThrow(
    `${part}: must have ${content.length} bytes, got ${content.length - 100}; 'npx clipstack bulk verify ${folder}' lists`,
  );
  await writeFile(part, Buffer.alloc(content.length));
  await expect(outcome()).rejects.toThrow(`${part}: must be a Parquet file: `);
  await writeFile(part, content);
  await copyFile(part, join(folder, "parts/000009.parquet"));
  await expect(outcome()).rejects.toThrow(
    `${folder}/parts/000009.parquet: must be of a shard of the job, which has 4; `,
  );
});

test("fails to consolidate a job that is not done", async () => {
  const folder = await temporaryFolder();
  await mkdir(folder, { recursive: true });
  await plannedJob(photos, folder);
  const [store, target] = [await openStore(folder), await openStore(await temporaryFolder())];
  await expect(consolidate({ store, target, format: "npy", rowsPerFile: 9 })).rejects.toThrow(
    `${folder}: all 4 shards must be done, got 0; run the job first`,
  );
});
