import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { beforeAll, expect, onTestFinished, test } from "vitest";
import { realTritonMissing, startRealTriton } from "../client/triton/test-real-triton.ts";
import { defaultModel } from "../contract/models/index.ts";
import { tritonModelName } from "../contract/triton-models.ts";
import { fullTestRepository, testRepository } from "../emulator/test-repository.ts";
import { type TritonProcess, tritonProcess } from "../emulator/test-triton-process.ts";
import { loadImages, makeLoadImages } from "../model-tools/samples/load-images.ts";
import { cosine } from "../target/stats/statistics.ts";
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
const tritonWorker = (job: string, { target }: Pick<TritonProcess, "target">, kind = "u8") =>
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
  await expectTableOf(local, job);
});

test.skipIf(realTritonMissing !== "")(
  `a worker with a real Triton server writes the table of one with the model in its process${realTritonMissing === "" ? "" : ` (skipped: ${realTritonMissing})`}`,
  async () => {
    const [job, local] = [await temporaryFolder(), await temporaryFolder()];
    await plannedJob(photos, job, { shardImages: 100 });
    await plannedJob(photos, local, { shardImages: 100 });
    // its models are changed to the Python backend
    const { path } = await fullTestRepository();
    const triton = await startRealTriton(path);
    onTestFinished(() => triton.stop());
    await runBulkWorker(await tritonWorker(job, { target: triton.grpcTarget }));
    await expectTableOf(local, job);
  },
);

/** Embeds `local` in this process, and expects its table in `job`. */
async function expectTableOf(local: string, job: string): Promise<void> {
  await runBulkWorker(await tinyWorker(local));
  const [table, expected] = [await tableOf(job), await tableOf(local)];
  expect(table.map(({ uri, sha256 }) => [uri, sha256])).toEqual(
    expected.map(({ uri, sha256 }) => [uri, sha256]),
  );
  for (const [row, { embedding }] of table.entries()) {
    expect(cosine(embedding, expected[row]!.embedding)).toBeGreaterThan(0.9999);
  }
}
