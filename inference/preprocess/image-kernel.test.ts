import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { compileKernel, ImageKernel } from "./image-kernel.mjs";

test("image-kernel.wasm equals its compiled source, byte for byte", async () => {
  const folder = await mkdtemp(join(tmpdir(), "clipstack-kernel-"));
  try {
    const rebuilt = join(folder, "image-kernel.wasm");
    const compiler = fileURLToPath(
      new URL("../bin/asc.js", import.meta.resolve("assemblyscript/asc")),
    );
    const config = fileURLToPath(new URL("./kernel/asconfig.json", import.meta.url));
    await promisify(execFile)(process.execPath, [compiler, "--config", config, "-o", rebuilt]);
    const committed = await readFile(new URL("./image-kernel.wasm", import.meta.url));
    expect(committed.equals(await readFile(rebuilt)), "run `npm run kernel`").toBe(true);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});

test("npm run kernel writes the file that is loaded", async () => {
  const config = new URL("./kernel/asconfig.json", import.meta.url);
  const { outFile } = JSON.parse(await readFile(config, "utf8")).options;
  expect(new URL(outFile, config).href).toBe(new URL("./image-kernel.wasm", import.meta.url).href);
});

test("reserved regions start after the kernel's data and do not overlap", () => {
  const kernel = new ImageKernel(compileKernel());
  const sizes = { a: 1, b: 70_000, c: 0, d: 16 };
  const first = kernel.reserve(sizes);
  const second = kernel.reserve(sizes, first.end);
  const parts = [first, second].flatMap(({ at }) =>
    Object.entries(sizes).map(([name, size]) => ({ from: at[name]!, to: at[name]! + size })),
  );
  // 8 Huffman tables alone take more than 32 KiB
  expect(parts[0]!.from).toBeGreaterThan(32 * 1024);
  for (const [index, { from }] of parts.slice(1).entries()) {
    expect(from).toBeGreaterThanOrEqual(parts[index]!.to);
  }
  expect(kernel.bytes().length).toBeGreaterThanOrEqual(second.end);
});
