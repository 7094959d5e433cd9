import {
  type BulkJob,
  doneShards,
  jobModel,
  keys,
  readJob,
  readJson,
  readManifest,
} from "./job/job.ts";
import { foreignParts, openPart } from "./job/open-part.ts";
import { openSourceReader } from "./job/source.ts";
import { openStore } from "./store/open-store.ts";
import { type Store, StoreError } from "./store/store.ts";
import { type EmbeddedImage, readFailures, rowsOf } from "./table/part.ts";
import { openPipeline } from "./work/open-pipeline.ts";
import type { ImageProblem, ImageResult } from "./work/pipeline.ts";
import type { BulkEnv } from "./work/settings.ts";

export interface Verification {
  readonly shards: number;
  readonly rows: number;
  readonly failures: number;
  /** Rows that were read and embedded again. */
  readonly sampled: number;
  /** Lowest cosine of a sampled row and its new embedding; absent without samples. */
  readonly lowestCosine?: number;
  /** Empty if the table is complete and correct. */
  readonly findings: readonly string[];
}

/** Lowest cosine of a row and the embedding of the same file: another batch and half precision change less. */
const minCosine = 0.999;
/** Findings that are listed. */
const maxFindings = 20;

/**
 * Checks that each image of the manifests is in the table or in the errors once, that all parts have the fingerprint of the job, and
 * embeds a random sample again.
 *
 * @throws {UserError} as a worker
 */
export async function verifyJob(env: BulkEnv, samples: number): Promise<Verification> {
  const store = await openStore(env.BULK_JOB, env.BULK_PATIENCE_SECONDS);
  const job = await readJob(store);
  const findings = [...(await foreignParts(store, job))];
  const sample: EmbeddedImage[] = [];
  const seen = new Set<string>();
  const totals = { rows: 0, failures: 0 };
  const done = await doneShards(store, job);
  const fingerprint = (await readJson(store, keys.model, jobModel))?.fingerprint;
  for (let shard = 0; shard < job.shards.length; shard++) {
    if (!done.has(shard)) {
      findings.push(`shard ${shard} is not done`);
      continue;
    }
    const { rows, failures, problems } = await readShard(store, job, shard, fingerprint, seen);
    findings.push(...problems);
    for (const row of rows) {
      totals.rows += 1;
      // reservoir sampling: every row has the same chance
      const at = Math.floor(Math.random() * totals.rows);
      if (sample.length < samples) sample.push(row);
      else if (at < samples) sample[at] = row;
    }
    totals.failures += failures;
  }
  const cosines =
    sample.length === 0 ? [] : await embedAgain(env, job, sample, fingerprint, findings);
  return {
    shards: done.size,
    ...totals,
    sampled: cosines.length,
    ...(cosines.length > 0 && { lowestCosine: Math.min(...cosines) }),
    findings:
      findings.length > maxFindings
        ? [...findings.slice(0, maxFindings), `${findings.length - maxFindings} more`]
        : findings,
  };
}

async function readShard(
  store: Store,
  job: BulkJob,
  shard: number,
  fingerprint: string | undefined,
  seen: Set<string>,
) {
  const [manifest, part] = await Promise.all([
    readManifest(store, job, shard),
    openPart(store, job, shard, fingerprint),
  ]);
  const problems = [...part.problems];
  const rows = part.table === undefined ? [] : rowsOf(part.table);
  const failures = await store
    .read(keys.errors(shard))
    .then(readFailures)
    .catch((error: unknown) => {
      // damaged, or missing because there are none: the number of rows tells
      if (!(error instanceof StoreError) || error.code === "missing") return [];
      throw error;
    });
  const key = keys.part(shard);
  if (failures.length !== part.failures) {
    problems.push(`${keys.errors(shard)}: must have ${part.failures} rows, got ${failures.length}`);
  }
  const inManifest = new Set(manifest.map(({ uri }) => uri));
  const found = new Map<string, number>();
  for (const { uri } of [...rows, ...failures]) {
    if (seen.has(uri)) problems.push(`${key}: ${uri} is in the table or the errors twice`);
    seen.add(uri);
    const entry = inManifest.has(uri) ? uri : uri.replace(/(\.tar)#.*$/is, "$1");
    found.set(entry, (found.get(entry) ?? 0) + 1);
  }
  for (const { uri } of manifest) {
    if (!found.delete(uri))
      problems.push(`${key}: ${uri} is neither in the table nor in the errors`);
  }
  for (const uri of found.keys()) problems.push(`${key}: ${uri} is not in the manifest`);
  for (const { uri, embedding } of rows) {
    const norm = Math.hypot(...embedding);
    if (!(Math.abs(norm - 1) < 0.01)) {
      problems.push(`${key}: the embedding of ${uri} must have norm 1, got ${norm}`);
    }
  }
  return { rows, failures: failures.length, problems };
}

/** @returns Cosines of the rows whose file is unchanged. */
async function embedAgain(
  env: BulkEnv,
  job: BulkJob,
  sample: readonly EmbeddedImage[],
  fingerprint: string | undefined,
  findings: string[],
): Promise<readonly number[]> {
  const opened = await openPipeline(job.model, env);
  const { pipeline } = opened;
  try {
    if (opened.fingerprint !== fingerprint) {
      findings.push(
        `the model must have the fingerprint ${fingerprint} of the table, got ${opened.fingerprint}`,
      );
      return [];
    }
    const reader = openSourceReader(env.BULK_PATIENCE_SECONDS, env.BULK_MEMORY_MIB * 2 ** 20);
    const results = sample
      .filter(({ uri }) => !/\.tar#/i.test(uri))
      .map(async (row) => {
        const result = await new Promise<ImageResult | ImageProblem>((resolve) => {
          void pipeline.add({ bytes: 0, read: () => reader.read(row) }, resolve);
        });
        return cosineOf(row, result, findings);
      });
    const cosines = await Promise.race([Promise.all(results), pipeline.failed]);
    return cosines.filter((cosine) => cosine !== undefined);
  } finally {
    await opened.close();
  }
}

function cosineOf(
  { uri, sha256, embedding }: EmbeddedImage,
  result: ImageResult | ImageProblem,
  findings: string[],
): number | undefined {
  if ("code" in result) {
    findings.push(`${uri} cannot be embedded again: ${result.code}: ${result.reason}`);
    return undefined;
  }
  if (result.sha256 !== sha256) {
    findings.push(`${uri} must have the SHA-256 ${sha256}, got ${result.sha256}`);
    return undefined;
  }
  const cosine = embedding.reduce((sum, value, at) => sum + value * result.embedding[at]!, 0);
  if (!(cosine >= minCosine)) {
    findings.push(
      `${uri}: the cosine to its new embedding must be ${minCosine} or more, got ${cosine}`,
    );
  }
  return cosine;
}
