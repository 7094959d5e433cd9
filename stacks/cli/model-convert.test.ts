import { copyFile, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { Command } from "commander";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { modelSidecar, sha256Of } from "../../inference-image/src/model/model-info.ts";
import { tinyModel } from "../../inference-image/src/model/test-model.ts";
import { registerModelConvert } from "./model-convert.ts";

const samples = fileURLToPath(new URL("../../bench/samples/", import.meta.url));

let folder: string;
let printed: string[];
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "clipstack-model-convert-"));
  for (const name of ["flower.jpg", "wood-thumbnail.jpg"]) {
    await copyFile(join(samples, name), join(folder, name));
  }
  const model = await tinyModel();
  await copyFile(model, join(folder, "tiny.onnx"));
  await copyFile(`${model}.json`, join(folder, "tiny.onnx.json"));
  printed = [];
  vi.spyOn(console, "log").mockImplementation((line: string) => void printed.push(line));
  vi.spyOn(console, "error").mockImplementation(() => {});
});
afterEach(async () => {
  vi.restoreAllMocks();
  await rm(folder, { recursive: true, force: true });
});

async function convert(...args: readonly string[]): Promise<void> {
  const program = new Command().exitOverride().configureOutput({ writeErr: () => {} });
  registerModelConvert(program);
  program.commands[0]?.exitOverride().configureOutput({ writeErr: () => {} });
  const given = ["--model", join(folder, "tiny.onnx"), "--images", folder, "--rounds", "1"];
  await program.parseAsync(["convert", ...given, ...args], { from: "user" });
}

const left = async () => (await readdir(folder)).filter((name) => /onnx/.test(name)).sort();

test.each([
  ["fp16", 0.9999],
  ["int8", 0.99],
] as const)("writes an %s variant beside the model, and what it is", async (precision, least) => {
  await convert("--precision", precision, "--json");
  const json = JSON.parse(printed.join("\n")) as {
    readonly bytes: number;
    readonly original: { readonly bytes: number };
    readonly measured: readonly Record<"batch" | "minCosine" | "meanCosine" | "speed", number>[];
  };
  expect(json.bytes).toBeLessThan(json.original.bytes);
  expect(json.measured.map(({ batch }) => batch)).toEqual([1, 32]);
  for (const { minCosine, meanCosine, speed } of json.measured) {
    expect(minCosine).toBeGreaterThan(least);
    expect(meanCosine).toBeGreaterThanOrEqual(minCosine);
    expect(speed).toBeGreaterThan(0);
  }
  const sidecar = JSON.parse(
    await readFile(join(folder, `tiny.${precision}.onnx.json`), "utf8"),
  ) as unknown;
  expect(modelSidecar.parse(sidecar)).toMatchObject({
    source: "derived",
    weights: "random",
    derivedFrom: await sha256Of(join(folder, "tiny.onnx")),
    parts: [precision],
  });
});

test("says that weights are random, and on how many images it compared", async () => {
  await convert("--precision", "int8");
  expect(printed.at(-2)).toBe(
    "Random weights: the speed is that of trained ones, the cosine is not.",
  );
  expect(printed.at(-1)).toBe("Compared on 2 images; less than 0.98 would have been refused.");
});

test("a variant that is too far away is refused, and the one that is there kept", async () => {
  await convert("--precision", "int8");
  const before = await sha256Of(join(folder, "tiny.int8.onnx"));
  await expect(convert("--precision", "int8", "--min-cosine", "1")).rejects.toThrow(
    /^the variant was refused: the least cosine to the original is 0\.99\d+ at batch 1, less than 1$/,
  );
  expect(await sha256Of(join(folder, "tiny.int8.onnx"))).toBe(before);
  expect(await left()).toEqual([
    "tiny.int8.onnx",
    "tiny.int8.onnx.json",
    "tiny.onnx",
    "tiny.onnx.json",
  ]);
});

describe("fails with one line", () => {
  test("where the output is the model", async () => {
    const output = ["--output", join(folder, "tiny.onnx")];
    await expect(convert("--precision", "fp16", ...output)).rejects.toThrow(
      /^--output must not be the model itself, got '/,
    );
  });

  test("where the output is a folder", async () => {
    await mkdir(join(folder, "models"));
    await expect(
      convert("--precision", "fp16", "--force", "--output", join(folder, "models")),
    ).rejects.toThrow(/^--output must be a file, got the folder '/);
    expect((await readdir(folder)).filter((name) => name.startsWith("models"))).toEqual(["models"]);
  });

  test("where the output is somebody else's", async () => {
    await writeFile(join(folder, "tiny.fp16.onnx"), "mine");
    await expect(convert("--precision", "fp16")).rejects.toThrow(/; --force replaces it$/);
  });

  test("where the model is a variant already", async () => {
    await convert("--precision", "fp16");
    const model = ["--model", join(folder, "tiny.fp16.onnx")];
    await expect(convert("--precision", "int8", ...model)).rejects.toThrow(
      /: has no product with a matrix of weights$/,
    );
  });

  test.each([
    [["--precision", "int4"], "Allowed choices are fp16, int8."],
    [["--precision", "int8", "--min-cosine", "2"], "It must be 0 to 1."],
    [["--precision", "int8", "--rounds", "0"], "It must be 1 to 100."],
  ])("on %j", async (args, message) => {
    await expect(convert(...args)).rejects.toThrow(message);
  });
});
