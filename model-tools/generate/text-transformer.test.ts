import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { InferenceSession, Tensor } from "onnxruntime-node";
import { afterAll, beforeAll, expect, test } from "vitest";
import { modelSpec } from "../../contract/model-spec.ts";
import { mobileclip2S0 } from "../../contract/models/mobileclip2-s0.ts";
import { openclipVitB32 } from "../../contract/models/openclip-vit-b32.ts";
import { openclipVitL14 } from "../../contract/models/openclip-vit-l14.ts";
import { siglip2Base224 } from "../../contract/models/siglip2-base-224.ts";
import { onnxBytes } from "../onnx/writer.ts";
import { generateModel } from "./generate.ts";
import { randomTextTower } from "./text-architectures.ts";

let folder: string;
const sessions: InferenceSession[] = [];
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "clipstack-text-tower-"));
});
afterAll(async () => {
  for (const session of sessions) await session.release();
  await rm(folder, { recursive: true, force: true });
});

async function open(spec = openclipVitB32) {
  const file = join(folder, `${spec.name}-${sessions.length}.onnx`);
  await generateModel({ spec, modality: "text", profile: "tiny", seed: 1, file });
  const session = await InferenceSession.create(file, { intraOpNumThreads: 1 });
  sessions.push(session);
  const { contextLength, idType } = spec.towers.text!.input;
  return async (ids: readonly (readonly number[])[]): Promise<readonly Float32Array[]> => {
    const padded = ids.flatMap((row) => [...row, ...Array(contextLength - row.length).fill(0)]);
    const shape = [ids.length, contextLength];
    const text =
      idType === "int64"
        ? new Tensor("int64", BigInt64Array.from(padded, BigInt), shape)
        : new Tensor("int32", Int32Array.from(padded), shape);
    const { embedding } = await session.run({ text });
    const { width } = spec.embedding;
    expect(embedding!.dims).toEqual([ids.length, width]);
    const data = embedding!.data as Float32Array;
    return ids.map((_, row) => data.slice(row * width, (row + 1) * width));
  };
}

function cosine(a: Float32Array, b: Float32Array): number {
  const dot = (x: Float32Array, y: Float32Array) => x.reduce((sum, v, i) => sum + v * y[i]!, 0);
  return dot(a, b) / Math.sqrt(dot(a, a) * dot(b, b));
}

/** `<start> a cat <end>` */
const cat = [49_406, 320, 2368, 49_407];

test("ids after the end of the text do not change CLIP's embedding", async () => {
  const [a, b] = await (await open())([cat, [...cat, 1929, 1929]]);
  expect(a).toEqual(b);
});

test("the first of several end ids is the end of the text", async () => {
  const [a, b] = await (await open())([cat, [...cat, 1929, 49_407]]);
  expect(a).toEqual(b);
});

test("MobileCLIP2's tokens attend to those after them", async () => {
  const [a, b] = await (await open(mobileclip2S0))([cat, [...cat, 1929, 1929]]);
  expect(cosine(a!, b!)).toBeLessThan(0.999_9);
});

test("SigLIP's embedding is of the last position, which attends to all", async () => {
  const embed = await open(siglip2Base224);
  const [a, b, c] = await embed([
    [5, 6, 1],
    [5, 6, 1],
    [7, 6, 1],
  ]);
  expect(a).toEqual(b);
  expect(cosine(a!, c!)).toBeLessThan(0.999_9);
});

test("takes int32 ids for a spec with int32", async () => {
  const towers = structuredClone(openclipVitB32.towers);
  towers.text!.input.idType = "int32";
  const [a] = await (await open())([cat]);
  const [b] = await (await open(modelSpec.parse({ ...openclipVitB32, towers })))([cat]);
  expect(b).toEqual(a);
});

test("scales the embedding to unit length when the spec says that the model does", async () => {
  const embedding = { ...openclipVitB32.embedding, normalisedBy: "model" } as const;
  const [a] = await (await open(modelSpec.parse({ ...openclipVitB32, embedding })))([cat]);
  expect(Math.hypot(...a!)).toBeCloseTo(1, 5);
});

test.each([openclipVitB32, openclipVitL14, mobileclip2S0, siglip2Base224])(
  "the full-size tower of $name has the parameters that its spec states",
  (spec) => {
    const bytes = onnxBytes(randomTextTower(spec, "full", 1).model);
    const parameters = spec.towers.text!.millionParameters;
    expect(bytes / 4e6 / parameters).toBeCloseTo(1, 2);
  },
);

test("fails for a model without a text tower", async () => {
  const { image } = openclipVitB32.towers;
  const spec = modelSpec.parse({ ...openclipVitB32, towers: { image }, sources: {} });
  const file = join(folder, "none.onnx");
  await expect(
    generateModel({ spec, modality: "text", profile: "tiny", seed: 1, file }),
  ).rejects.toThrow("model 'openclip-vit-b32' has no text tower");
});
