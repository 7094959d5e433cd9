import { execFile } from "node:child_process";
import { copyFile, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";
import { dinov2Small } from "../contract/models/dinov2-small.ts";
import { defaultModel } from "../contract/models/index.ts";
import { hostPorts } from "../contract/ports.ts";
import { fp32Kinds } from "../contract/repository-files.ts";
import { fullTestRepository, type TestRepository } from "../emulator/test-repository.ts";
import { type RunningTritonEmulator, startTritonEmulator } from "../emulator/triton-emulator.ts";
import type { RunningEmbedServer } from "../inference-image/server/embed-server.ts";
import { startLoaded } from "../inference-image/server/test-embed-server.ts";
import { ensureTinyModel, modelFile } from "../model-tools/generate/generate.ts";

/** Samples of README.md and of the guide to another model, compiled against the built package and run against servers with the tiny model. */

const run = promisify(execFile);
const root = fileURLToPath(new URL("../", import.meta.url));
const samples = ["embed.mts", "triton.mts", "fallback.mts", "migration.mts"];

let folder: string;
let embedServer: RunningEmbedServer;
let repository: TestRepository;
let triton: RunningTritonEmulator;

beforeAll(async () => {
  await run(process.execPath, ["../tools/build-package.mjs"], {
    cwd: join(root, "client"),
  });
  const models = await mkdtemp(join(tmpdir(), "clipstack-readme-models-"));
  for (const modality of ["image", "text"] as const) {
    const file = modelFile(defaultModel, fp32Kinds[modality], models);
    await mkdir(dirname(file), { recursive: true });
    await symlink(await ensureTinyModel(defaultModel, modality), file);
  }
  const second = modelFile(dinov2Small, "fp32", models);
  await mkdir(dirname(second), { recursive: true });
  await symlink(await ensureTinyModel(dinov2Small), second);
  embedServer = await startLoaded({
    MODELS: '["openclip-vit-b32", "dinov2-small"]',
    MODEL_REPOSITORY: models,
  });
  await rm(models, { recursive: true });
  repository = await fullTestRepository();
  triton = await startTritonEmulator(repository.flags(), { log: () => {} });

  folder = await mkdtemp(join(tmpdir(), "clipstack-readme-"));
  await symlink(join(root, "node_modules"), join(folder, "node_modules"));
  await copyFile(join(root, "model-tools/samples/sunset.jpg"), join(folder, "photo.jpg"));
  await writeFile(join(folder, "notes.txt"), "no image");
  const pages = ["client/README.md", "docs/guides/changing-the-model.md"].map((page) =>
    readFile(join(root, page), "utf8"),
  );
  const text = (await Promise.all(pages)).join("\n");
  const blocks = [...text.matchAll(/^```ts\n(.*?)^```$/gms)].map(([, code]) => code!);
  expect(blocks).toHaveLength(samples.length);
  const ports: readonly [number, number][] = [
    [hostPorts.embed, embedServer.port],
    [hostPorts.tritonOnnx.http, triton.ports.http],
    [hostPorts.tritonOnnx.grpc, triton.ports.grpc],
  ];
  for (const [index, block] of blocks.entries()) {
    const code = ports.reduce(
      (all, [documented, actual]) =>
        all.replaceAll(`127.0.0.1:${documented}`, `127.0.0.1:${actual}`),
      block,
    );
    await writeFile(join(folder, samples[index]!), code);
  }
});
afterAll(async () => {
  await embedServer?.stop();
  await triton?.stop();
  await repository?.remove();
  await rm(folder, { recursive: true });
});

test("the samples compile with strict types", async () => {
  const tsc = join(root, "node_modules/typescript/bin/tsc");
  const options = ["--noEmit", "--strict", "--module", "nodenext", "--target", "es2022"];
  const result = await run(process.execPath, [tsc, ...options, "--types", "node", ...samples], {
    cwd: folder,
  }).catch(({ stdout }: { readonly stdout: string }) => ({ stdout }));
  expect(result.stdout).toBe("");
});

test.each([
  ["embed.mts", "512 512"],
  ["triton.mts", "FP32 [ 1, 512 ]"],
  ["fallback.mts", "image 1"],
  [
    "migration.mts",
    expect.stringMatching(/^openclip-vit-b32-[0-9a-f]{12} 512\ndinov2-small-[0-9a-f]{12} 384$/),
  ],
])("%s prints %s", async (file, output) => {
  const { stdout } = await run(process.execPath, ["--import", import.meta.resolve("tsx"), file], {
    cwd: folder,
  });
  expect(stdout.trim()).toEqual(output);
});
