import { mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { defaultModel } from "../contract/models/index.ts";
import type { ResolvedTritonFlags } from "../contract/triton-flags.ts";
import { tritonModelName } from "../contract/triton-models.ts";
import { tinyModel } from "../model-tools/generate/test-model.ts";
import { writeModelRepository } from "../model-tools/repository/repository.ts";
import { localFlags } from "./triton-emulator.ts";

const fp32Name = tritonModelName(defaultModel, "fp32");

/** Returns a `config.pbtxt` for the tiny model in tests. `extra` is appended. */
export function tinyConfig(
  options: { readonly name?: string; readonly extra?: string } = {},
): string {
  const { name = fp32Name, extra = dynamicBatching } = options;
  return `
name: "${name}"
platform: "onnxruntime_onnx"
max_batch_size: 32
input [ { name: "image" data_type: TYPE_FP32 dims: [ 3, 224, 224 ] } ]
output [ { name: "embedding" data_type: TYPE_FP32 dims: [ 512 ] } ]
${extra}
`;
}

const dynamicBatching = `dynamic_batching {
  preferred_batch_size: [ 8, 16, 32 ]
  max_queue_delay_microseconds: 1000
}`;

export interface TestRepository {
  readonly path: string;
  /** Flags of a server with this repository, on 127.0.0.1 and free ports. */
  flags(overrides?: Partial<ResolvedTritonFlags>): ResolvedTritonFlags;
  remove(): Promise<void>;
}

/**
 * Writes a test repository to a temporary folder, with the tiny model as version 1 of each model.
 *
 * @param files - Text files by path, for example `openclip_vit_b32/config.pbtxt`.
 */
export async function testRepository(
  files: Readonly<Record<string, string>> = {
    [`${fp32Name}/config.pbtxt`]: tinyConfig(),
  },
): Promise<TestRepository> {
  const path = await mkdtemp(join(tmpdir(), "clipstack-repository-"));
  const modelFile = await tinyModel();
  for (const [file, text] of Object.entries(files)) {
    const [model = ""] = file.split("/");
    await mkdir(join(path, model, "1"), { recursive: true });
    await mkdir(join(path, file, ".."), { recursive: true });
    await writeFile(join(path, file), text);
    await symlink(modelFile, join(path, model, "1", "model.onnx")).catch(() => {});
  }
  return repositoryAt(path);
}

/** Writes a test repository with the configurations of `model_repository/` and the tiny model. */
export async function fullTestRepository(): Promise<TestRepository> {
  const path = await mkdtemp(join(tmpdir(), "clipstack-repository-"));
  const model = await tinyModel();
  // written once, next to the tiny model
  const u8File = model.replace(/\.onnx$/, "-u8.onnx");
  await writeModelRepository([{ spec: defaultModel, files: { image: model }, u8File }], path);
  return repositoryAt(path);
}

/** An existing model repository. */
export function repositoryAt(path: string): TestRepository {
  return {
    path,
    flags: (overrides = {}) => ({
      ...localFlags(path, ["--exit-timeout-secs=10"]),
      ...overrides,
    }),
    remove: () => rm(path, { recursive: true, force: true }),
  };
}
