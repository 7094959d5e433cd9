import { randomBytes } from "node:crypto";
import { watch } from "node:fs";
import {
  copyFile,
  mkdir,
  mkdtemp,
  open,
  readdir,
  readFile,
  rm,
  stat,
  utimes,
  writeFile,
} from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import { identityModel } from "../engine/test-identity-model.ts";
import { compareModels, embedWith, syntheticImages } from "./compare-models.ts";
import { ensureU8Model } from "./derive.ts";
import { draftForm } from "./form-folder.ts";
import { generateModel } from "./generate.ts";
import { modelInfo, readSidecar, sidecarPath } from "./model-info.ts";
import { splitModel } from "./onnx-writer.ts";
import { type PreparedModel, preparedFolder, prepareInto, prepareServerModel } from "./prepare.ts";
import { tinyModel } from "./test-model.ts";
import { profiles, visionTransformer } from "./vision-transformer.ts";

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "clipstack-prepare-"));
});
afterAll(async () => {
  await rm(folder, { recursive: true, force: true });
});

let count = 0;
const freshFolder = (): string => {
  count += 1;
  return join(folder, String(count));
};

const images = syntheticImages(2);

async function cosineTo(standard: string, prepared: PreparedModel): Promise<number> {
  const form = await embedWith(prepared.modelBytes ?? prepared.modelPath, images);
  return compareModels(await embedWith(standard, images), form).minCosine;
}

test("makes the form once, and finds it again", async () => {
  const cacheDir = freshFolder();
  const modelPath = await tinyModel();
  let made = 0;
  const onMaking = () => {
    made += 1;
  };
  const first = await prepareServerModel({ modelPath, cacheDir, onMaking });
  const second = await prepareServerModel({ modelPath, cacheDir, onMaking });
  expect(made).toBe(1);
  expect(second.modelPath).toBe(first.modelPath);
  expect(second.agreement).toEqual(first.agreement);
  expect(await second.isIntact()).toBe(true);
  expect(await cosineTo(modelPath, second)).toBeGreaterThan(0.999999);
});

test("keeps fp32 and int8 apart, and says how near int8 is", async () => {
  const cacheDir = freshFolder();
  const modelPath = await tinyModel();
  const [fp32, int8] = await Promise.all([
    prepareServerModel({ modelPath, cacheDir }),
    prepareServerModel({ modelPath, cacheDir, precision: "int8" }),
  ]);
  expect(int8.modelPath).not.toBe(fp32.modelPath);
  expect(int8.precision).toBe("int8");
  expect(int8.agreement.images).toBe(16);
  expect(int8.agreement.minCosine).toBeGreaterThan(0.999);
  expect(int8.agreement.minCosine).toBeLessThan(0.9999999);
  expect(await cosineTo(modelPath, int8)).toBeGreaterThan(0.999);
});

async function damage({ modelPath }: { readonly modelPath: string }): Promise<void> {
  const handle = await open(join(dirname(modelPath), "weights.bin"), "r+");
  await handle.write(randomBytes(8), 0, 8, 12_345);
  await handle.close();
}

test("a byte that has changed is found, and the form is made anew", async () => {
  const cacheDir = freshFolder();
  const modelPath = await tinyModel();
  const before = await prepareServerModel({ modelPath, cacheDir });
  await damage(before);
  const found = await prepareServerModel({ modelPath, cacheDir });
  expect(await found.isIntact()).toBe(false);
  const anew = await prepareServerModel({ modelPath, cacheDir, replace: true });
  expect(await anew.isIntact()).toBe(true);
  expect(anew.modelPath).toBe(before.modelPath);
});

test.runIf(process.platform === "linux")(
  "a form is read to see that it is intact, and not again until a file is touched",
  async () => {
    const form = await prepareServerModel({
      modelPath: await tinyModel(),
      cacheDir: freshFolder(),
    });
    const weights = join(dirname(form.modelPath), "weights.bin");
    const { size } = await stat(weights);
    const isRead = async () => {
      await sleep(150); // files that were changed just now are read in any case
      const before = await bytesRead();
      expect(await form.isIntact()).toBe(true);
      return (await bytesRead()) - before >= size;
    };
    expect(await isRead()).toBe(true);
    expect(await isRead()).toBe(false);
    await utimes(weights, new Date(), new Date());
    expect(await isRead()).toBe(true);
    await damage(form);
    expect(await form.isIntact()).toBe(false);
  },
);

/** How much this process has read, of files and all else. */
async function bytesRead(): Promise<number> {
  return Number(/^rchar: (\d+)$/m.exec(await readFile("/proc/self/io", "utf8"))?.[1]);
}

test("a form that is cut short is made anew", async () => {
  const cacheDir = freshFolder();
  const modelPath = await tinyModel();
  const before = await prepareServerModel({ modelPath, cacheDir });
  await writeFile(before.modelPath, "");
  const anew = await prepareServerModel({ modelPath, cacheDir });
  expect(await anew.isIntact()).toBe(true);
});

test("several processes at once leave one whole form, and nothing else", async () => {
  const cacheDir = freshFolder();
  const modelPath = await tinyModel();
  const prepared = await Promise.all(
    [1, 2, 3].map(() => prepareServerModel({ modelPath, cacheDir })),
  );
  expect(await Promise.all(prepared.map((model) => model.isIntact()))).toEqual([true, true, true]);
  expect(await readdir(cacheDir)).toHaveLength(1);
});

test("removes what a killed process left behind an hour ago, and no other", async () => {
  const cacheDir = freshFolder();
  const old = join(cacheDir, "0123456789abcdef-fp32-r1.41.1.part");
  const recent = join(cacheDir, "0123456789abcdef-fp32-r1.42.1.part");
  const others = join(cacheDir, "somebody-elses.part");
  const hourAgo = new Date(Date.now() - 3_600_000);
  for (const path of [old, recent, others]) await mkdir(path, { recursive: true });
  for (const path of [old, others]) await utimes(path, hourAgo, hourAgo);
  await prepareServerModel({ modelPath: await tinyModel(), cacheDir });
  const left = await readdir(cacheDir);
  expect(left).toHaveLength(3);
  expect(left).not.toContain("0123456789abcdef-fp32-r1.41.1.part");
});

test("removes a form that was replaced, where its removal was cut short an hour ago", async () => {
  const cacheDir = freshFolder();
  const modelPath = await tinyModel();
  await damage(await prepareServerModel({ modelPath, cacheDir }));
  const seen = new Set<string>();
  const watcher = watch(cacheDir, (_event, name) => seen.add(String(name)));
  await damage(await prepareServerModel({ modelPath, cacheDir, replace: true }));
  watcher.close();
  const replaced = [...seen].filter((name) => name.includes(".old"));
  expect(replaced).toHaveLength(1);
  const left = join(cacheDir, replaced[0]!);
  const hourAgo = new Date(Date.now() - 3_600_000);
  await mkdir(left);
  await utimes(left, hourAgo, hourAgo);
  await prepareServerModel({ modelPath, cacheDir, replace: true });
  await expect(stat(left)).rejects.toThrow("ENOENT");
});

test("what a killed process with the same id has just left is in nobody's way", async () => {
  const cache = freshFolder();
  for (let n = 1; n <= 100; n += 1) {
    await mkdir(join(cache, `form.${process.pid}.${n}.part`), { recursive: true });
  }
  const draft = await draftForm(cache, "form");
  await draft.discard();
  expect(await readdir(cache)).toHaveLength(100);
});

test("where the cache cannot be written, the form is in memory", async () => {
  const file = freshFolder();
  await writeFile(file, "no folder");
  const modelPath = await tinyModel();
  const prepared = await prepareServerModel({ modelPath, cacheDir: join(file, "cache") });
  expect(prepared.notKept).toMatch(/^ENOTDIR/);
  expect(prepared.parts).toContain("class-token-last");
  expect(await cosineTo(modelPath, prepared)).toBeGreaterThan(0.999999);
});

test("where there can be no folders, the form is in memory", async () => {
  const modelPath = await tinyModel();
  const prepared = await prepareServerModel({ modelPath, cacheDir: "/proc/clipstack/cache" });
  expect(prepared.notKept).toMatch(/^E[A-Z]+: /);
});

test("a form that lies beside the model file is used, and no cache is written", async () => {
  const repository = freshFolder();
  const cacheDir = freshFolder();
  const modelPath = join(repository, "model.onnx");
  await mkdir(repository);
  await copyFile(await tinyModel(), modelPath);
  const { modelPath: beside } = await prepareInto(join(repository, preparedFolder), { modelPath });
  const prepared = await prepareServerModel({ modelPath, cacheDir });
  expect(prepared.modelPath).toBe(beside);
  await expect(stat(cacheDir)).rejects.toThrow("ENOENT");
});

test("instead of a damaged form beside the model file, one of the cache is used", async () => {
  const repository = freshFolder();
  const cacheDir = freshFolder();
  const modelPath = join(repository, "model.onnx");
  await mkdir(repository);
  await copyFile(await tinyModel(), modelPath);
  await damage(await prepareInto(join(repository, preparedFolder), { modelPath }));
  let made = 0;
  const onMaking = () => {
    made += 1;
  };
  for (let start = 0; start < 2; start += 1) {
    const form = await prepareServerModel({ modelPath, cacheDir, replace: true, onMaking });
    expect(dirname(dirname(form.modelPath))).toBe(cacheDir);
  }
  expect(made).toBe(1);
});

test("a form of other weights is not used", async () => {
  const cacheDir = freshFolder();
  const modelPath = join(freshFolder(), "model.onnx");
  await generateModel({ profile: "tiny", seed: 1, file: modelPath });
  const first = await prepareServerModel({ modelPath, cacheDir });
  await generateModel({ profile: "tiny", seed: 2, file: modelPath });
  const second = await prepareServerModel({ modelPath, cacheDir });
  expect(second.modelPath).not.toBe(first.modelPath);
  expect(await cosineTo(modelPath, second)).toBeGreaterThan(0.999999);
});

test("a file that was put over another of the same size has a form of its own", async () => {
  const cacheDir = freshFolder();
  const modelPath = join(freshFolder(), "model.onnx");
  const other = join(freshFolder(), "model.onnx");
  await generateModel({ profile: "tiny", seed: 1, file: modelPath });
  await generateModel({ profile: "tiny", seed: 2, file: other });
  const first = await prepareServerModel({ modelPath, cacheDir });
  await copyFile(other, modelPath);
  const second = await prepareServerModel({ modelPath, cacheDir });
  expect(second.modelPath).not.toBe(first.modelPath);
  expect(await cosineTo(modelPath, second)).toBeGreaterThan(0.999999);
});

/** A graph, always the same, and the weights of a seed in a file of their own. */
async function writeSplit(file: string, seed: number): Promise<void> {
  const split = (of: number) => splitModel(visionTransformer(profiles.tiny, of), "weights.bin");
  await mkdir(dirname(file), { recursive: true });
  await writeFile(file, split(1).model);
  const weights = [...copiesOf(split(seed).weights())];
  await writeFile(join(dirname(file), "weights.bin"), Buffer.concat(weights));
}
function* copiesOf(pieces: Iterable<Uint8Array>): Generator<Uint8Array> {
  for (const piece of pieces) yield Uint8Array.from(piece);
}

test("other weights in a file of their own have forms of their own", async () => {
  const cacheDir = freshFolder();
  const modelPath = join(freshFolder(), "model.onnx");
  const derived = join(freshFolder(), "model.onnx");
  await writeSplit(modelPath, 1);
  const first = await prepareServerModel({ modelPath, cacheDir });
  await ensureU8Model(modelPath, derived);
  await writeSplit(modelPath, 2);
  const second = await prepareServerModel({ modelPath, cacheDir });
  expect(second.modelPath).not.toBe(first.modelPath);
  expect(await cosineTo(modelPath, second)).toBeGreaterThan(0.999999);
  await ensureU8Model(modelPath, derived);
  const expected = await embedWith(modelPath, images);
  expect(compareModels(expected, await embedWith(derived, images)).minCosine).toBeGreaterThan(
    0.999999,
  );
});

test("fails on a model of another kind", async () => {
  const modelPath = join(folder, "identity.onnx");
  await writeFile(modelPath, identityModel("FP32", ["batch", 4]));
  await expect(prepareServerModel({ modelPath, cacheDir: freshFolder() })).rejects.toThrow(
    `${modelPath}: must be FP32 image [3, 224, 224] -> embedding [512], got x [4] -> y [4]`,
  );
});

test("fails on int8 with another execution provider than the CPU", async () => {
  const options = { modelPath: await tinyModel(), cacheDir: freshFolder() };
  await expect(
    prepareServerModel({ ...options, precision: "int8", executionProvider: "cuda" }),
  ).rejects.toThrow("MODEL_PRECISION int8 is for EXECUTION_PROVIDER cpu, got cuda");
});

test("derives the model with pixels as input, once for the same weights", async () => {
  const standard = join(freshFolder(), "model.onnx");
  const derived = join(freshFolder(), "model.onnx");
  const { sha256 } = await generateModel({ profile: "tiny", seed: 1, file: standard });
  const info = await ensureU8Model(standard, derived);
  expect(info).toMatchObject({
    source: "derived",
    derivedFrom: sha256,
    weights: "random",
    seed: 1,
  });
  expect(info).toEqual(await modelInfo(derived));
  const { mtimeMs } = await stat(derived);
  await ensureU8Model(standard, derived);
  expect((await stat(derived)).mtimeMs).toBe(mtimeMs);

  const expected = await embedWith(standard, images);
  expect(compareModels(expected, await embedWith(derived, images)).minCosine).toBeGreaterThan(
    0.999999,
  );
});

test("derives the model again when the weights are others", async () => {
  const standard = join(freshFolder(), "model.onnx");
  const derived = join(freshFolder(), "model.onnx");
  await generateModel({ profile: "tiny", seed: 1, file: standard });
  const first = await ensureU8Model(standard, derived);
  await generateModel({ profile: "tiny", seed: 2, file: standard });
  const second = await ensureU8Model(standard, derived);
  expect(second.sha256).not.toBe(first.sha256);
  expect((await readSidecar(derived))?.seed).toBe(2);
});

test("leaves a derived model alone that somebody else put there", async () => {
  const derived = freshFolder();
  await writeFile(derived, "somebody's");
  expect((await ensureU8Model(await tinyModel(), derived)).source).toBe("unknown");
  expect(await readFile(derived, "utf8")).toBe("somebody's");
  await expect(stat(sidecarPath(derived))).rejects.toThrow("ENOENT");
});
