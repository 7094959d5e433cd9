import { existsSync } from "node:fs";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import {
  DataType,
  type FixedSizeList,
  type Float32,
  type Table,
  tableFromIPC,
  type Vector,
} from "apache-arrow";
import { readParquet } from "parquet-wasm";
import type { VectorTable } from "./cosine-blocks.ts";
import { CommandError, reasonOf } from "./report.ts";

/** Embeddings of a table and the image of each. */
export interface EmbeddingTable extends VectorTable {
  /** Name of the model's spec; empty if the table has no rows. */
  readonly model: string;
  readonly uris: readonly string[];
}

/**
 * Reads the embeddings of a folder of `clipstack bulk`, or of the files that its `consolidate` writes, in the order of the files.
 *
 * @param isWanted - Decides on each row. The etag changes with the image. @default - all rows
 * @throws {CommandError} if a file is damaged, or has vectors of another model than the first one
 */
export async function readTable(
  job: string,
  isWanted: (uri: string, etag: string) => boolean = () => true,
): Promise<EmbeddingTable> {
  const { uris, rowsOfParts } = await readUris(job, isWanted);
  // allocated once, because a copy would double the memory
  let data = new Float32Array(0);
  let [width, count, partIndex, model, identity] = [0, 0, 0, "", ""];
  for await (const part of partsOf(job, ["embedding"])) {
    const { values, width: found } = valuesOf(part.getChild("embedding")!);
    const fact = (name: string) => part.schema.metadata.get(`clipstack.${name}`) ?? "";
    const foundIdentity = `${fact("model")} ${fact("fingerprint")} with ${found} values`;
    if (partIndex > 0 && foundIdentity !== identity) {
      throw new CommandError(
        "usage",
        `'${job}' must contain vectors of one model, got ${identity} and ${foundIdentity}`,
      );
    }
    [width, model, identity] = [found, fact("model"), foundIdentity];
    if (count === 0) data = new Float32Array(uris.length * width);
    for (const row of rowsOfParts[partIndex++] ?? []) {
      data.set(values.subarray(row * width, (row + 1) * width), width * count++);
    }
  }
  return { model, uris, width, count: uris.length, data };
}

/** Reads the images of a table without their embeddings. */
export async function readUris(
  job: string,
  isWanted: (uri: string, etag: string) => boolean,
): Promise<{
  readonly uris: readonly string[];
  /** Wanted rows of each file. */
  readonly rowsOfParts: readonly (readonly number[])[];
}> {
  const uris: string[] = [];
  const rowsOfParts: (readonly number[])[] = [];
  for await (const part of partsOf(job, ["uri", "etag"])) {
    const [uri, etag] = [part.getChild("uri")!, part.getChild("etag")!];
    const rows: number[] = [];
    for (let row = 0; row < part.numRows; row++) {
      if (!isWanted(uri.get(row), etag.get(row))) continue;
      rows.push(row);
      uris.push(uri.get(row));
    }
    rowsOfParts.push(rows);
  }
  return { uris, rowsOfParts };
}

/** Row of the errors: an image without an embedding. */
export interface FailedImage {
  readonly uri: string;
  readonly code: string;
  readonly reason: string;
}

export async function readErrors(job: string): Promise<readonly FailedImage[]> {
  const errors: FailedImage[] = [];
  for await (const table of filesOf(join(job, "errors"))) errors.push(...table.toArray());
  return errors;
}

function partsOf(job: string, columns: readonly string[]): AsyncGenerator<Table> {
  const parts = join(job, "parts");
  return filesOf(existsSync(parts) ? parts : job, columns);
}

/** Parquet files of a folder, ordered by name, one in memory at a time. */
async function* filesOf(folder: string, columns?: readonly string[]): AsyncGenerator<Table> {
  const names = await readdir(folder).catch(() => []);
  for (const name of names.filter((file) => file.endsWith(".parquet")).sort()) {
    const options = columns === undefined ? undefined : { columns: [...columns] };
    const file = join(folder, name);
    let table: Table;
    try {
      table = tableFromIPC(readParquet(await readFile(file), options).intoIPCStream());
    } catch (cause) {
      throw new CommandError("failed", `'${file}' cannot be read: ${reasonOf(cause)}`, { cause });
    }
    for (const name of columns ?? []) {
      const type = table.getChild(name)?.type;
      const isRead = name === "embedding" ? DataType.isFixedSizeList(type) : type !== undefined;
      if (isRead) continue;
      throw new CommandError(
        "usage",
        `'${file}' must have the column ${name} as 'clipstack bulk' writes it, got ${type ?? "none"}`,
      );
    }
    yield table;
  }
}

/** Values of a column of lists of fixed size, row-major; half-precision ones are widened. */
function valuesOf(column: Vector): { readonly values: Float32Array; readonly width: number } {
  const { listSize: width } = column.type as FixedSizeList<Float32>;
  const [only, ...others] = column.data;
  const child = only?.children[0]?.values;
  if (others.length === 0 && child instanceof Float32Array) return { values: child, width };
  const values = new Float32Array(column.length * width);
  for (let row = 0; row < column.length; row++) values.set([...column.get(row)], row * width);
  return { values, width };
}
