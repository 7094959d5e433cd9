import { mkdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { beforeEach, expect, test } from "vitest";
import { defaultModel, modelCatalogue } from "../../contract/models/index.ts";
import { openStore } from "../store/open-store.ts";
import { filesIn, plannedJob, temporaryFolder } from "../test-job.ts";
import { doneShards, keys, readJob, readManifest } from "./job.ts";

let source: string;
let folder: string;
beforeEach(async () => {
  source = await temporaryFolder();
  folder = await temporaryFolder();
  for (const name of ["a.jpg", "b.PNG", "c.webp", "notes.txt", ".hidden.jpg"]) {
    await writeFile(join(source, name), name);
  }
});

async function urisOf(shard: number): Promise<readonly string[]> {
  const store = await openStore(folder);
  const entries = await readManifest(store, await readJob(store), shard);
  return entries.map(({ uri }) => uri.slice(source.length + 1));
}

test("groups images into shards by count, and skips other files", async () => {
  const { job, ...counts } = await plannedJob(source, folder, { shardImages: 2 });
  expect(counts).toEqual({ entries: 3, bytes: 16, added: 3, changed: 0, removed: 0 });
  expect(job.shards).toHaveLength(2);
  expect([await urisOf(0), await urisOf(1)]).toEqual([["a.jpg", "b.PNG"], ["c.webp"]]);
});

test("groups images into shards by bytes, and a large image alone", async () => {
  await writeFile(join(source, "b.PNG"), "x".repeat(100));
  const { job } = await plannedJob(source, folder, { shardBytes: 20 });
  expect(job.shards.map(({ entries, bytes }) => [entries, bytes])).toEqual([
    [1, 5],
    [1, 100],
    [1, 6],
  ]);
});

test("lists folders in the order of S3", async () => {
  await mkdir(join(source, "a"));
  await writeFile(join(source, "a", "x.jpg"), "x");
  await plannedJob(source, folder);
  expect(await urisOf(0)).toEqual(["a.jpg", "a/x.jpg", "b.PNG", "c.webp"]);
});

test("planning again replaces the manifests of changed shards only, and adds shards", async () => {
  const before = await plannedJob(source, folder, { shardImages: 1 });
  await writeFile(join(source, "b.PNG"), "changed");
  await rm(join(source, "c.webp"));
  await writeFile(join(source, "aa.jpg"), "new");
  const after = await plannedJob(source, folder, { shardImages: 1 });
  expect(after).toMatchObject({ entries: 3, added: 1, changed: 1, removed: 1 });
  const [first, second] = after.job.shards;
  expect(first).toEqual(before.job.shards[0]);
  expect(second?.hash).not.toBe(before.job.shards[1]?.hash);
  expect(await Promise.all([0, 1, 2, 3].map(urisOf))).toEqual([
    ["a.jpg"],
    ["b.PNG"],
    [],
    ["aa.jpg"],
  ]);
  expect(await filesIn(folder, "manifest")).toHaveLength(4);
});

test("a shard whose images are again those of an earlier plan is embedded again", async () => {
  const entries = async function* (etag: string) {
    yield { uri: "/a.jpg", bytes: 1, etag };
  };
  const plan = (etag: string) => plannedJob(source, folder, { entries: entries(etag) });
  const store = await openStore(folder);
  for (const etag of ["1", "2"]) {
    const { hash } = (await plan(etag)).job.shards[0]!;
    await store.write(keys.record(0, hash), "{}");
  }
  await store.write(keys.part(0), "rows of the second plan");
  const { job } = await plan("1");
  expect(await doneShards(store, job)).toEqual(new Set());
});

test("a slash at the end of the source is no other source", async () => {
  await plannedJob(source, folder);
  expect(await plannedJob(`${source}/`, folder)).toMatchObject({ added: 0 });
});

test("fails if the job would lie among the images", async () => {
  await expect(plannedJob(`${source}/`, source)).rejects.toThrow(
    `${source}: the job must not be the folder of the images; choose another one, such as ${source}-job`,
  );
  expect(await filesIn(source)).toHaveLength(5);
});

test("fails if the folder has a job of another model or source", async () => {
  await plannedJob(source, folder);
  const model = modelCatalogue.get("dinov2-small")!;
  await expect(plannedJob(source, folder, { model })).rejects.toThrow(
    `${folder}: model must be 'openclip-vit-b32', as in the existing job, got '${model.name}'; choose another folder for another job`,
  );
  await expect(
    plannedJob(source, folder, { model: { ...defaultModel, description: "other" } as never }),
  ).rejects.toThrow("got 'openclip-vit-b32' of another version;");
  const other = await temporaryFolder();
  await expect(plannedJob(other, folder)).rejects.toThrow(`source must be '${source}'`);
});

test("fails if there is no image, and leaves no job", async () => {
  const empty = await temporaryFolder();
  await expect(plannedJob(empty, folder)).rejects.toThrow(
    `${empty}: must exist and contain images`,
  );
  await expect(readJob(await openStore(folder))).rejects.toThrow("must contain a job");
});

test("fails if the source of an existing job has become empty, and keeps the job", async () => {
  const { job } = await plannedJob(source, folder);
  await rm(source, { recursive: true });
  await expect(plannedJob(source, folder)).rejects.toThrow(`${source}: must exist and contain`);
  expect(await readJob(await openStore(folder))).toEqual(job);
});
