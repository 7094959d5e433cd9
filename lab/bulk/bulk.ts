import { link, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { withLifeline } from "../../artefact/simulation.ts";
import { readJob } from "../../bulk/job/job.ts";
import { planJob } from "../../bulk/job/plan.ts";
import { listSource } from "../../bulk/job/source.ts";
import { type DoneShard, jobStatus } from "../../bulk/job/status.ts";
import { openStore } from "../../bulk/store/open-store.ts";
import type { BulkVariables } from "../../bulk/work/settings.ts";
import { imageTowerOf } from "../../contract/model-shapes.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { sessionOptions } from "../../inference/session/onnx-session.ts";
import { nodeProgram, packageFolder } from "../../model-tools/files/folders.ts";
import { loadImages, makeLoadImages } from "../../model-tools/samples/load-images.ts";
import { runToEnd } from "../load/run-process.ts";
import { type Comparison, chosenBy } from "../rounds/comparison.ts";
import { othersShare, ownGroup, readCpu } from "../rounds/cpu-use.ts";
import {
  type BulkLoad,
  type BulkRun,
  bulkFigures,
  bulkLoads,
  memoryMiB,
  runtimesOf,
  type Workers,
  workersOf,
} from "./loads.ts";
import { makeMixedImages } from "./mixed-images.ts";
import { type BulkModels, bulkModels } from "./model-files.ts";
import { peakMemory } from "./peak-memory.ts";

/** Default of `--seconds`. */
const defaultSeconds = 4;
const loadNames = bulkLoads.map(({ id }) => id);

/** Python with clip-retrieval; without it, that load is skipped. */
const clipRetrievalPython = process.env.CLIPSTACK_CLIP_RETRIEVAL;

export const bulkComparison: Comparison<BulkRun, BulkLoad> = {
  name: "bulk",
  description:
    "measure bulk workers compared with ONNX Runtime alone, with sharp alone, with one another and with clip-retrieval (CLIPSTACK_CLIP_RETRIEVAL: a Python that has it)",
  loadNames,
  rounds: 5,
  quick: ["decoding"],
  line: ({ imagesPerSecond, peakMB }) =>
    `${imagesPerSecond.toFixed(1)} images/s, ${peakMB?.toFixed(0) ?? "-"} MB`,
  async prepare({ only, onProgress, seconds, baseline }, signal) {
    const isChosen = chosenBy(only, loadNames);
    const hasClipRetrieval = baseline && clipRetrievalPython !== undefined;
    const loads = bulkLoads.filter(
      ({ id }) => isChosen(id) && (hasClipRetrieval || !id.startsWith("clip-retrieval")),
    );
    onProgress("generating model and images");
    const bench: Bench = {
      models: await bulkModels(),
      images: {
        thumbnails: await makeLoadImages(loadImages.thumbnail),
        photos: await makeLoadImages(loadImages.photo),
        mixed: loads.some(({ id }) => id === "memory") ? await makeMixedImages() : [],
      },
      ...{ seconds, signal },
    };
    return {
      loads,
      excluded: [],
      measure: (load, subject, round) => measure(bench, load, subject, round),
      groups: bulkFigures(loads),
      subject: { model: defaultModel.name, memoryMiB },
    };
  },
};

interface Bench {
  readonly models: BulkModels;
  readonly images: Readonly<Record<Workers["images"], readonly Uint8Array[]>>;
  readonly seconds: number;
  readonly signal: AbortSignal;
}

interface Measured {
  readonly imagesPerSecond: number;
  readonly peakMB?: number;
}

async function measure(
  bench: Bench,
  load: BulkLoad,
  subject: string,
  round: number,
): Promise<BulkRun> {
  const folder = await mkdtemp(join(tmpdir(), "clipstack-bench-bulk-"));
  const before = readCpu();
  try {
    const count = Math.ceil((load.images * bench.seconds) / defaultSeconds);
    const measured = await measureSubject(bench, subject, folder, count);
    const after = readCpu();
    const others = before && after && othersShare(before, after, [ownGroup()]);
    return { load: load.id, subject, round, failures: {}, othersShare: others, ...measured };
  } finally {
    await rm(folder, { recursive: true });
  }
}

async function measureSubject(
  bench: Bench,
  subject: string,
  folder: string,
  count: number,
): Promise<Measured> {
  const runtimes = runtimesOf[subject];
  if (runtimes !== undefined) return await measureRuntimes(bench, runtimes);
  const photosOnly = subject.endsWith(", photos");
  const workers = workersOf[subject] ?? workersOf[photosOnly ? "worker, photos" : "worker"]!;
  const photos = join(folder, "photos");
  await linkImages(bench.images[workers.images], photos, count);
  if (subject === "sharp") return await measureSharp(bench, photos);
  if (subject.startsWith("clip-retrieval"))
    return await measureClipRetrieval(bench, photos, folder);
  return await measureWorkers(bench, workers, photos, join(folder, "job"), count);
}

/** Writes each image once, and links it under other names. */
async function linkImages(images: readonly Uint8Array[], folder: string, count: number) {
  await mkdir(folder);
  const path = (index: number) => join(folder, `${String(index).padStart(6, "0")}.jpg`);
  for (let index = 0; index < count; index++) {
    if (index < images.length) await writeFile(path(index), images[index]!);
    else await link(path(index % images.length), path(index));
  }
}

/** Command on cores of its own. */
function pinned(command: readonly string[], index: number, coresEach: number): readonly string[] {
  const cores = Array.from({ length: coresEach }, (_, core) => index * coresEach + core);
  return ["taskset", "--cpu-list", cores.join(","), ...command];
}

async function measureWorkers(
  { models, signal }: Bench,
  { count, coresEach, model }: Workers,
  photos: string,
  location: string,
  images: number,
): Promise<Measured> {
  const store = await openStore(location);
  const { entries } = await planJob({
    ...{ store, source: photos, entries: listSource(photos), model: defaultModel },
    ...{ vectors: "float32", shardBytes: 256 * 2 ** 20 },
    // the rate is that after the first shard of a worker
    shardImages: Math.max(32, Math.ceil(images / 16)),
  });
  const env: BulkVariables = {
    BULK_JOB: location,
    BULK_WORKERS: String(count),
    BULK_MEMORY_MIB: String(memoryMiB),
    BULK_MODEL_FILE: models[model],
    MODEL_PRECISION: model === "full" ? "fp32-optimised" : "fp32",
    INTRA_OP_THREADS: String(coresEach),
    PREPROCESS_THREADS: String(coresEach),
  };
  const node = withLifeline([process.execPath, ...nodeProgram("bulk/main")]);
  const memory = peakMemory();
  await Promise.all(
    Array.from({ length: count }, (_, index) =>
      runToEnd(
        {
          command: pinned(node, index, coresEach),
          args: [],
          env: { ...env, JOB_COMPLETION_INDEX: String(index) },
        },
        `worker ${index}`,
        signal,
        memory.watch,
      ),
    ),
  );
  const { records, rows } = await jobStatus(store, await readJob(store), 120);
  if (rows !== entries) throw new Error(`${rows} of ${entries} images have a row`);
  const rates = Array.from({ length: count }, (_, index) =>
    rateAfterFirst(records.filter(({ worker }) => worker === index)),
  );
  return { imagesPerSecond: rates.reduce((sum, one) => sum + one, 0), peakMB: memory.peakMB() };
}

/** Images per second of one worker after its first shard, in which code is compiled and memory allocated. */
function rateAfterFirst(records: readonly DoneShard[]): number {
  const shards = records
    .map(({ finishedAt, rows }) => ({ at: Date.parse(finishedAt), rows }))
    .sort((a, b) => a.at - b.at);
  const later = shards.slice(1).reduce((sum, { rows }) => sum + rows, 0);
  return (1000 * later) / (shards.at(-1)!.at - shards[0]!.at);
}

async function measureRuntimes(
  { models, seconds, signal }: Bench,
  { count, coresEach }: Pick<Workers, "count" | "coresEach">,
): Promise<Measured> {
  const batchSize = defaultModel.batching.maximum;
  const task = {
    modelPath: models.optimised,
    sessionOptions: sessionOptions({ intraOpThreads: coresEach }),
    batchSizes: [batchSize],
    seconds,
  };
  const node = [process.execPath, join(packageFolder, "inference/session/raw-session.mjs")];
  const rates = await Promise.all(
    Array.from({ length: count }, async (_, index) => {
      const command = pinned(node, index, coresEach);
      const args = [JSON.stringify(task)];
      const { rows } = await resultOf<{ rows: readonly { readonly runMs: readonly number[] }[] }>(
        { command, args, env: { ORT_DISABLE_TELEMETRY: "1" } },
        "runtime",
        signal,
      );
      const { runMs } = rows[0]!;
      return (1000 * batchSize * runMs.length) / runMs.reduce((sum, ms) => sum + ms, 0);
    }),
  );
  return { imagesPerSecond: rates.reduce((sum, one) => sum + one, 0) };
}

const threads = 2;

async function measureSharp({ seconds, signal }: Bench, photos: string): Promise<Measured> {
  const { width } = imageTowerOf(defaultModel).input.size;
  const program = fileURLToPath(new URL("sharp-decode.mjs", import.meta.url));
  return await resultOf<Measured>(
    {
      command: pinned([process.execPath, program], 0, threads),
      args: [photos, seconds, threads, width].map(String),
      env: { UV_THREADPOOL_SIZE: String(threads) },
    },
    "sharp",
    signal,
  );
}

async function measureClipRetrieval(
  { signal }: Bench,
  photos: string,
  folder: string,
): Promise<Measured> {
  const program = fileURLToPath(new URL("clip_inference.py", import.meta.url));
  const memory = peakMemory();
  const result = await resultOf<Measured>(
    {
      command: pinned([clipRetrievalPython!, program], 0, threads),
      args: [photos, join(folder, "output"), String(threads)],
      env: { OMP_NUM_THREADS: String(threads), PYTHONDONTWRITEBYTECODE: "1" },
    },
    "clip-retrieval",
    signal,
    memory.watch,
  );
  return { ...result, peakMB: memory.peakMB() };
}

/** Last line of a program's output as JSON. */
async function resultOf<T>(...args: Parameters<typeof runToEnd>): Promise<T> {
  const child = await runToEnd(...args);
  return JSON.parse(child.lastLines(1)[0] ?? "") as T;
}
