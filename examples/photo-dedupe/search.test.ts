import { execFile } from "node:child_process";
import { copyFileSync, mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";
import {
  type InferenceClient,
  openInferenceClient,
} from "../../client/embedding/inference-client.ts";
import { efficientnetLite0 } from "../../contract/models/efficientnet-lite0.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { ensureTinyModel, generateModel } from "../../model-tools/generate/generate.ts";
import { tinyModel } from "../../model-tools/generate/test-model.ts";
import { embed } from "./embed.ts";
import { cosine, findModel } from "./index-model.ts";
import { openPhotoDatabase, type PhotoDatabase } from "./photo-database.ts";
import { scan } from "./scan.ts";
import { findTextModel, type SearchOptions, search } from "./search.ts";
import { picture, silent, temporaryFolder } from "./test-photos.ts";

const folder = join(temporaryFolder(), "photos");
const file = join(folder, "../photos.db");
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
  database = openPhotoDatabase(file, "create");
  await scan(database, { folder, progress: silent });
  await embed(database, {
    ...{ client, model: defaultModel.name, location: "here", waitSeconds: 0 },
    ...{ replace: false, progress: silent },
  });
  rmSync(join(folder, "4.jpg"));
  await scan(database, { folder, progress: silent });
});

afterAll(async () => {
  await client?.close();
  database?.close();
});

const searchFor = (text: string, options: Partial<SearchOptions> = {}) =>
  search(database, findModel(database), { client, location: "here", text, limit: 20, ...options });

/** Runs `clipstack-dedupe search`, also in `database`, which is in write-ahead mode. */
const command = (...args: readonly string[]) =>
  new Promise<{ readonly code: unknown; readonly stdout: string; readonly stderr: string }>(
    (resolve) => {
      const program = fileURLToPath(new URL("clipstack-dedupe.mjs", import.meta.url));
      execFile(
        process.execPath,
        [program, "search", "a red cat", "--db", file, ...args],
        (error, stdout, stderr) => resolve({ code: error?.code ?? 0, stdout, stderr }),
      );
    },
  );

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

test("the cosines depend on the text", async () => {
  const cosines = async (text: string) => (await searchFor(text)).hits.map((hit) => hit.cosine);
  expect(await cosines("a red cat")).not.toEqual(await cosines("the sea at night"));
});

test("lists at most the requested number", async () => {
  expect((await searchFor("a red cat", { limit: 2 })).hits).toHaveLength(2);
});

test("fails if the model has other weights than that of the index", async () => {
  const other = join(folder, "../other.onnx");
  await generateModel({ spec: defaultModel, profile: "tiny", seed: 2, file: other });
  const otherClient = await openInferenceClient({ mode: "local", modelPath: other, textModelPath });
  try {
    await expect(searchFor("a red cat", { client: otherClient })).rejects.toThrow(
      `'${file}' has embeddings by another 'openclip-vit-b32' than that of here: use that one, or embed all again with --replace`,
    );
  } finally {
    await otherClient.close();
  }
});

test("the command prints cosines and paths, and labels random weights", async () => {
  const files = ["--model-file", modelPath, "--text-model-file", textModelPath];
  const { code, stdout } = await command("--mode", "local", "--limit", "3", ...files);
  expect(code).toBe(0);
  const { hits } = await searchFor("a red cat", { limit: 3 });
  const lines = hits.flatMap((hit) =>
    hit.paths.map((path) => `${hit.cosine.toFixed(4).padStart(7)}  ${path}`),
  );
  expect(stdout.trimEnd().split("\n")).toEqual([
    ...lines,
    "the model has random weights: the results are for testing and do not reflect the content of the photos",
  ]);
});

test("the command fails with one line if the text tower is missing", async () => {
  const missing = join(folder, "../missing.onnx");
  const files = ["--model-file", modelPath, "--text-model-file", missing];
  const { code, stderr } = await command("--mode", "local", ...files);
  expect(code).toBe(1);
  expect(stderr.trimEnd()).toMatch(/^clipstack-dedupe: .*missing\.onnx.*$/);
});

test("fails if the model of the index embeds no texts", async () => {
  const other = openPhotoDatabase(join(folder, "../images-only.db"), "create");
  const imagesOnly = await openInferenceClient({
    mode: "local",
    model: efficientnetLite0,
    modelPath: await tinyModel(efficientnetLite0),
  });
  try {
    await scan(other, { folder, progress: silent });
    await embed(other, {
      ...{ client: imagesOnly, model: efficientnetLite0.name, location: "here", waitSeconds: 0 },
      ...{ replace: false, progress: silent },
    });
    expect(() => findTextModel(other)).toThrow(
      /^efficientnet-lite0 embeds no texts: embed the photos with a model that does, one of openclip-vit-b32, [a-z0-9, -]+$/,
    );
  } finally {
    await imagesOnly.close();
    other.close();
  }
});
