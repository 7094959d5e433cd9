import { type Table, tableFromIPC, tableToIPC } from "apache-arrow";
import {
  Compression,
  readParquet,
  Table as WasmTable,
  WriterPropertiesBuilder,
  writeParquet,
} from "parquet-wasm";

/** Encodes a table as one Parquet file, with its Arrow schema, so that readers see lists of fixed size. */
export function parquetBytes(table: Table): Uint8Array {
  const properties = new WriterPropertiesBuilder()
    .setCompression(Compression.ZSTD)
    // most values are unique
    .setDictionaryEnabled(false)
    .setKeyValueMetadata(new Map(table.schema.metadata))
    .build();
  return writeParquet(WasmTable.fromIPCStream(tableToIPC(table, "stream")), properties);
}

/** @throws {Error} if the content is not a Parquet file, or has no such columns */
export function parquetTable(content: Uint8Array, columns?: readonly string[]): Table {
  const options = columns === undefined ? undefined : { columns: [...columns] };
  return tableFromIPC(readParquet(content, options).intoIPCStream());
}
