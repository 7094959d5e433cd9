import { mkdir, mkdtemp, readFile, rm, utimes, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { readModelConfig } from "../../client/triton/model-config.ts";
import { fingerprintOf } from "../../contract/fingerprint.ts";
import { type ModelInfo, sha256Of, sidecarPath } from "../files/model-info.ts";
import { weightsIdentity, writeFingerprint } from "./fingerprint.ts";

let folder: string;
let file: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "clipstack-fingerprint-"));
  file = join(folder, "1", "model.onnx");
  await mkdir(join(folder, "1"));
  await mkdir(join(folder, "configs"));
  await writeFile(file, "weights");
});
afterEach(() => rm(folder, { recursive: true }));

const source = "a".repeat(64);

async function manifest(info: Partial<ModelInfo>): Promise<void> {
  const own = {
    schema: 1,
    sha256: await sha256Of(file),
    bytes: 7,
    source: "derived",
    weights: "w",
  };
  await writeFile(sidecarPath(file), JSON.stringify({ ...own, ...info }));
}

test("the identity of a file is its checksum, or that of the file it was derived from", async () => {
  const own = { sha256: await sha256Of(file), precision: "fp32" };
  expect(await weightsIdentity(file)).toEqual(own);
  // a pulled file names its download, which is not a model
  await manifest({ derivedFrom: source });
  expect(await weightsIdentity(file)).toEqual(own);
  for (const precision of ["fp16", "int8"] as const) {
    await manifest({ derivedFrom: source, precision });
    expect(await weightsIdentity(file)).toEqual({ sha256: source, precision });
  }
  await manifest({ derivedFrom: source, precision: "fp32-optimised" });
  expect(await weightsIdentity(file)).toEqual({ sha256: source, precision: "fp32" });
});

test("the manifest of another file does not count", async () => {
  await manifest({ derivedFrom: source, precision: "int8", sha256: "b".repeat(64) });
  await writeFile(file, "weightz");
  await utimes(file, Date.now() / 1000 + 10, Date.now() / 1000 + 10);
  expect(await weightsIdentity(file)).toEqual({ sha256: await sha256Of(file), precision: "fp32" });
});

test("the fingerprint replaces the previous one in all configurations, and is not written without preprocessing", async () => {
  const text =
    '# heading\n\nname: "m"\nparameters {\n  key: "other"\n  value {\n    string_value: "1"\n  }\n}\n';
  const paths = [join(folder, "config.pbtxt"), join(folder, "configs", "cpu.pbtxt")];
  for (const path of paths) await writeFile(path, text);
  await writeFingerprint(folder, "1");
  for (const path of paths) expect(await readFile(path, "utf8")).toBe(text);
  const preprocessing = "c".repeat(64);
  for (const version of ["1", "2"]) {
    await mkdir(join(folder, version), { recursive: true });
    await writeFile(join(folder, version, "model.onnx"), `weights of ${version}`);
    await writeFingerprint(folder, version, version === "1" ? preprocessing : undefined);
    const identity = await weightsIdentity(join(folder, version, "model.onnx"));
    for (const path of paths) {
      const changed = await readFile(path, "utf8");
      expect(changed.startsWith(text)).toBe(true);
      expect(readModelConfig(changed, path).parameters).toEqual({
        other: { string_value: "1" },
        fingerprint: { string_value: fingerprintOf(preprocessing, identity) },
        fingerprint_version: { string_value: version },
        preprocessing_sha256: { string_value: preprocessing },
      });
    }
  }
});
