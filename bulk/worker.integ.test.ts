import { copyFile, mkdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { execa, type ResultPromise } from "execa";
import { beforeAll, expect, onTestFinished, test } from "vitest";
import { loadImages, makeLoadImages } from "../model-tools/samples/load-images.ts";
import { readJob } from "./job/job.ts";
import { jobStatus } from "./job/status.ts";
import { openStore } from "./store/open-store.ts";
import type { EmbeddedImage } from "./table/part.ts";
import {
  failuresOf,
  filesIn,
  plannedJob,
  tableOf,
  temporaryFolder,
  tinyWorker,
} from "./test-job.ts";
import type { BulkVariables } from "./work/settings.ts";
import { runBulkWorker } from "./work/worker.ts";

const count = 300;
const truncated = 7;
let photos: string;
let modelFile: string | undefined;
let files: readonly Buffer[];
/** Table of a run without disturbances. */
let expected: readonly EmbeddedImage[];

beforeAll(async () => {
  photos = await temporaryFolder();
  files = await makeLoadImages(loadImages.thumbnail);
  for (let index = 0; index < count; index++) {
    const file = files[index % files.length]!;
    await writeFile(photo(index), index === truncated ? file.subarray(0, 3_000) : file);
  }
  const job = await temporaryFolder();
  await plannedJob(photos, job);
  const variables = await tinyWorker(job);
  modelFile = variables.BULK_MODEL_FILE;
  await runBulkWorker(variables);
  expected = await tableOf(job);
});

const photo = (index: number) => join(photos, `${String(index).padStart(4, "0")}.jpg`);

/** Starts a worker as a process. */
function startWorker(job: string, variables: BulkVariables = {}): ResultPromise {
  const program = fileURLToPath(new URL("main.ts", import.meta.url));
  const child = execa(process.execPath, ["--import", "tsx", program], {
    env: { BULK_JOB: job, BULK_MODEL_FILE: modelFile, ...variables },
    reject: false,
  });
  onTestFinished(() => void child.kill("SIGKILL"));
  return child;
}

async function expectSameTable(job: string): Promise<void> {
  const table = await tableOf(job);
  const facts = ({ embedding: _, ...row }: EmbeddedImage) => row;
  expect(table.map(facts)).toEqual(expected.map(facts));
  const differences = table.flatMap(({ embedding }, row) =>
    embedding.map((value, at) => Math.abs(value - expected[row]!.embedding[at]!)),
  );
  // another batch changes the order of additions
  expect(Math.max(...differences.map((row) => Math.max(...row)))).toBeLessThan(1e-5);
}

test("a truncated image is an error with code and reason, and the others have rows", async () => {
  expect(expected).toHaveLength(count - 1);
  const job = await temporaryFolder();
  await plannedJob(photos, job);
  await runBulkWorker(await tinyWorker(job));
  const [failure, ...others] = await failuresOf(job);
  expect(others).toEqual([]);
  expect(failure).toMatchObject({ uri: photo(truncated), code: "undecodable_image" });
  expect(failure?.reason).toMatch(/^cannot be decoded: /);
  await expectSameTable(job);
});

test("a run that was killed several times has each image once", async () => {
  const job = await temporaryFolder();
  await plannedJob(photos, job);
  for (const parts of [1, 8, 20]) {
    const worker = startWorker(job, { PREPROCESS_THREADS: "1", INTRA_OP_THREADS: "1" });
    await expect
      .poll(() => filesIn(job, "parts"), { interval: 5 })
      .toSatisfy((names: readonly string[]) => names.length >= parts);
    worker.kill("SIGKILL");
    await worker;
  }
  const { exitCode, stderr } = await startWorker(job);
  expect({ exitCode, stderr }).toMatchObject({ exitCode: 0 });
  await expectSameTable(job);
  expect(await failuresOf(job)).toHaveLength(1);
  expect(await filesIn(job, "claims")).toEqual([]);
});

test("two workers share the shards, and one takes those of the other, which hangs", async () => {
  const job = await temporaryFolder();
  await plannedJob(photos, job);
  const variables = { BULK_WORKERS: "2", BULK_STALE_SECONDS: "10" };
  const hanging = startWorker(job, { ...variables, JOB_COMPLETION_INDEX: "1" });
  await expect.poll(() => filesIn(job, "parts"), { interval: 5 }).not.toEqual([]);
  // between two shards it has no claim
  for (;;) {
    hanging.kill("SIGSTOP");
    if ((await filesIn(job, "claims")).length > 0) break;
    hanging.kill("SIGCONT");
    await sleep(5);
  }
  const store = await openStore(job);
  const status = async () => await jobStatus(store, await readJob(store), 10);
  await expect.poll(async () => (await status()).shards.stale).toBeGreaterThan(0);
  const { exitCode } = await startWorker(job, variables);
  expect(exitCode).toBe(0);
  expect((await status()).shards).toEqual({ total: 30, done: 30, running: 0, stale: 0 });
  await expectSameTable(job);
});

test("a stopped worker releases its claims", async () => {
  const job = await temporaryFolder();
  await plannedJob(photos, job);
  const worker = startWorker(job);
  await expect.poll(() => filesIn(job, "parts"), { interval: 5 }).not.toEqual([]);
  worker.kill("SIGTERM");
  expect((await worker).exitCode).toBe(143);
  expect(await filesIn(job, "claims")).toEqual([]);
});

test("a signal while the model is loaded stops the worker", async () => {
  const job = await temporaryFolder();
  await plannedJob(photos, job);
  const run = runBulkWorker(await tinyWorker(job), { signal: AbortSignal.abort() });
  await expect(run).rejects.toThrow(/^stopped$/);
  expect(await filesIn(job, "parts")).toEqual([]);
  expect(await filesIn(job, "claims")).toEqual([]);
});

test("the claim of a worker that was killed after its last file does not count, and the next run removes it", async () => {
  const job = await temporaryFolder();
  await plannedJob(photos, job);
  const variables = await tinyWorker(job);
  await runBulkWorker(variables);
  const now = new Date().toISOString();
  const claim = { schema: 1, worker: 0, host: "gone", startedAt: now, beatAt: now, images: 1 };
  await writeFile(join(job, "claims", "000000.json"), JSON.stringify(claim));
  const store = await openStore(job);
  const { shards } = await jobStatus(store, await readJob(store), 10);
  expect(shards).toMatchObject({ done: shards.total, running: 0, stale: 0 });
  await runBulkWorker(variables);
  expect(await filesIn(job, "claims")).toEqual([]);
});

test("a full disk ends the worker with one line, and the run can be resumed", async ({ skip }) => {
  const job = await temporaryFolder();
  const mounted = await execa("mount", ["-t", "tmpfs", "-o", "size=400k", "tmpfs", job], {
    reject: false,
  });
  skip(mounted.exitCode !== 0, "mounting a file system requires root");
  onTestFinished(async () => void (await execa("umount", ["--lazy", job])));
  await plannedJob(photos, job);
  const { exitCode, stderr } = await startWorker(job);
  expect(exitCode).toBe(1);
  expect(String(stderr).split("\n").at(-1)).toMatch(/\/000\d+\.\S+: the disk is full$/);
  await execa("mount", ["-o", "remount,size=20m", job]);
  expect((await startWorker(job)).exitCode).toBe(0);
  await expectSameTable(job);
});

test("planning again embeds only what is new or changed", async () => {
  const [source, job] = [await temporaryFolder(), await temporaryFolder()];
  await mkdir(join(source, "a"));
  for (let index = 0; index < 12; index++)
    await copyFile(photo(index + 20), join(source, `a/${10 + index}.jpg`));
  await plannedJob(source, job, { shardImages: 6 });
  await runBulkWorker(await tinyWorker(job));
  await writeFile(join(source, "a/12.jpg"), files[0]!);
  await rm(join(source, "a/13.jpg"));
  await copyFile(photo(40), join(source, "a/99.jpg"));
  await plannedJob(source, job, { shardImages: 6 });
  const { images } = await runBulkWorker(await tinyWorker(job));
  const store = await openStore(job);
  const { rows, reused, shards } = await jobStatus(store, await readJob(store), 120);
  // the shard with the changed and the removed image, and the one with the new image
  expect({ rows, reused, images, shards: shards.done }).toEqual({
    rows: 12,
    reused: 4,
    images: 6,
    shards: 3,
  });
  const table = await tableOf(job);
  expect(table.map(({ uri }) => uri.slice(-6))).toEqual(
    ["10", "11", "12", "14", "15", "16", "17", "18", "19", "20", "21", "99"].map((n) => `${n}.jpg`),
  );
  expect(table[2]?.sha256).toBe(expected[0]?.sha256);
});

test("fails if the model is another one than that of the vectors", async () => {
  const job = await temporaryFolder();
  await plannedJob(photos, job);
  await writeFile(join(job, "model.json"), JSON.stringify({ schema: 1, fingerprint: "other" }));
  await expect(runBulkWorker(await tinyWorker(job))).rejects.toThrow(
    `${job}: the model must have the fingerprint other of the existing vectors, got `,
  );
});

test("stops if too many images fail", async () => {
  const [source, job] = [await temporaryFolder(), await temporaryFolder()];
  for (let index = 0; index < 30; index++) await writeFile(join(source, `${index}.jpg`), "none");
  await plannedJob(source, job, { shardImages: 30 });
  await expect(runBulkWorker(await tinyWorker(job))).rejects.toThrow(
    /^11 of 11 images failed, more than BULK_MAX_ERROR_SHARE 0\.05; the latest: unsupported_media_type: is not a JPEG, PNG or WebP file$/,
  );
  // otherwise a second run would succeed
  await sleep(200);
  expect(await filesIn(job, "records")).toEqual([]);
});
