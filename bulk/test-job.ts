import { mkdtemp, readdir } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { defaultModel } from "../contract/models/index.ts";
import { ensureTinyModel } from "../model-tools/generate/generate.ts";
import { type PlanOptions, type PlanResult, planJob } from "./job/plan.ts";
import { listSource } from "./job/source.ts";
import { openStore } from "./store/open-store.ts";
import { type EmbeddedImage, type ImageFailure, readFailures, readPart } from "./table/part.ts";
import { type BulkEnv, type BulkVariables, readBulkEnv } from "./work/settings.ts";

export const temporaryFolder = () => mkdtemp(join(tmpdir(), "bulk-"));

/** Plans a job of `source` in `folder`. */
export async function plannedJob(
  source: string,
  folder: string,
  options: Partial<PlanOptions> = {},
): Promise<PlanResult> {
  const defaults = { model: defaultModel, vectors: "float32", shardBytes: 1e9 } as const;
  const store = await openStore(folder);
  const entries = listSource(source);
  return await planJob({ store, source, entries, shardImages: 10, ...defaults, ...options });
}

/** Variables of one worker with the tiny model. */
export async function tinyWorker(job: string, variables: BulkVariables = {}): Promise<BulkEnv> {
  const BULK_MODEL_FILE = await ensureTinyModel(defaultModel);
  return readBulkEnv({ BULK_JOB: job, BULK_MODEL_FILE, ...variables });
}

/** All rows of a job's parts, ordered by URI. */
export async function tableOf(job: string): Promise<readonly EmbeddedImage[]> {
  const parts = await objectsOf(job, "parts/");
  return parts
    .flatMap((content) => readPart(content).rows)
    .sort((a, b) => (a.uri < b.uri ? -1 : 1));
}

export async function failuresOf(job: string): Promise<readonly ImageFailure[]> {
  return (await objectsOf(job, "errors/")).flatMap(readFailures);
}

async function objectsOf(job: string, prefix: string): Promise<readonly Uint8Array[]> {
  const store = await openStore(job);
  const contents: Uint8Array[] = [];
  for await (const { key } of store.list(prefix)) contents.push(await store.read(key));
  return contents;
}

/** Names of the files of a job's subfolder. */
export const filesIn = async (...path: readonly string[]) =>
  (await readdir(join(...path)).catch(() => [])).sort();
