import { copyFileSync, mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import {
  type InferenceClient,
  openInferenceClient,
} from "../../client/embedding/inference-client.ts";
import { efficientnetLite0 } from "../../contract/models/efficientnet-lite0.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { ensureTinyModel, generateModel } from "../../model-tools/generate/generate.ts";
import { tinyModel } from "../../model-tools/generate/test-model.ts";
import { cosine } from "../search/query-client.ts";
import { embed } from "./embed.ts";
import { openPhotoDatabase, type PhotoDatabase } from "./photo-database.ts";
import { scan } from "./scan.ts";
import { type SearchOptions, search } from "./search.ts";
import { picture, silent, temporaryFolder } from "./test-photos.ts";

const folder = join(temporaryFolder(), "photos");
let modelPath: string;
let textModelPath: string;
let client: InferenceClient;
let database: PhotoDatabase;

beforeAll(async () => {
  modelPath = await tinyModel();
  textModelPath = await ensureTinyModel(defaultModel, "text");
  client = await openInferenceClient({ mode: "local", modelPath, textModelPath });
  mkdirSync(folder);
  for (let i = 0; i < 5; i++)
    await picture(i)
      .jpeg()
      .toFile(join(folder, `${i}.jpg`));
  copyFileSync(join(folder, "1.jpg"), join(folder, "copy.jpg"));
  database = openPhotoDatabase(join(folder, "../index"), "create");
  await scan(database, { folder, progress: silent });
  const common = { replace: false, progress: silent } as const;
  await embed(database, { ...common, model: defaultModel.name, weights: "tiny" });
  await embed(database, { ...common, model: efficientnetLite0.name, weights: "tiny" });
  rmSync(join(folder, "4.jpg"));
  await scan(database, { folder, progress: silent });
});

afterAll(async () => {
  await client?.close();
  database?.close();
});

const searchFor = (text: string, options: Partial<SearchOptions> = {}) =>
  search(database, {
    ...{ text, limit: 20, mode: "local", note: () => {}, model: defaultModel.name },
    ...{ modelFile: modelPath, textModelFile: textModelPath, ...options },
  });

test("lists existing photos by their cosine to the text, the closest first, with copies", async () => {
  const { hits, weights } = await searchFor("a red cat");
  const [query] = await client.embedText(["a red cat"]);
  const expected = await Promise.all(
    [0, 1, 2, 3].map(async (i) => {
      const [vector] = await client.embed([await picture(i).jpeg().toBuffer()]);
      const names = i === 1 ? ["1.jpg", "copy.jpg"] : [`${i}.jpg`];
      return { cosine: cosine(query!, vector!), paths: names.map((name) => join(folder, name)) };
    }),
  );
  expected.sort((a, b) => b.cosine - a.cosine);
  expect(hits.map(({ paths }) => paths)).toEqual(expected.map(({ paths }) => paths));
  for (const [i, hit] of hits.entries()) expect(hit.cosine).toBeCloseTo(expected[i]!.cosine, 5);
  expect(weights).toBe("random");
});

test("lists at most the requested number, by cosines that depend on the text", async () => {
  const cosines = async (text: string) =>
    (await searchFor(text, { limit: 2 })).hits.map((hit) => hit.cosine);
  const found = await cosines("a red cat");
  expect(found).toHaveLength(2);
  expect(found).not.toEqual(await cosines("the sea at night"));
});

test("fails if the model has other weights than that of the index", async () => {
  const other = join(folder, "../other.onnx");
  await generateModel({ spec: defaultModel, profile: "tiny", seed: 2, file: other });
  await expect(searchFor("a red cat", { modelFile: other })).rejects.toThrow(
    `'${database.folder}', openclip-vit-b32: the model of the service or file has other weights than that of the table`,
  );
});

test("fails if the text tower is missing, or the model embeds no texts", async () => {
  const missing = join(folder, "../missing.onnx");
  await expect(searchFor("a red cat", { textModelFile: missing })).rejects.toThrow(/missing\.onnx/);
  await expect(searchFor("a red cat", { model: efficientnetLite0.name })).rejects.toThrow(
    /^efficientnet-lite0 embeds no texts: embed the photos with a model that does, one of openclip-vit-b32, [a-z0-9, -]+$/,
  );
});
