import { existsSync } from "node:fs";
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { openGrpcTransport } from "../client/triton/grpc-transport.ts";
import { defaultModel } from "../contract/models/index.ts";
import { tinyModel } from "../model-tools/generate/test-model.ts";
import { createTritonEmulator, type TritonEmulatorSettings } from "./index.ts";

async function started(settings: TritonEmulatorSettings) {
  const triton = await createTritonEmulator(settings);
  onTestFinished(() => triton.close());
  return triton;
}

const modelsOf = async (url: string): Promise<readonly string[]> => {
  const response = await fetch(`${url}/v2/repository/index`, { method: "POST" });
  const models = (await response.json()) as { readonly name: string; readonly state: string }[];
  return models.filter(({ state }) => state === "READY").map(({ name }) => name);
};

test("serves an ONNX file, whose configuration it completes, over HTTP and gRPC", async () => {
  const file = await tinyModel();
  const { httpUrl, grpcAddress, metricsUrl } = await started({ models: [{ name: "mine", file }] });
  expect(await modelsOf(httpUrl)).toEqual(["mine"]);
  expect(await (await fetch(metricsUrl)).text()).toContain('nv_inference_count{model="mine"');
  const transport = openGrpcTransport({ target: grpcAddress });
  onTestFinished(() => transport.close());
  const image = { name: "image", dataType: "FP32", shape: [1, 3, 224, 224] } as const;
  const data = new Float32Array(3 * 224 * 224);
  const [output] = await transport.infer("mine", [{ ...image, data }], { timeoutMs: 60_000 });
  expect(output?.shape).toEqual([1, 512]);
});

test("serves an embedding model with random weights in all its configurations, the same each time", async () => {
  const { httpUrl } = await started({ models: ["dinov2-small", defaultModel] });
  expect(await modelsOf(httpUrl)).toEqual(
    expect.arrayContaining(["dinov2_small", "dinov2_small_u8", "openclip_vit_b32_text"]),
  );
});

test("serves a model repository with Triton's options", async () => {
  const folder = await mkdtemp(join(tmpdir(), "emulator-test-"));
  onTestFinished(() => rm(folder, { recursive: true }));
  const args = ["--model-control-mode=explicit"];
  const { httpUrl } = await started({ models: folder, args });
  expect(await modelsOf(httpUrl)).toEqual([]);
});

test("removes what it wrote", async () => {
  const written = async () =>
    (await readdir(tmpdir())).filter((name) => name.startsWith("triton-emulator-"));
  const before = await written();
  const file = await tinyModel();
  const triton = await createTritonEmulator({ models: [{ name: "mine", file }] });
  await triton.close();
  expect((await written()).filter((name) => !before.includes(name))).toEqual([]);
  expect(existsSync(file)).toBe(true);
});

test.each<[TritonEmulatorSettings, string]>([
  [{ models: ["vit"] }, "models must be files, specs or one of "],
  [
    { models: [{ name: "mine", file: "/none.onnx" }] },
    "model 'mine': file must be an ONNX file, got '/none.onnx'",
  ],
  [{ models: [], args: ["--none=1"] }, "--none"],
])("rejects %j", async (settings, message) => {
  await expect(createTritonEmulator(settings)).rejects.toThrow(message);
});

test("the sample of the README is sample.test.ts", async () => {
  const sample = await readFile(new URL("sample.test.ts", import.meta.url), "utf8");
  const readme = await readFile(new URL("README.md", import.meta.url), "utf8");
  expect(readme).toContain(sample.replace("./index.ts", "@clipstack/emulator"));
});
