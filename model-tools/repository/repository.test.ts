import { existsSync } from "node:fs";
import { lstat, mkdtemp, readdir, readFile, readlink, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, expect, test } from "vitest";
import { readModelConfig } from "../../client/triton/model-config.ts";
import { checkModelConfig } from "../../contract/model-config-check.ts";
import { catalogueSpecs, modelCatalogue } from "../../contract/models/index.ts";
import { openclipVitB32 } from "../../contract/models/openclip-vit-b32.ts";
import { preprocessParameters } from "../../contract/preprocess-parameters.ts";
import { kindsOf, tritonModelName } from "../../contract/triton-models.ts";
import { ensureTinyModel } from "../generate/generate.ts";
import { writeModelRepository } from "./repository.ts";

const folders: string[] = [];
afterEach(async () => {
  for (const folder of folders.splice(0)) await rm(folder, { recursive: true });
});

async function newFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "clipstack-repository-"));
  folders.push(folder);
  return folder;
}

test("contains every model of the catalogue, with a configuration that Triton accepts", async () => {
  const folder = await newFolder();
  const specs = catalogueSpecs;
  const names = await writeModelRepository(
    specs.map((spec) => ({ spec })),
    folder,
  );
  expect(names).toEqual(
    specs.flatMap((spec) => kindsOf(spec).map((modelKind) => tritonModelName(spec, modelKind))),
  );
  expect(await readdir(folder)).toEqual([...names].sort());
  for (const name of names) {
    const file = join(folder, name, "config.pbtxt");
    const config = readModelConfig(await readFile(file, "utf8"), file);
    expect(config.name).toBe(name);
    expect(checkModelConfig(config, { specs: catalogueSpecs })).toEqual([]);
    expect(existsSync(join(folder, name, "1"))).toBe(true);
  }
});

test("the preprocessing of a model has its own parameters and the script", async () => {
  const folder = await newFolder();
  for (const spec of modelCatalogue.values()) {
    await writeModelRepository([{ spec }], folder);
    const path = join(folder, tritonModelName(spec, "preprocess"));
    const config = readModelConfig(await readFile(join(path, "config.pbtxt"), "utf8"), "");
    const values = Object.entries(config.parameters ?? {}).map(([key, value]) => [
      key,
      value.string_value,
    ]);
    const expected = preprocessParameters(spec.towers.image!.input, 40_000_000);
    expect(Object.fromEntries(values)).toEqual(expected);
    expect(await readFile(join(path, "1", "model.py"), "utf8")).toContain("TritonPythonModel");
  }
});

test("kinds link to the file of their tower; an existing file stays", async () => {
  const folder = await newFolder();
  await writeModelRepository([{ spec: openclipVitB32 }], folder);
  const file = (name: string) => join(folder, name, "1", "model.onnx");
  expect(existsSync(file("openclip_vit_b32"))).toBe(false);
  expect(await readlink(file("openclip_vit_b32_text_trt"))).toBe(
    "../../openclip_vit_b32_text/1/model.onnx",
  );
  for (const name of ["openclip_vit_b32", "openclip_vit_b32_trt"]) {
    await rm(file(name), { force: true });
    await writeFile(file(name), "own");
  }
  await writeModelRepository([{ spec: openclipVitB32 }], folder);
  for (const name of ["openclip_vit_b32", "openclip_vit_b32_trt"]) {
    expect((await lstat(file(name))).isFile()).toBe(true);
    expect(await readFile(file(name), "utf8")).toBe("own");
  }
});

test("with the file of one tower, contains the models of that tower only", async () => {
  const folder = await newFolder();
  const text = await ensureTinyModel(openclipVitB32, "text");
  const names = await writeModelRepository([{ spec: openclipVitB32, files: { text } }], folder);
  expect(names).toEqual(["openclip_vit_b32_text", "openclip_vit_b32_text_trt"]);
  expect(await readlink(join(folder, names[0]!, "1", "model.onnx"))).toBe(text);
});
