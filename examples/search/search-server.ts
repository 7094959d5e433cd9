import { readFile } from "node:fs/promises";
import type { InferenceClient } from "@clipstack/client";
import type { FastifyInstance } from "fastify";
import sharp from "sharp";
import { z } from "zod";
import { buildLocalPage } from "./local-page.ts";
import type { VectorIndex } from "./vector-index.ts";

const limit = z.coerce.number().int().min(1).max(200).default(24);
const length = "must have 1 to 1,000 characters";
const text = z.string().trim().min(1, length).max(1_000, length);
const textQuery = z.strictObject({ text, limit });
const imageQuery = z.strictObject({ limit });

/** Builds the server of the search page without listening. Clients send queries, and URIs that a search has found, never paths. */
export function buildSearchApp(index: VectorIndex, client: InferenceClient): FastifyInstance {
  const app = buildLocalPage(new URL("page/", import.meta.url), [
    "index.html",
    "page.css",
    "page.js",
  ]);
  const shown = new Set<string>();
  const find = async (vector: Float32Array | undefined, count: number) => {
    const hits = await index.search(vector!, count);
    for (const { uri } of hits) shown.add(uri);
    return { model: index.model, hits };
  };
  app.addContentTypeParser(/^image\//, { parseAs: "buffer" }, (_request, body, done) =>
    done(null, body),
  );
  app.get("/api/search", async ({ query }) => {
    const { text: searched, limit: count } = textQuery.parse(query);
    const [vector] = await client.embedText([searched]);
    return await find(vector, count);
  });
  app.post("/api/search", async ({ query, body }, reply) => {
    const { limit: count } = imageQuery.parse(query);
    if (!Buffer.isBuffer(body)) return reply.code(415).send({ error: "the body must be an image" });
    const [vector] = await client.embed([body]);
    return await find(vector, count);
  });
  app.get("/image", async ({ query }, reply) => {
    const { uri } = z.strictObject({ uri: z.string() }).parse(query);
    try {
      if (!shown.has(uri)) throw new Error("was not found by a search");
      const image = await sharp(await readFile(uri))
        .autoOrient()
        .resize(480, 480, { fit: "inside", withoutEnlargement: true })
        .jpeg()
        .toBuffer();
      return reply.type("image/jpeg").send(image);
    } catch {
      return reply.code(404).send({ error: "the image cannot be shown" });
    }
  });
  return app;
}
