import { mkdtemp, rm, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { openclipVitB16 } from "../../contract/models/openclip-vit-b16.ts";
import { onnxChunks } from "../onnx/writer.ts";
import { openClipTower } from "./open-clip-weights.ts";
import { Safetensors } from "./safetensors.ts";
import { bytesOf, safetensorsFile, smallOpenClip, type TestTensor } from "./test-safetensors.ts";

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "clipstack-open-clip-"));
});
afterAll(async () => {
  await rm(folder, { recursive: true, force: true });
});

const { towers, tensors } = smallOpenClip(openclipVitB16);

async function written(
  name: string,
  content: ReadonlyMap<string, TestTensor> = tensors,
): Promise<string> {
  const path = join(folder, `${name}.safetensors`);
  await writeFile(path, safetensorsFile(content));
  return path;
}

test.each(["image", "text"] as const)(
  "writes open_clip's weights into the graph of the %s tower",
  async (modality) => {
    const file = new Safetensors(await written("whole"));
    const converted = openClipTower(openclipVitB16, modality, file);
    expect(bytesOf(onnxChunks(converted)).equals(bytesOf(onnxChunks(towers[modality])))).toBe(true);
  },
);

test.each([
  ["image", "visual.proj"],
  ["text", "text_projection"],
] as const)("fails on a tensor of the %s tower with another shape", async (modality, name) => {
  const narrow = new Map(tensors).set(name, { dims: [64, 8], values: new Float32Array(512) });
  const file = new Safetensors(await written("narrow", narrow));
  expect(() => bytesOf(onnxChunks(openClipTower(openclipVitB16, modality, file)))).toThrow(
    new RegExp(`narrow\\.safetensors: '${name}' must be F32 \\[64, 512\\], got F32 \\[64, 8\\]$`),
  );
});

test("fails on a file of another model, and on a truncated one", async () => {
  const other = new Safetensors(
    await written("other", new Map([["text", { dims: [1], values: new Float32Array(1) }]])),
  );
  expect(() => openClipTower(openclipVitB16, "image", other)).toThrow(
    "the weights have no tensor 'visual.conv1.weight', so they contain no OpenCLIP vision transformer",
  );
  expect(() => openClipTower(openclipVitB16, "text", other)).toThrow(
    "the weights have no tensor 'token_embedding.weight', so they contain no OpenCLIP text tower",
  );
  const path = await written("cut");
  await truncate(path, 50_000);
  expect(() => new Safetensors(path)).toThrow(
    /cut\.safetensors: must be a complete safetensors file$/,
  );
});
