import type { Table } from "apache-arrow";
import { messageOf } from "../../contract/user-error.ts";
import type { Store } from "../store/store.ts";
import { parquetTable } from "../table/arrow-parquet.ts";
import { fingerprintOf } from "../table/part.ts";
import { type BulkJob, keys, readJson, shardRecord } from "./job.ts";
import { errorCount } from "./status.ts";

/** Reads the part of a shard that is done. Each problem begins with its key; without a table it is damaged. */
export async function openPart(
  store: Store,
  job: BulkJob,
  shard: number,
  fingerprint: string | undefined,
): Promise<{
  readonly table?: Table;
  /** Images in the errors. */
  readonly failures: number;
  readonly problems: readonly string[];
}> {
  const key = keys.part(shard);
  const [content, record] = await Promise.all([
    store.read(key),
    readJson(store, keys.record(shard, job.shards[shard]!.hash), shardRecord),
  ]);
  const problems: string[] = [];
  const failures = errorCount(record?.errors ?? {});
  if (content.length !== record?.partBytes) {
    problems.push(`${key}: must have ${record?.partBytes} bytes, got ${content.length}`);
  }
  try {
    const table = parquetTable(content);
    const got = fingerprintOf(table);
    if (got !== fingerprint) {
      problems.push(`${key}: must have the fingerprint ${fingerprint}, got ${got}`);
    }
    return { table, failures, problems };
  } catch (error) {
    problems.push(`${key}: must be a Parquet file: ${messageOf(error).split("\n", 1)[0]}`);
    return { failures, problems };
  }
}

/** Problems of the files beside the parts that belong to no shard of the job. */
export async function foreignParts(store: Store, { shards }: BulkJob): Promise<readonly string[]> {
  const own = new Set(shards.map((_, shard) => keys.part(shard)));
  const problems: string[] = [];
  for await (const { key } of store.list(keys.parts)) {
    if (!own.has(key))
      problems.push(`${key}: must be of a shard of the job, which has ${own.size}`);
  }
  return problems;
}
