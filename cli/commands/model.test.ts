import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { modelSidecar } from "../../model-tools/files/model-info.ts";
import { clipstack } from "../test-programs.ts";

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "clipstack-cli-model-"));
});
afterAll(async () => {
  await rm(folder, { recursive: true, force: true });
});

/** `clipstack model …`, in the temporary folder. */
const model = (...args: readonly string[]) => clipstack(["model", ...args], {}, folder);
const generate = (...args: readonly string[]) => model("generate", ...args);

test("writes a tiny model and prints its description as JSON", async () => {
  const { code, stdout } = await generate("--profile", "tiny", "--output", "a.onnx", "--json");
  expect(code).toBe(0);
  const { file, ...info } = JSON.parse(stdout) as { file: string };
  expect(file).toBe("a.onnx");
  expect(modelSidecar.parse(info)).toMatchObject({ weights: "random", seed: 1 });
  expect(JSON.parse(await readFile(join(folder, "a.onnx.json"), "utf8"))).toEqual(info);
});

test("a second run reports the existing file, and another seed requires --force", async () => {
  const tiny = ["--profile", "tiny", "--output", "b.onnx"];
  expect((await generate(...tiny)).stdout).toMatch(
    /^b\.onnx written: 0\.9 MB, sha256 [0-9a-f]{64}\n/,
  );
  expect((await generate(...tiny)).stdout).toMatch(/^b\.onnx exists: 0\.9 MB, sha256 /);
  expect(await generate(...tiny, "--seed", "2")).toEqual({
    code: 2,
    stdout: "",
    stderr: "clipstack: b.onnx exists; --force replaces it",
  });
  expect((await generate(...tiny, "--seed", "2", "--force")).code).toBe(0);
});

test.each([
  [
    "a tiny model without a file to write",
    ["--profile", "tiny"],
    "clipstack: --profile tiny requires --output: the model repository is for the full-size model",
  ],
  [
    "a profile that does not exist",
    ["--profile", "huge"],
    "error: option '--profile <name>' argument 'huge' is invalid. Allowed choices are full, tiny.",
  ],
  [
    "an unknown model",
    ["vgg-16"],
    expect.stringMatching(
      /^clipstack: model must be one of openclip-vit-b32, .*efficientnet-lite0, got 'vgg-16'$/,
    ),
  ],
  [
    "a seed that is no integer",
    ["--seed", "one"],
    "error: option '--seed <integer>' argument 'one' is invalid. It must be a whole number from -2147483648 to 4294967295.",
  ],
])("fails with exit code 2 on %s", async (_name, args, message) => {
  const { code, stderr } = await generate(...args);
  expect(stderr.split("\n")[0]).toEqual(message);
  expect(code).toBe(2);
});

test("fails with one line when the file cannot be written", async () => {
  await writeFile(join(folder, "plain"), "");
  const { code, stderr } = await generate("--profile", "tiny", "--output", "plain/c.onnx");
  expect(stderr.split("\n").filter((line) => line.startsWith("clipstack:"))).toEqual([
    expect.stringMatching(/^clipstack: --output plain\/c\.onnx cannot be written: E[A-Z]+$/),
  ]);
  expect(code).toBe(2);
});

test("writes the optimised file next to the model, with its agreement on photos", async () => {
  await generate("--profile", "tiny", "--output", "standard.onnx");
  const { stdout } = await model("optimise", "--weights", "standard.onnx", "--json");
  expect(JSON.parse(stdout)).toMatchObject({
    file: "standard.fp32-optimised.onnx",
    precision: "fp32-optimised",
    agreement: { images: 21, minCosine: expect.closeTo(1, 6) },
  });
});

test("model optimise fails with exit code 2 and one line if the file is not a model", async () => {
  await writeFile(join(folder, "text.onnx"), "real weights\n");
  const { code, stderr } = await model("optimise", "--weights", "text.onnx");
  expect(stderr.trim().split("\n").at(-1)).toMatch(/^clipstack: [^\n]*text\.onnx: [^\n]+$/);
  expect(code).toBe(2);
});
