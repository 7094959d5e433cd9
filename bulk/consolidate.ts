import { type Data, type FixedSizeList, type Float32, type RecordBatch, Table } from "apache-arrow";
import { UserError } from "../contract/user-error.ts";
import { doneShards, jobModel, keys, readJob, readJson } from "./job/job.ts";
import { foreignParts, openPart } from "./job/open-part.ts";
import type { Store } from "./store/store.ts";
import { parquetBytes } from "./table/arrow-parquet.ts";
import { npyBytes } from "./table/npy.ts";

export const tableFormats = ["parquet", "npy"] as const;
export type TableFormat = (typeof tableFormats)[number];

export interface ConsolidateOptions {
  /** Location of the job. */
  readonly store: Store;
  readonly target: Store;
  /**
   * `parquet`: `table_0.parquet`. `npy`: `img_emb/img_emb_0.npy` and `metadata/metadata_0.parquet` with the other columns, as
   * clip-retrieval writes and autofaiss and embedding-reader read.
   */
  readonly format: TableFormat;
  /** Rows of a file, rounded up to whole parts. */
  readonly rowsPerFile: number;
}

/** Files of each format, with their numbers. */
const tableFiles: Readonly<Record<TableFormat, RegExp>> = {
  parquet: /^table_(\d+)\.parquet$/,
  npy: /^(?:img_emb\/img_emb_(\d+)\.npy|metadata\/metadata_(\d+)\.parquet)$/,
};

/**
 * Writes the table of a job as few large files, with one of them in memory. Then removes the other files of an earlier table.
 *
 * @throws {UserError} if the job is not done, or a part is damaged or of another job
 */
export async function consolidate({
  store,
  target,
  format,
  rowsPerFile,
}: ConsolidateOptions): Promise<{ readonly rows: number; readonly files: number }> {
  const parts = `${store.address}/${keys.parts}`;
  if (`${target.address}/`.startsWith(parts)) {
    throw new UserError(
      `${target.address}: must not be in ${parts}, which has the parts of the job`,
    );
  }
  const job = await readJob(store);
  const done = await doneShards(store, job);
  if (done.size < job.shards.length) {
    throw new UserError(
      `${store.address}: all ${job.shards.length} shards must be done, got ${done.size}; run the job first`,
    );
  }
  const fingerprint = (await readJson(store, keys.model, jobModel))?.fingerprint;
  const requireNone = ([problem]: readonly string[]) => {
    if (problem === undefined) return;
    throw new Error(
      `${store.address}/${problem}; 'npx clipstack bulk verify ${store.address}' lists all problems`,
    );
  };
  requireNone(await foreignParts(store, job));
  let batches: RecordBatch[] = [];
  let [rows, pending] = [0, 0];
  const names = new Set<string>();
  // digits so that names sort as numbers do
  const digits = String(job.shards.length).length;
  const flush = async () => {
    const name = String(names.size).padStart(digits, "0");
    await writeFile(target, format, name, new Table(batches));
    names.add(name);
    [batches, pending] = [[], 0];
  };
  for (let shard = 0; shard < job.shards.length; shard++) {
    const { table, problems } = await openPart(store, job, shard, fingerprint);
    requireNone(problems);
    if (table === undefined || table.numRows === 0) continue;
    batches.push(...table.batches);
    rows += table.numRows;
    pending += table.numRows;
    if (pending >= rowsPerFile) await flush();
  }
  if (pending > 0) await flush();
  for await (const { key } of target.list()) {
    const [, ...found] = tableFiles[format].exec(key) ?? [];
    const name = found.find((group) => group !== undefined);
    if (name !== undefined && !names.has(name)) await target.remove(key);
  }
  return { rows, files: names.size };
}

async function writeFile(
  target: Store,
  format: TableFormat,
  name: string,
  table: Table,
): Promise<void> {
  if (format === "parquet") {
    await target.write(`table_${name}.parquet`, parquetBytes(table));
    return;
  }
  const vectors = table.getChild("embedding")!;
  const type = vectors.type as FixedSizeList<Float32>;
  const chunks = vectors.data.map((data) => valuesOf(data as Data<FixedSizeList<Float32>>));
  await target.write(`img_emb/img_emb_${name}.npy`, npyBytes(chunks, type.listSize));
  const columns = table.schema.fields.map((field) => field.name);
  const metadata = table.select(columns.filter((column) => column !== "embedding"));
  await target.write(`metadata/metadata_${name}.parquet`, parquetBytes(metadata));
}

/** Values of a column of lists, row-major. */
function valuesOf({ children, offset, length, stride, type }: Data<FixedSizeList<Float32>>) {
  const values = children[0]!.values as Float32Array | Uint16Array;
  const width = type.listSize;
  // a slice of a column has an offset; its child may already begin there
  const first = values.length === length * width ? 0 : offset * (stride || width);
  return values.subarray(first, first + length * width);
}
