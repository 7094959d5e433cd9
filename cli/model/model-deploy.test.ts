import { readFileSync } from "node:fs";
import { access, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Command } from "commander";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test, vi } from "vitest";
import { openGrpcTransport } from "../../client/triton/grpc-transport.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { openclipVitB32 as spec } from "../../contract/models/openclip-vit-b32.ts";
import { elementCount } from "../../contract/tensor.ts";
import { modelControlFlags } from "../../contract/test-model-control.ts";
import { modelControlKeyVariable, parseTritonArgs } from "../../contract/triton-flags.ts";
import { tritonModel } from "../../contract/triton-models.ts";
import { unloadingFirst } from "../../emulator/test-unloading-proxy.ts";
import { type RunningTritonEmulator, startTritonEmulator } from "../../emulator/triton-emulator.ts";
import { identityModel } from "../../inference/session/test-identity-model.ts";
import { startGateway } from "../../inference-image/gateway/test-triton.ts";
import { generateModel } from "../../model-tools/generate/generate.ts";
import { tinyModel } from "../../model-tools/generate/test-model.ts";
import { writeModelRepository } from "../../model-tools/repository/repository.ts";
import { registerModelDeploy } from "./model-deploy.ts";

const { name: model, inputs } = tritonModel(spec, "fp32");
const key = "key-of-the-test";
const photo = readFileSync(new URL("../../model-tools/samples/dunes.jpg", import.meta.url));

let folder: string;
let newWeights: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "clipstack-cli-deploy-"));
  newWeights = join(folder, "new.onnx");
  await generateModel({ spec: defaultModel, profile: "tiny", seed: 7, file: newWeights });
});
afterAll(async () => {
  await rm(folder, { recursive: true });
});

let repository: string;
let server: RunningTritonEmulator;
beforeEach(async () => {
  repository = await mkdtemp(join(folder, "repository-"));
  await writeModelRepository([{ spec, files: { image: await tinyModel() } }], repository);
  server = await startTritonEmulator(
    {
      ...parseTritonArgs([
        `--model-repository=${repository}`,
        ...["--model-control-mode=explicit", `--load-model=${model}`],
        ...["http", "grpc"].map((service) => `--${service}-address=127.0.0.1`),
        "--allow-metrics=false",
      ]),
      ...modelControlFlags(key),
      "http-port": 0,
      "grpc-port": 0,
    },
    { log: () => {} },
  );
  vi.stubEnv(modelControlKeyVariable, key);
});
afterEach(async () => {
  vi.restoreAllMocks();
  vi.unstubAllEnvs();
  await server.stop();
});

/** Runs `clipstack model deploy openclip-vit-b32 …` on the server and returns its output. */
async function deploy(...args: readonly string[]): Promise<string> {
  const log = vi.spyOn(console, "log").mockImplementation(() => undefined);
  const program = new Command();
  registerModelDeploy(program);
  const url = `http://127.0.0.1:${server.ports.http}`;
  const target = ["--folder", repository, "--url", url];
  await program.parseAsync(["deploy", spec.name, ...target, ...args], { from: "user" });
  return log.mock.calls.flat().join("\n");
}

const versions = async () =>
  (await readdir(join(repository, model))).filter((name) => /^\.?\d/.test(name));

test("serves the new version without a failed request", async () => {
  const transport = openGrpcTransport({ target: `127.0.0.1:${server.ports.grpc}` });
  const [{ name, dims }] = inputs;
  const data = new Float32Array(elementCount(dims)).fill(0.5);
  const image = { name, dataType: "FP32", shape: [1, ...dims], data } as const;
  const failures: unknown[] = [];
  let sending = true;
  const client = (async () => {
    while (sending) {
      await transport
        .infer(model, [image], { timeoutMs: 20_000 })
        .catch((error) => failures.push(error));
    }
  })();
  const result = JSON.parse(await deploy("--file", newWeights, "--json"));
  sending = false;
  await client;
  await transport.close();
  const target = `http://127.0.0.1:${server.ports.http}`;
  expect(result).toMatchObject({
    ...{ model, version: "2", served: ["2"] },
    probes: [{ target, failed: 0, failures: {}, slowestMs: expect.any(Number) }],
  });
  // for at least the times before and after the deployment
  expect(result.probes[0].probes).toBeGreaterThanOrEqual(20);
  expect(failures).toEqual([]);
  expect(await versions()).toEqual(["1", "2"]);
  await access(join(repository, model, "2", "model.onnx.json"));
});

test("counts the failed probes of a server that unloads first; a gateway loses none", async () => {
  const proxy = await unloadingFirst(`http://127.0.0.1:${server.ports.http}`);
  const gateway = await startGateway(server, [spec]);
  const address = `http://127.0.0.1:${gateway.port}`;
  const headers = { "content-type": "image/jpeg" };
  const embed = () => fetch(`${address}/embed`, { method: "POST", headers, body: photo });
  await expect.poll(async () => (await embed()).status, { timeout: 10_000 }).toBe(200);
  const output = await deploy("--file", newWeights, "--url", proxy.url, "--gateway", address);
  await gateway.stop();
  proxy.close();
  const [served, viaGateway, direct] = output.split("\n");
  expect(served).toMatch(/^openclip_vit_b32: version 2 is served after [\d.]+ s$/);
  expect(viaGateway).toMatch(/^http:\S+: \d+ probes, 0 failed, slowest \d+ ms$/);
  expect(direct).toMatch(/^http:\S+: \d+ probes, [1-9]\d* failed \(404: \d+\), slowest \d+ ms$/);
}, 60_000);

test("a file that does not fit the model is rejected, and the server is unchanged", async () => {
  const file = join(folder, "other.onnx");
  await writeFile(file, identityModel("FP32", ["N", 4]));
  await expect(deploy("--file", file)).rejects.toThrow(
    `${file}: must have the input 'image' FP32 [3, 224, 224], got 'x' FP32 [4]`,
  );
  expect(await versions()).toEqual(["1"]);
});

test("a version that the server rejects is removed again", async () => {
  vi.stubEnv(modelControlKeyVariable, "another-key");
  await expect(deploy("--file", newWeights)).rejects.toThrow(
    new RegExp(`^${model}: version 2 is not served: http://127.0.0.1:\\d+ requires another key$`),
  );
  expect(await versions()).toEqual(["1"]);
});

test("a Triton server that does not run is reported although the timeout is longer", async () => {
  await server.stop();
  await expect(deploy("--file", newWeights, "--timeout-seconds", "600")).rejects.toThrow(
    new RegExp(`^${model}: version 2 is not served: http://127.0.0.1:\\d+ does not respond$`),
  );
  expect(await versions()).toEqual(["1"]);
}, 30_000);

test("a file in single precision is rejected for TensorRT 11", async () => {
  await expect(deploy("--file", newWeights, "--model-kind", "trt")).rejects.toThrow(
    `${newWeights}: every matrix multiplication must be in half precision for TensorRT, got FP32 in conv1; 'clipstack model convert --precision fp16 --keep-graph' writes model.trt-fp16.onnx`,
  );
  expect((await readdir(join(repository, `${model}_trt`))).filter((it) => /^\d/.test(it))).toEqual([
    "1",
  ]);
});

test("a kind without versions in an environment is rejected", async () => {
  const program = new Command();
  registerModelDeploy(program);
  const words = ["deploy", "--file", newWeights, "--environment", "search", "--model-kind", "trt"];
  await expect(program.parseAsync(words, { from: "user" })).rejects.toThrow(
    "--model-kind must be fp32 or text with --environment, got trt",
  );
});

test.each([
  [
    ["--environment", "search"],
    "--environment must not be given with --folder, --url or --gateway",
  ],
  [["--timeout-seconds", "5"], undefined],
])("requires one destination: %s", async (args, message) => {
  const program = new Command();
  registerModelDeploy(program);
  const words = ["deploy", "--file", newWeights, "--folder", repository, ...args];
  await expect(program.parseAsync(words, { from: "user" })).rejects.toThrow(
    message ?? "--environment must be given, or both --folder and --url",
  );
});

test("a model that the repository lacks is rejected", async () => {
  await expect(deploy("--file", newWeights, "--model-kind", "text")).rejects.toThrow(
    `${repository}: must contain openclip_vit_b32_text; 'clipstack model repository' writes it`,
  );
});
