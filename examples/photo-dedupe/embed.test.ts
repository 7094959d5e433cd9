import { spawn } from "node:child_process";
import { once } from "node:events";
import { copyFileSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import {
  type InferenceClient,
  openInferenceClient,
} from "../../client/embedding/inference-client.ts";
import { efficientnetLite0 } from "../../contract/models/efficientnet-lite0.ts";
import { defaultModel, modelCatalogue } from "../../contract/models/index.ts";
import { fullTestRepository } from "../../emulator/test-repository.ts";
import { startTritonEmulator } from "../../emulator/triton-emulator.ts";
import { generateModel } from "../../model-tools/generate/generate.ts";
import { tinyModel } from "../../model-tools/generate/test-model.ts";
import { cosine } from "../search/query-client.ts";
import { copySide, type EmbedOptions, embed } from "./embed.ts";
import { findModel, readVectors } from "./embeddings.ts";
import { openPhotoDatabase, type PhotoDatabase } from "./photo-database.ts";
import { scan } from "./scan.ts";
import { picture, silent, temporaryFolder } from "./test-photos.ts";

const program = fileURLToPath(new URL("clipstack-dedupe.mjs", import.meta.url));
const heicFile = fileURLToPath(new URL("test-photo.heic", import.meta.url));

let client: InferenceClient;
let otherWeights: string;
let folder: string;
let database: PhotoDatabase;
const notes: string[] = [];
const progress = {
  ...silent,
  note: (text: string) => notes.push(text.replaceAll(`${folder}/`, "")),
};

beforeAll(async () => {
  client = await openInferenceClient({ mode: "local", modelPath: await tinyModel() });
  otherWeights = join(temporaryFolder(), "other.onnx");
  await generateModel({ spec: defaultModel, profile: "tiny", seed: 2, file: otherWeights });
});

afterAll(() => client.close());

beforeEach(() => {
  folder = join(temporaryFolder(), "photos");
  mkdirSync(folder);
  database = openPhotoDatabase(join(folder, "../index"), "create");
  notes.length = 0;
});

afterEach(() => database.close());

const photo = (seed: number, name: string) => picture(seed).jpeg().toFile(join(folder, name));
const scanFolder = () => scan(database, { folder, progress });
const embedAll = (options: Partial<EmbedOptions> = {}) =>
  embed(database, {
    model: defaultModel.name,
    weights: "tiny",
    replace: false,
    progress,
    ...options,
  });
const vectors = (name: string = defaultModel.name) => readVectors(database, { name });
const sha256Of = (name: string) =>
  database.get<{ readonly sha256: string }>(
    "SELECT sha256 FROM photos WHERE path = ?",
    join(folder, name),
  )!.sha256;

test("embeds every content once, as a service does, and reports what cannot be read", async () => {
  await Promise.all([photo(1, "a.jpg"), photo(2, 'odd, "name"\n.jpg'), photo(3, "c.jpg")]);
  copyFileSync(join(folder, "a.jpg"), join(folder, "copy of a.jpg"));
  copyFileSync(heicFile, join(folder, "IMG_0001.HEIC"));
  await picture(3, 480, 320).jpeg().toFile(join(folder, "IMG_0001.jpg"));
  writeFileSync(join(folder, "text.jpg"), "this is no picture");
  writeFileSync(join(folder, "gif.png"), await picture(4).gif().toBuffer());
  writeFileSync(join(folder, "cut.heic"), readFileSync(heicFile).subarray(0, 900));
  expect(await scanFolder()).toMatchObject({ read: 9, unreadable: 0 });
  expect(await embedAll()).toMatchObject({ embedded: 5, failed: 2, weights: "random" });
  expect(notes.sort()).toEqual([
    expect.stringMatching(/^cut.heic: cannot be read: Input buffer has corrupt header: .+$/),
    "gif.png: cannot be read: is not a JPEG, PNG or WebP file",
    "text.jpg: cannot be read: is not a JPEG, PNG or WebP file",
  ]);
  const found = await vectors();
  const [expected] = await client.embed([readFileSync(join(folder, 'odd, "name"\n.jpg'))]);
  expect(cosine(found.of(sha256Of('odd, "name"\n.jpg'))!, expected!)).toBeGreaterThan(0.999);
  const [heic, jpeg] = ["IMG_0001.HEIC", "IMG_0001.jpg"].map((name) => found.of(sha256Of(name))!);
  expect(cosine(heic!, jpeg!)).toBeGreaterThan(0.98);

  // again: only what is new or has changed
  await photo(5, "c.jpg");
  await photo(6, "new.jpg");
  await scanFolder();
  expect(await embedAll()).toMatchObject({ embedded: 2 });
});

test("lists photos that have changed or disappeared since the scan and embeds the others", async () => {
  await Promise.all([photo(1, "a.jpg"), photo(2, "b.jpg"), photo(3, "c.jpg")]);
  await scanFolder();
  await photo(9, "a.jpg");
  rmSync(join(folder, "b.jpg"));
  expect(await embedAll()).toMatchObject({ embedded: 1, failed: 2 });
  expect(notes.sort()).toEqual([
    "a.jpg: has changed since the job was planned: scan again",
    "b.jpg: does not exist: scan again",
  ]);
});

test("does not mix embeddings of other weights, unless all are replaced", async () => {
  await photo(1, "a.jpg");
  await scanFolder();
  await embedAll();
  const before = (await vectors()).of(sha256Of("a.jpg"))!;
  await photo(2, "b.jpg");
  await scanFolder();
  await expect(embedAll({ weights: otherWeights })).rejects.toMatchObject({ code: "usage" });
  expect((await vectors()).count).toBe(1);
  expect(await embedAll({ weights: otherWeights, replace: true })).toMatchObject({ embedded: 2 });
  expect(cosine((await vectors()).of(sha256Of("a.jpg"))!, before)).toBeLessThan(0.5);
});

test("keeps the embeddings of each model", async () => {
  await photo(1, "a.jpg");
  await scanFolder();
  await embedAll();
  const { name } = efficientnetLite0;
  await embedAll({ model: name, weights: await tinyModel(efficientnetLite0) });
  expect([(await vectors()).width, (await vectors(name)).width]).toEqual([512, 1280]);
  expect(() => findModel(database)).toThrow(
    `--model is required: must be one of ${name}, ${defaultModel.name}`,
  );
});

test("embeds with a Triton server", async () => {
  await photo(1, "a.jpg");
  await scanFolder();
  const repository = await fullTestRepository();
  const triton = await startTritonEmulator(repository.flags(), { log: () => {} });
  try {
    const address = `127.0.0.1:${triton.ports.grpc}`;
    const result = await embedAll({ weights: undefined, triton: address });
    expect(result).toMatchObject({ embedded: 1, weights: "unknown" });
    const [expected] = await client.embed([readFileSync(join(folder, "a.jpg"))]);
    expect(cosine((await vectors()).data, expected!)).toBeGreaterThan(0.999);
  } finally {
    await triton.stop();
    await repository.remove();
  }
});

test("a copy of a HEIC is at least twice the input of every model of the catalogue", () => {
  for (const { name, towers } of modelCatalogue.values()) {
    const { width, height } = towers.image!.input.size;
    expect(copySide, name).toBeGreaterThanOrEqual(2 * Math.max(width, height));
  }
});

test("the command resumes a killed run, and labels random weights", async () => {
  for (let i = 0; i < 60; i++) await photo(i, `${i}.jpg`);
  await scanFolder();
  const run = () =>
    spawn(process.execPath, [program, "embed", "--index", database.folder, "--weights", "tiny"], {
      stdio: ["ignore", "pipe", "inherit"],
    });
  const first = run();
  const claim = join(database.folder, defaultModel.name, "claims", "000000.json");
  await expect.poll(() => readFileSync(claim, "utf8"), { interval: 5 }).toContain("host");
  first.kill("SIGKILL");
  await once(first, "close");
  const second = run();
  let text = "";
  second.stdout.on("data", (chunk) => (text += chunk));
  const [code] = await once(second, "close");
  expect([code, text]).toEqual([0, expect.stringContaining("the model has random weights")]);
  expect((await vectors()).count).toBe(60);
});
