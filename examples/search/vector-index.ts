import { existsSync } from "node:fs";
import { readFile, rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import pg from "pg";
import { Index, MetricKind, ScalarKind } from "usearch";
import { z } from "zod";
import { CommandError, reasonOf } from "./report.ts";
import type { EmbeddingTable } from "./table.ts";

/** Image that a search found. */
export interface SearchHit {
  readonly uri: string;
  readonly cosine: number;
}

/** Index of the embeddings of a table. */
export interface VectorIndex {
  /** Name of the spec of their model. */
  readonly model: string;
  /** One of the images with its embedding. */
  readonly sample: { readonly uri: string; readonly vector: Float32Array };
  /** @returns The closest first. */
  search(vector: Float32Array, limit: number): Promise<readonly SearchHit[]>;
  close(): Promise<void>;
}

const files = { vectors: "search.usearch", images: "search.json" } as const;
const imagesFile = z.object({
  model: z.string(),
  width: z.int(),
  /** First embedding. */
  sample: z.array(z.number()),
  uris: z.array(z.string()),
});

const openUsearch = (width: number) =>
  new Index({
    metric: MetricKind.Cos,
    dimensions: width,
    quantization: ScalarKind.F16,
    connectivity: 16,
    expansion_add: 128,
    expansion_search: 64,
    multi: false,
  });

/** Vectors that are added at a time: all threads work on them. */
const batchSize = 10_000;

/** Writes a usearch index (HNSW, half precision) next to a table. */
export async function buildIndex(folder: string, table: EmbeddingTable): Promise<void> {
  const { model, width, count, data, uris } = table;
  const index = openUsearch(width);
  for (let first = 0; first < count; first += batchSize) {
    const size = Math.min(batchSize, count - first);
    const keys = BigUint64Array.from({ length: size }, (_, i) => BigInt(first + i));
    index.add(keys, data.subarray(first * width, (first + size) * width), 0);
  }
  const sample = [...data.subarray(0, width)];
  const text = JSON.stringify({ model, width, sample, uris });
  const draftOf = (name: string) => join(folder, `${name}.draft`);
  try {
    index.save(draftOf(files.vectors));
  } catch (cause) {
    throw new CommandError("failed", `'${folder}' cannot be written: ${reasonOf(cause)}`, {
      cause,
    });
  }
  await writeFile(draftOf(files.images), text);
  for (const name of Object.values(files)) await rename(draftOf(name), join(folder, name));
}

/** @throws {CommandError} if there is no index */
export async function openIndex(folder: string): Promise<VectorIndex> {
  const [vectors, images] = [join(folder, files.vectors), join(folder, files.images)];
  if (!existsSync(vectors) || !existsSync(images)) {
    throw new CommandError("usage", `'${folder}' has no index: run 'clipstack-search build' first`);
  }
  const { index, model, sample, uris } = await readIndex(vectors, images).catch((cause) => {
    throw new CommandError(
      "usage",
      `'${folder}' has a damaged index: ${reasonOf(cause)}; run 'clipstack-search build' again`,
      { cause },
    );
  });
  const search: VectorIndex["search"] = async (vector, limit) => {
    const { keys, distances } = index.search(vector, limit, 0);
    return Array.from(keys, (key, i) => ({ uri: uris[Number(key)]!, cosine: 1 - distances[i]! }));
  };
  const first = { uri: uris[0]!, vector: Float32Array.from(sample) };
  return { model, sample: first, search, close: async () => {} };
}

async function readIndex(vectors: string, images: string) {
  const { width, ...facts } = imagesFile.parse(JSON.parse(await readFile(images, "utf8")));
  const index = openUsearch(width);
  // mapped, not read
  index.view(vectors);
  const [found, expected] = [index.size(), facts.uris.length];
  if (found !== expected) throw new Error(`${found} vectors of ${expected} images`);
  return { index, ...facts };
}

/** Replaces the table `images` of a Postgres database with pgvector. */
export async function loadPostgres(url: string, table: EmbeddingTable): Promise<void> {
  const { model, width, count, data, uris } = table;
  const client = await connected(url);
  try {
    await client.query("CREATE EXTENSION IF NOT EXISTS vector");
    await client.query("BEGIN");
    await client.query("DROP TABLE IF EXISTS images");
    await client.query(`CREATE TABLE images (uri text PRIMARY KEY, embedding vector(${width}))`);
    await client.query(`COMMENT ON TABLE images IS ${client.escapeLiteral(model)}`);
    for (let first = 0; first < count; first += batchSize) {
      const last = Math.min(first + batchSize, count);
      const vectors = Array.from({ length: last - first }, (_, i) =>
        vectorText(data.subarray((first + i) * width, (first + i + 1) * width)),
      );
      await client.query(
        "INSERT INTO images SELECT uri, vector::vector FROM unnest($1::text[], $2::text[]) AS rows (uri, vector)",
        [uris.slice(first, last), vectors],
      );
    }
    await client.query("CREATE INDEX ON images USING hnsw (embedding vector_cosine_ops)");
    await client.query("COMMIT");
  } finally {
    await client.end();
  }
}

/** @throws {CommandError} if the database has no images */
export async function openPostgres(url: string): Promise<VectorIndex> {
  const client = await connected(url);
  const rows = await client
    .query(
      "SELECT obj_description('images'::regclass) AS model, uri, embedding FROM images LIMIT 1",
    )
    .catch(() => ({ rows: [] }));
  const [first] = rows.rows;
  if (first === undefined) {
    await client.end();
    throw new CommandError(
      "usage",
      "the database has no images: run 'clipstack-search build' first",
    );
  }
  return {
    model: first.model,
    sample: { uri: first.uri, vector: Float32Array.from(JSON.parse(first.embedding)) },
    async search(vector, limit) {
      const found = await client.query(
        "SELECT uri, 1 - (embedding <=> $1::vector) AS cosine FROM images ORDER BY embedding <=> $1::vector LIMIT $2",
        [vectorText(vector), limit],
      );
      return found.rows;
    },
    close: () => client.end(),
  };
}

const vectorText = (vector: Float32Array) => `[${vector.join()}]`;

async function connected(url: string): Promise<pg.Client> {
  try {
    const client = new pg.Client({ connectionString: url });
    await client.connect();
    return client;
  } catch (cause) {
    // the message of several failed addresses is empty
    const { message, code } = cause as { readonly message: string; readonly code?: string };
    throw new CommandError("failed", `--postgres: cannot connect: ${message || code}`, { cause });
  }
}
