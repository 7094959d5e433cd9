import { mkdtemp, open, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { compareModels, embedWith, syntheticImages } from "../model/compare-models.ts";
import { prepareServerModel } from "../model/prepare.ts";
import { tinyModel } from "../model/test-model.ts";
import { openServerModel, type ServerModelOptions } from "./server-model.ts";

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "clipstack-server-model-"));
});
afterAll(async () => {
  await rm(folder, { recursive: true, force: true });
});

const [image] = syntheticImages(1);

/** Open the tiny model, embed one image, and tell how near that is to what the file itself gives. */
async function opened(options: Partial<ServerModelOptions> = {}) {
  const modelPath = await tinyModel();
  const notices: string[] = [];
  const { session, form, toInput } = await openServerModel({
    modelPath,
    cacheDir: join(folder, "cache"),
    intraOpThreads: 1,
    onNotice: (line) => notices.push(line),
    ...options,
  });
  const { outputs } = await session.run([toInput([Uint8Array.from(image!)]).tensor]);
  await session.close();
  const got = [Float32Array.from(outputs[0]?.data as Float32Array)];
  const { minCosine } = compareModels(await embedWith(modelPath, [image!]), got);
  return { notices, form, minCosine, dataType: session.inputs[0]?.dataType };
}

test("runs the form of the model that takes pixels", async () => {
  const { form, minCosine, dataType } = await opened();
  expect(dataType).toBe("UINT8");
  expect(form).toMatchObject({ precision: "fp32" });
  expect(form.parts).toContain("class-token-last");
  expect(minCosine).toBeGreaterThan(0.999999);
});

test.each([
  ["from a folder", undefined],
  ["from memory", "/dev/null/cache"],
])("runs several instances of the model, which agree, %s", async (_where, cacheDir) => {
  const { session, toInput } = await openServerModel({
    modelPath: await tinyModel(),
    cacheDir: cacheDir ?? join(folder, "cache"),
    intraOpThreads: 2,
    instances: 2,
  });
  const run = () => session.run([toInput([Uint8Array.from(image!)]).tensor]);
  const [one, two] = await Promise.all([run(), run()]);
  await session.close();
  expect(session.instances).toBe(2);
  expect(two.outputs[0]?.data).toEqual(one.outputs[0]?.data);
});

test("runs int8 where it is asked for, and says how near that is", async () => {
  const { form, minCosine } = await opened({ precision: "int8" });
  expect(form.precision).toBe("int8");
  expect(form.minCosine).toBeGreaterThan(0.999);
  expect(form.meanCosine).toBeGreaterThan(form.minCosine);
  expect(minCosine).toBeGreaterThan(0.999);
  expect(minCosine).toBeLessThan(0.9999999);
});

test.each([
  ["the weights", "weights.bin", 50_000],
  ["the graph", "model.onnx", 300],
])("makes the form anew when a byte of %s has changed", async (_what, name, position) => {
  const cacheDir = join(folder, name);
  const { modelPath } = await prepareServerModel({ modelPath: await tinyModel(), cacheDir });
  const handle = await open(join(dirname(modelPath), name), "r+");
  await handle.write(Buffer.from([255, 255, 255, 255]), 0, 4, position);
  await handle.close();

  const { notices, minCosine, form } = await opened({ cacheDir });
  expect(notices[0]).toBe(`${modelPath}: is not what was written; making it anew`);
  expect(form.parts).toContain("class-token-last");
  expect(minCosine).toBeGreaterThan(0.999999);
  expect((await opened({ cacheDir })).notices).toEqual([]);
});

test("runs the form from memory where it cannot be kept", async () => {
  const file = join(folder, "plain");
  await writeFile(file, "");
  const { notices, form, minCosine } = await opened({ cacheDir: join(file, "cache") });
  expect(notices.at(-1)).toMatch(
    /^the form of the model is not kept, set MODEL_CACHE_DIR: ENOTDIR/,
  );
  expect(form.parts).toContain("class-token-last");
  expect(minCosine).toBeGreaterThan(0.999999);
});

test("fails on a file that is no model in one line about the file itself", async () => {
  const modelPath = join(folder, "text.onnx");
  await writeFile(modelPath, "real weights\n");
  await expect(opened({ modelPath })).rejects.toThrow(
    /^\[model\] [^\n]*text\.onnx: cannot be loaded: [^\n]*$/,
  );
});
