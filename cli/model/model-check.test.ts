import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Command } from "commander";
import { afterAll, afterEach, beforeAll, expect, test, vi } from "vitest";
import { defaultModel } from "../../contract/models/index.ts";
import { openclipVitB32 } from "../../contract/models/openclip-vit-b32.ts";
import { fullTestRepository, repositoryAt } from "../../emulator/test-repository.ts";
import { startTritonEmulator } from "../../emulator/triton-emulator.ts";
import { writeTestRepository } from "../../inference-image/models/test-text-model.ts";
import { ensureOptimised } from "../../model-tools/convert/optimise.ts";
import { modelFile } from "../../model-tools/generate/generate.ts";
import { tinyModel } from "../../model-tools/generate/test-model.ts";
import { exportedTower } from "../../model-tools/graph/test-exported-tower.ts";
import { onnxChunks } from "../../model-tools/onnx/writer.ts";
import { registerModelCheck } from "./model-check.ts";

let folder: string;
let tiny: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "clipstack-cli-check-"));
  tiny = await tinyModel();
});
afterEach(() => {
  vi.restoreAllMocks();
  vi.unstubAllEnvs();
});
afterAll(async () => {
  await rm(folder, { recursive: true, force: true });
});

/** Runs `clipstack model check …` and returns its output and exit code. */
async function check(...args: readonly string[]) {
  const lines: unknown[] = [];
  vi.spyOn(console, "log").mockImplementation((line) => lines.push(line));
  vi.spyOn(console, "error").mockImplementation(() => {});
  const program = new Command();
  registerModelCheck(program);
  for (const command of program.commands) {
    command.exitOverride().configureOutput({ writeErr: () => {} });
  }
  try {
    await program.parseAsync(["check", ...args], { from: "user" });
    return { text: lines.join("\n"), code: process.exitCode ?? 0 };
  } finally {
    process.exitCode = undefined;
  }
}

test("prints a description of the model and a line per check", async () => {
  const against = join(folder, "fast.onnx");
  await ensureOptimised(defaultModel, tiny, against);
  const { text, code } = await check("--weights", tiny, "--against", against);
  expect(
    text
      .replace(/[0-9a-f]{64}/, "…")
      .split("\n")
      .slice(1),
  ).toEqual([
    "  0.9 MB, sha256 …",
    "  generated, weights random",
    "  IR version 8, operators ai.onnx 17, written by clipstack",
    "  input  image FP32 [batch, 3, 224, 224]",
    "  output embedding FP32 [batch, 512]",
    "  image tower of 2 blocks, 48 wide, patches of 32 pixels",
    "",
    "ok    fits openclip-vit-b32, in the model repository: openclip_vit_b32, openclip_vit_b32_trt",
    "ok    32 images give 512 finite values each",
    expect.stringMatching(
      /^ok {4}no two embeddings are equal; the nearest have a cosine of 0\.\d{4}$/,
    ),
    expect.stringMatching(
      /^ok {4}batch 1 and batch 32: largest difference .*, cosine at least 1\.0/,
    ),
    expect.stringMatching(/^ok {4}rows in reversed order: largest difference /),
    expect.stringMatching(/^ok {4}\S*fast\.onnx: largest difference /),
    "",
    "6 checks passed",
  ]);
  expect(code).toBe(0);
});

test("exits with code 1 if the embeddings of the compared file differ", async () => {
  const other = join(folder, "other.onnx");
  await writeFile(
    other,
    [...onnxChunks(exportedTower())].map((piece) => Uint8Array.from(piece)),
  );
  const { text, code } = await check("--weights", tiny, "--against", other, "--json");
  const report = JSON.parse(text);
  expect(code).toBe(1);
  expect(report).toMatchObject({ ok: false, structure: { fits: expect.any(Array) } });
  expect(report.findings.at(-1)).toMatchObject({
    check: "parity",
    ok: false,
    message: expect.stringContaining("other.onnx: largest difference "),
  });
});

test("compares with the embeddings of a server, with float and pixel inputs", async () => {
  const repository = await fullTestRepository();
  const server = await startTritonEmulator(repository.flags(), { log: () => {} });
  try {
    const url = `http://127.0.0.1:${server.ports.http}`;
    for (const name of ["openclip_vit_b32", "openclip_vit_b32_u8"]) {
      const { text, code } = await check("--weights", tiny, "--url", url, "--triton-model", name);
      expect(text).toContain(`ok    ${name} of ${url}: largest difference `);
      expect(code).toBe(0);
    }
  } finally {
    await server.stop();
    await repository.remove();
  }
});

test("checks a text tower, also against Triton", async () => {
  const repository = join(folder, "repository");
  const spec = { ...openclipVitB32, towers: { text: openclipVitB32.towers.text! } };
  await writeTestRepository(repository, [spec]);
  const server = await startTritonEmulator(repositoryAt(repository).flags(), { log: () => {} });
  try {
    const file = modelFile(spec, "text", repository);
    const url = `http://127.0.0.1:${server.ports.http}`;
    const { text, code } = await check("--weights", file, "--url", url);
    expect(text).toContain(
      "ok    fits openclip-vit-b32, in the model repository: openclip_vit_b32_text, ",
    );
    expect(text).toContain("ok    32 texts give 512 finite values each");
    expect(text).toContain(`ok    openclip_vit_b32_text of ${url}: largest difference `);
    expect(code).toBe(0);
  } finally {
    await server.stop();
  }
});

test.each([
  [
    "a model with image files as input",
    ["--url", "http://127.0.0.1:9", "--triton-model", "openclip_vit_b32_jpeg"],
    /^--triton-model must be one of openclip_vit_b32, openclip_vit_b32_trt, openclip_vit_b32_u8, got 'openclip_vit_b32_jpeg'$/,
  ],
  [
    "a model without a text tower",
    ["dinov2-small", "--modality", "text"],
    /^model dinov2-small must have a text tower$/,
  ],
  [
    "a limit that is not a percentage",
    ["--limit", "much"],
    /It must be a percentage from 0 to 100, like 10%\.$/,
  ],
  ["a missing file", ["--weights", "none.onnx"], /none\.onnx' does not exist$/],
])("fails on %s", async (_name, args, message) => {
  await expect(check(...args)).rejects.toThrow(message);
});

test("fails on an unreachable server", async () => {
  const unreachable = await check("--weights", tiny, "--url", "http://127.0.0.1:9").catch(
    (error: unknown) => error,
  );
  expect((unreachable as Error).message).toMatch(
    /^[^\n]*openclip_vit_b32[^\n]*127\.0\.0\.1:9[^\n]*$/,
  );
});
