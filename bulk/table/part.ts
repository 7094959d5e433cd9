import {
  Field,
  FixedSizeList,
  Float16,
  Float32,
  Int32,
  makeData,
  RecordBatch,
  Schema,
  Struct,
  Table,
  Utf8,
  type Vector,
  vectorFromArray,
} from "apache-arrow";
import type { VectorType } from "../../contract/bulk.ts";
import { parquetBytes, parquetTable } from "./arrow-parquet.ts";

/** Row of a part. */
export interface EmbeddedImage {
  readonly uri: string;
  /** Version of the object when it was read; empty if the source has none. */
  readonly etag: string;
  /** SHA-256 of the image file, hexadecimal. */
  readonly sha256: string;
  /** Size as displayed, in pixels. */
  readonly width: number;
  readonly height: number;
  /** Unit L2 norm. */
  readonly embedding: Float32Array;
}

/** Image without an embedding. */
export interface ImageFailure {
  readonly uri: string;
  readonly etag: string;
  readonly code: string;
  readonly reason: string;
}

export interface PartFacts {
  readonly fingerprint: string;
  readonly model: string;
  /** Width of the embeddings. */
  readonly width: number;
  readonly vectors: VectorType;
}

/** Keys of the metadata of a part. */
export const partMetadata = { fingerprint: "clipstack.fingerprint", model: "clipstack.model" };

const text = (values: readonly string[]) => vectorFromArray([...values], new Utf8());

/** Returns the Parquet file of a part. */
export function partBytes(rows: readonly EmbeddedImage[], facts: PartFacts): Uint8Array {
  return parquetBytes(partTable(rows, facts));
}

function partTable(rows: readonly EmbeddedImage[], facts: PartFacts): Table {
  const { fingerprint, model } = facts;
  const columns = {
    uri: text(rows.map(({ uri }) => uri)),
    etag: text(rows.map(({ etag }) => etag)),
    sha256: text(rows.map((row) => row.sha256)),
    width: vectorFromArray(
      rows.map(({ width }) => width),
      new Int32(),
    ),
    height: vectorFromArray(
      rows.map(({ height }) => height),
      new Int32(),
    ),
    fingerprint: text(rows.map(() => fingerprint)),
    embedding: vectorColumn(
      rows.map(({ embedding }) => embedding),
      facts,
    ),
  };
  const metadata = new Map([
    [partMetadata.fingerprint, fingerprint],
    [partMetadata.model, model],
  ]);
  return tableOf(columns, rows.length, metadata);
}

function vectorColumn(
  embeddings: readonly Float32Array[],
  { width, vectors }: PartFacts,
): ReturnType<typeof makeData> {
  const isHalf = vectors === "float16";
  const data = new (isHalf ? Uint16Array : Float32Array)(embeddings.length * width);
  for (const [row, embedding] of embeddings.entries()) {
    data.set(isHalf ? halfFloats(embedding) : embedding, row * width);
  }
  const type = isHalf ? new Float16() : new Float32();
  const child = makeData({
    type: type as Float32,
    length: data.length,
    data: data as Float32Array,
  });
  const list = new FixedSizeList(width, new Field("element", type as Float32, false));
  return makeData({ type: list, length: embeddings.length, child });
}

/** Table of columns without nulls. */
function tableOf(
  columns: Readonly<Record<string, Vector | ReturnType<typeof makeData>>>,
  length: number,
  metadata = new Map<string, string>(),
): Table {
  const children = Object.values(columns).map((column) =>
    "children" in column ? column : column.data[0]!,
  );
  const fields = Object.keys(columns).map(
    (name, index) => new Field(name, children[index]!.type, false),
  );
  const schema = new Schema(fields, metadata);
  const data = makeData({ type: new Struct(fields), length, nullCount: 0, children });
  return new Table(schema, [new RecordBatch(schema, data)]);
}

const [float, bits] = (() => {
  const buffer = new ArrayBuffer(4);
  return [new Float32Array(buffer), new Uint32Array(buffer)];
})();

/** IEEE 754 half-precision values of magnitude up to 1, rounded to the nearest, ties to even. */
export function halfFloats(values: Float32Array): Uint16Array {
  return Uint16Array.from(values, (value) => {
    float[0] = value;
    const sign = (bits[0]! >>> 16) & 0x8000;
    const magnitude = Math.abs(value);
    // below 2^-14: multiples of 2^-24
    if (magnitude < 2 ** -14) return sign | roundEven(magnitude * 2 ** 24);
    const exponent = ((bits[0]! >>> 23) & 0xff) - 112;
    // a fraction that rounds up to 1 carries into the exponent
    return sign | ((exponent << 10) + roundEven((bits[0]! & 0x7fffff) / 2 ** 13));
  });
}

function roundEven(value: number): number {
  const rounded = Math.round(value);
  return rounded - value === 0.5 && rounded % 2 === 1 ? rounded - 1 : rounded;
}

/** Reads the rows of a part. Half-precision embeddings are widened. @throws {Error} if it is not a part */
export function readPart(content: Uint8Array): {
  readonly fingerprint: string | undefined;
  readonly rows: readonly EmbeddedImage[];
} {
  const table = parquetTable(content);
  return { fingerprint: fingerprintOf(table), rows: rowsOf(table) };
}

export const fingerprintOf = ({ schema }: Table) => schema.metadata.get(partMetadata.fingerprint);

export function rowsOf(table: Table): readonly EmbeddedImage[] {
  const column = (name: string) => table.getChild(name)!;
  const [uri, etag, sha256, width, height, embedding] = [
    ...["uri", "etag", "sha256", "width", "height", "embedding"],
  ].map(column) as [Vector, Vector, Vector, Vector, Vector, Vector];
  return Array.from(
    { length: table.numRows },
    (_, row): EmbeddedImage => ({
      uri: uri.get(row),
      etag: etag.get(row),
      sha256: sha256.get(row),
      width: width.get(row),
      height: height.get(row),
      embedding: Float32Array.from(embedding.get(row) as Vector<Float32>),
    }),
  );
}

/** Returns the Parquet file of the images without an embedding. */
export function failuresBytes(failures: readonly ImageFailure[]): Uint8Array {
  return parquetBytes(
    tableOf(
      {
        uri: text(failures.map(({ uri }) => uri)),
        etag: text(failures.map(({ etag }) => etag)),
        code: text(failures.map(({ code }) => code)),
        reason: text(failures.map(({ reason }) => reason)),
      },
      failures.length,
    ),
  );
}

export function readFailures(content: Uint8Array): readonly ImageFailure[] {
  return parquetTable(content)
    .toArray()
    .map(({ uri, etag, code, reason }) => ({ uri, etag, code, reason }));
}
