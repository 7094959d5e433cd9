import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { execa } from "execa";
import { expect, test } from "vitest";
import { readJob } from "../../bulk/job/job.ts";
import { jobStatus } from "../../bulk/job/status.ts";
import { openStore } from "../../bulk/store/open-store.ts";
import { plannedJob, temporaryFolder, tinyWorker } from "../../bulk/test-job.ts";
import { nodeProgram } from "../../model-tools/files/folders.ts";
import { loadImages, makeLoadImages } from "../../model-tools/samples/load-images.ts";

const memoryMiB = 128;

/** @returns Largest resident size of a worker that embeds the images. */
async function peakOf(images: readonly Uint8Array[]): Promise<number> {
  const [photos, location] = [join(await temporaryFolder(), "photos"), await temporaryFolder()];
  await mkdir(photos);
  for (const [index, image] of images.entries())
    await writeFile(join(photos, `${index}.jpg`), image);
  await plannedJob(photos, location, { shardImages: 100 });
  const { BULK_MODEL_FILE } = await tinyWorker(location);
  const env = { BULK_JOB: location, BULK_MODEL_FILE, BULK_MEMORY_MIB: String(memoryMiB) };
  await execa(process.execPath, nodeProgram("bulk/main"), { env });
  const store = await openStore(location);
  const { rows, workers } = await jobStatus(store, await readJob(store), 120);
  expect(rows).toBe(images.length);
  return workers[0]!.peakRssMiB;
}

test("files that wait for a decoder take the memory of the setting", async () => {
  const cameras = await makeLoadImages({ ...loadImages.camera, count: 2 });
  const small = await peakOf(await makeLoadImages({ ...loadImages.thumbnail, count: 32 }));
  // 350 MB
  const large = await peakOf(Array.from({ length: 96 }, (_, index) => cameras[index % 2]!));
  expect(large - small).toBeLessThan(memoryMiB);
});
