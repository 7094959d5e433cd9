import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { defaultModel } from "../../contract/models/index.ts";
import { sidecarPath } from "../../model-tools/files/model-info.ts";
import { generateModel } from "../../model-tools/generate/generate.ts";
import { randomModels, randomWeightNotes } from "./random-weights.ts";

const project = await mkdtemp(join(tmpdir(), "clipstack-random-"));
afterAll(() => rm(project, { recursive: true }));

const path = "model_repository/openclip_vit_b32/1/model.onnx";
const file = join(project, path);
await mkdir(dirname(file), { recursive: true });
await generateModel({ spec: defaultModel, profile: "tiny", seed: 1, file });
const here = [{ path, on: "here", what: "the weights" }] as const;

test("names the model of a generated file, and no model of other or missing files", async () => {
  expect(await randomModels(here, project)).toEqual([defaultModel.name]);
  const copy = join(project, "my_vit/1/model.onnx");
  await mkdir(dirname(copy), { recursive: true });
  await writeFile(copy, "trained");
  // the manifest of the generated file that was there before
  await writeFile(
    sidecarPath(copy),
    JSON.stringify({
      schema: 1,
      sha256: "0".repeat(64),
      bytes: 999,
      source: "generated",
      weights: "random",
    }),
  );
  const others = [
    { path: copy, on: "here", what: "the weights" },
    { path: "missing/1/model.onnx", on: "here", what: "the weights" },
  ] as const;
  expect(await randomModels(others, project)).toEqual([]);
});

test("reads the manifests of the host", async () => {
  const manifest = JSON.stringify({
    ...{ schema: 1, sha256: "0".repeat(64), bytes: 7, source: "generated", weights: "random" },
  });
  const onHost = [{ path: "/srv/dinov2_small/1/model.onnx", on: "host", what: "x" }] as const;
  const read = async (name: string) =>
    name === "/srv/dinov2_small/1/model.onnx.json" ? manifest : "";
  expect(await randomModels(onHost, project, read)).toEqual(["dinov2_small"]);
  expect(await randomModels(onHost, project, async () => "no such file")).toEqual([]);
});

test("notes the environment and its models", async () => {
  const needs = { schema: 1 as const, environment: "mine", ports: [], disk: [], files: [...here] };
  expect(await randomWeightNotes([needs], project)).toEqual([
    "mine: the weights of openclip-vit-b32 are random; embeddings are meaningless",
  ]);
});
