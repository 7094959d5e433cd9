import { mkdtemp, open, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { canShareWeights, type WeightFile } from "../engine/onnx-session.ts";
import type { RunOptions } from "../engine/types.ts";
import { compareModels, embedWith, syntheticImages } from "../model/compare-models.ts";
import { readSharing } from "../model/model-sharing.ts";
import { prepareServerModel } from "../model/prepare.ts";
import { tinyModel } from "../model/test-model.ts";
import { openServerModel, type ServerModel, type ServerModelOptions } from "./server-model.ts";

vi.mock("../model/model-sharing.ts", { spy: true });
const { readSharing: actualSharing } = await vi.importActual<
  typeof import("../model/model-sharing.ts")
>("../model/model-sharing.ts");

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

/** Embed the image several times at once, and then alone. */
async function embeddings({ session, toInput }: ServerModel) {
  const run = (options?: RunOptions) =>
    session.run([toInput([Uint8Array.from(image!)]).tensor], options);
  const results = [...(await Promise.all([run(), run()])), await run({ exclusive: true })];
  return results.map(({ outputs }) => outputs[0]?.data);
}

test.runIf(canShareWeights()).each([
  ["by itself", 0, 2],
  ["into as many as it is told", 3, 3],
])("is divided among instances that agree, %s", async (_how, instances, expected) => {
  const model = await openServerModel({
    modelPath: await tinyModel(),
    cacheDir: join(folder, "cache"),
    intraOpThreads: 2,
    instances,
  });
  expect(model.session.instances).toBe(1);
  const [first] = await embeddings(model);
  await vi.waitFor(() => expect(model.session.instances).toBe(expected), 10_000);
  expect(model.session.runsExclusively).toBe(true);
  const [one, two, alone] = await embeddings(model);
  await model.session.close();
  expect(one).toHaveLength(512);
  expect(first).toEqual(one);
  expect(two).toEqual(one);
  expect(alone).toEqual(one);
});

test.each([
  ["one instance", { intraOpThreads: 2, instances: 1 }],
  ["one thread", { intraOpThreads: 1 }],
  ["weights in memory", { intraOpThreads: 2, cacheDir: "/dev/null/cache" }],
])("is not divided with %s", async (_what, options) => {
  const model = await openServerModel({
    modelPath: await tinyModel(),
    cacheDir: join(folder, "cache"),
    ...options,
  });
  expect(model.session.instances ?? 1).toBe(1);
  const [one, two] = await embeddings(model);
  await model.session.close();
  expect(model.session.instances ?? 1).toBe(1);
  expect(two).toEqual(one);
});

test("runs several instances of a form in memory, which agree", async () => {
  const model = await openServerModel({
    modelPath: await tinyModel(),
    cacheDir: "/dev/null/cache",
    intraOpThreads: 2,
    instances: 2,
  });
  expect(model.session.instances).toBe(2);
  const [one, two] = await embeddings(model);
  await model.session.close();
  expect(two).toEqual(one);
});

test.runIf(canShareWeights())(
  "gives each instance weights of its own where they cannot be shared, and says why",
  async () => {
    const { modelPath } = await prepareServerModel({
      modelPath: await tinyModel(),
      cacheDir: join(folder, "cache"),
    });
    vi.mocked(readSharing).mockImplementationOnce((path) => {
      const sharing = actualSharing(path)!;
      return { ...sharing, weights: { ...(sharing.weights as WeightFile), file: path } };
    });
    const { notices, form, minCosine } = await opened({ intraOpThreads: 2 });
    expect(notices).toEqual([
      `${modelPath}: weights cannot be shared: ${modelPath}: cannot be loaded: ${modelPath}: is cut short`,
    ]);
    expect(form.parts).toContain("class-token-last");
    expect(minCosine).toBeGreaterThan(0.999999);
  },
);

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
