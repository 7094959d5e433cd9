import {
  chmod,
  copyFile,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rm,
  writeFile,
} from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Command } from "commander";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { modelSidecar, sha256Of } from "../../model-tools/model-info.ts";
import { tinyModel } from "../../model-tools/test-model.ts";
import { registerModelExport } from "./model-export.ts";

let folder: string;
let printed: string[];
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "clipstack-model-export-"));
  printed = [];
  vi.spyOn(console, "log").mockImplementation((line: string) => void printed.push(line));
  vi.spyOn(console, "error").mockImplementation(() => {});
});
afterEach(async () => {
  vi.restoreAllMocks();
  await rm(folder, { recursive: true, force: true });
});

const result = {
  schema: 1,
  profile: "tiny",
  weights: "random",
  seed: 3,
  exporter: "torchscript",
  opset: 17,
  images: 21,
  limit: 0.001,
  checks: [
    { batch: 1, maxDifference: 0.0000019, minCosine: 0.99999999 },
    { batch: 32, maxDifference: 0.00002, minCosine: 0.99999999 },
  ],
  versions: { python: "3.12", torch: "2.9.1", open_clip: "3", onnx: "1", onnxruntime: "1" },
};

/** Program used as a Python with PyTorch: writes the output file and prints a result. */
async function python({
  model,
  prints = result,
  before = "",
}: {
  readonly model?: string;
  readonly prints?: unknown;
  /** Shell commands to run before the result is printed. */
  readonly before?: string;
}): Promise<string> {
  const file = join(folder, "python");
  await writeFile(join(folder, "result.json"), JSON.stringify(prints));
  await writeFile(
    file,
    `#!/bin/sh
echo "$@" > ${folder}/arguments
for last; do :; done
cp "${model ?? (await tinyModel())}" "$last"
${before}
cat ${folder}/result.json
`,
  );
  await chmod(file, 0o755);
  return file;
}

async function exportModel(...args: readonly string[]): Promise<void> {
  const program = new Command().exitOverride();
  registerModelExport(program);
  const tiny = ["--random-weights", "--profile", "tiny", "--output", join(folder, "a.onnx")];
  await program.parseAsync(["export", ...tiny, ...args], { from: "user" });
}

const left = async () => (await readdir(folder)).filter((name) => name.startsWith("a."));

test("writes the file and its manifest, and prints its agreement with PyTorch", async () => {
  await exportModel("--python", await python({}), "--seed", "3", "--images", "photos");
  expect(await sha256Of(join(folder, "a.onnx"))).toBe(await sha256Of(await tinyModel()));
  const sidecar = JSON.parse(await readFile(join(folder, "a.onnx.json"), "utf8")) as unknown;
  expect(modelSidecar.parse(sidecar)).toMatchObject({
    source: "exported",
    weights: "random",
    seed: 3,
    architecture: "tiny",
    opset: 17,
  });
  expect(printed.at(-1)).toBe(
    "Differs from PyTorch 2.9.1 by at most 0.00019 % at batch 1 and 0.002 % at batch 32, on 21 images; the limit is 0.1 %.",
  );
  expect(await readFile(join(folder, "arguments"), "utf8")).toMatch(
    /export\.py --random-weights --seed 3 --profile tiny --images \S+photos --output \S+\.onnx\.part\n$/,
  );
});

test("prints the agreement as JSON", async () => {
  await exportModel("--python", await python({}), "--json");
  expect(JSON.parse(printed.join("\n"))).toMatchObject({
    source: "exported",
    agreement: { images: 21, limit: 0.001, checks: result.checks },
    versions: { torch: "2.9.1" },
  });
});

test("fails before the export if a file from another source would be replaced", async () => {
  await writeFile(join(folder, "a.onnx"), "mine");
  await expect(exportModel("--python", join(folder, "none"))).rejects.toThrow(
    /a\.onnx exists \(not of this project, weights unknown\); --force replaces it$/,
  );
});

const check = (batch: number, maxDifference: number) => ({ batch, maxDifference, minCosine: 1 });

describe("keeps the existing file and fails with one line", () => {
  const cases: readonly [string, Parameters<typeof python>[0], RegExp][] = [
    [
      "if the new file differs from PyTorch by more than 0.1 %",
      { prints: { ...result, checks: [check(1, 0), check(32, 0.0011)] } },
      /^the file differs from PyTorch by 0\.11 % at batch 32, more than 0\.1 %: the file was discarded$/,
    ],
    [
      "if only one batch size was checked",
      { prints: { ...result, checks: [check(1, 0)] } },
      /^the export was not checked at batch 32$/,
    ],
    [
      "if the difference is not a number",
      { prints: { ...result, checks: [check(1, 0), { ...check(32, 0), maxDifference: null }] } },
      /^the export printed an invalid result: checks\.1\.maxDifference /,
    ],
    ["if there is no result", { before: "exit 0" }, /^the export printed no result$/],
    [
      "if the export reports an error",
      { before: 'echo "loading PyTorch" >&2; echo "export: no weights available" >&2; exit 2' },
      /^the export failed: no weights available$/,
    ],
    [
      "if the export is killed",
      { before: "kill -9 $$" },
      /^the export failed: terminated by SIGKILL$/,
    ],
  ];
  test.each(cases)("%s", async (_name, how, message) => {
    await writeFile(join(folder, "a.onnx"), "before");
    await expect(exportModel("--force", "--python", await python(how))).rejects.toThrow(message);
    expect(await left()).toEqual(["a.onnx"]);
    expect(await readFile(join(folder, "a.onnx"), "utf8")).toBe("before");
  });

  test("if the new file is not an image tower", async () => {
    await writeFile(join(folder, "text"), "weights");
    await copyFile(await tinyModel(), join(folder, "a.onnx"));
    const how = { model: join(folder, "text") };
    await expect(exportModel("--force", "--python", await python(how))).rejects.toThrow(
      /^\S+: is not a complete ONNX file$/,
    );
    expect(await left()).toEqual(["a.onnx"]);
  });
});

test("starts no Python if the output cannot be written", async () => {
  await mkdir(join(folder, "a.onnx"));
  await expect(exportModel("--force", "--python", await python({}))).rejects.toThrow(
    /^--output must be a file, got the folder '/,
  );
  expect(await readdir(folder)).not.toContain("arguments");
});

test.each([
  [["--python", "no-such-python"], /^--python must be a program, got 'no-such-python' \(ENOENT\)$/],
  [["--weights", "x.pt"], /^--weights and --random-weights exclude each other$/],
])("fails on %j with one line", async (args, message) => {
  await expect(exportModel(...args)).rejects.toThrow(message);
});
