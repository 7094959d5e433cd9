import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { beforeAll, expect, onTestFinished, test } from "vitest";
import { defaultModel } from "../contract/models/index.ts";
import { tritonModelName } from "../contract/triton-models.ts";
import { fullTestRepository, testRepository } from "../emulator/test-repository.ts";
import { type TritonProcess, tritonProcess } from "../emulator/test-triton-process.ts";
import { loadImages, makeLoadImages } from "../model-tools/samples/load-images.ts";
import { filesIn, plannedJob, tableOf, temporaryFolder, tinyWorker } from "./test-job.ts";
import { runBulkWorker } from "./work/worker.ts";

const count = 600;
const model = tritonModelName(defaultModel, "u8");
let photos: string;
let repository: string;

beforeAll(async () => {
  photos = await temporaryFolder();
  const files = await makeLoadImages(loadImages.thumbnail);
  for (let index = 0; index < count; index++) {
    await writeFile(join(photos, `${1000 + index}.jpg`), files[index % files.length]!);
  }
  ({ path: repository } = await fullTestRepository());
});

async function startTriton(folder: string, name: string): Promise<TritonProcess> {
  const triton = await tritonProcess(folder, { model: name });
  await triton.start();
  onTestFinished(() => triton.kill());
  return triton;
}

/** Worker that decodes and sends pixels. */
const tritonWorker = (job: string, { target }: TritonProcess, kind = "u8") =>
  tinyWorker(job, { BACKEND: "triton", TRITON_GRPC_URLS: target, TRITON_MODEL_KIND: kind });

test("fails if the model in Triton has no fingerprint", async () => {
  const job = await temporaryFolder();
  await plannedJob(photos, job);
  const { path } = await testRepository();
  const [name, kind] = [tritonModelName(defaultModel, "fp32"), "fp32"];
  const triton = await startTriton(path, name);
  await expect(runBulkWorker(await tritonWorker(job, triton, kind))).rejects.toThrow(
    `${triton.target}: ${name} must have the parameter fingerprint in its configuration, got none`,
  );
});

test("killing and restarting a Triton server leaves the table unchanged", async () => {
  const [job, local] = [await temporaryFolder(), await temporaryFolder()];
  await plannedJob(photos, job);
  await plannedJob(photos, local);
  const triton = await startTriton(repository, model);
  const working = runBulkWorker(await tritonWorker(job, triton));
  await expect.poll(() => filesIn(job, "parts"), { interval: 5 }).not.toEqual([]);
  await triton.kill();
  const partsAtKill = (await filesIn(job, "parts")).length;
  await triton.start();
  await working;
  expect(partsAtKill).toBeLessThan(count / 10);
  await runBulkWorker(await tinyWorker(local));
  const [table, expected] = [await tableOf(job), await tableOf(local)];
  expect(table.map(({ uri, sha256 }) => [uri, sha256])).toEqual(
    expected.map(({ uri, sha256 }) => [uri, sha256]),
  );
  for (const [row, { embedding }] of table.entries()) {
    const cosine = embedding.reduce(
      (sum, value, at) => sum + value * expected[row]!.embedding[at]!,
      0,
    );
    expect(cosine).toBeGreaterThan(0.9999);
  }
});
