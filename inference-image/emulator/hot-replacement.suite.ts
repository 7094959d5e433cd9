import { cp, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterEach, beforeAll, expect, test } from "vitest";
import { openGrpcTransport } from "../../client/triton/grpc-transport.ts";
import { openHttpTransport } from "../../client/triton/http-transport.ts";
import type { Transport } from "../../client/triton/transport.ts";
import type { VersionPolicy } from "../../contract/model-config.ts";
import { gpuLayout, modelConfig } from "../../contract/model-config.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { openclipVitB32 as spec } from "../../contract/models/openclip-vit-b32.ts";
import { printModelConfig } from "../../contract/print-model-config.ts";
import { elementCount, type Fp32Tensor, type Tensor } from "../../contract/tensor.ts";
import { tritonModel } from "../../contract/triton-models.ts";
import { generateModel } from "../../model-tools/generate.ts";
import { tinyModel } from "../../model-tools/test-model.ts";
import { testRepository } from "./test-repository.ts";

export interface ReplacingServer {
  /** `http://host:port`. */
  readonly url: string;
  /** `host:port`. */
  readonly grpcTarget: string;
  stop(): Promise<void>;
}

const { name: model, inputs } = tritonModel(spec, "fp32");
const [input] = inputs;
const call = { timeoutMs: 20_000 };

/** Same image in every request, so that the embedding identifies the version. */
const image: Tensor = {
  name: input.name,
  dataType: "FP32",
  shape: [1, ...input.dims],
  data: Float32Array.from({ length: elementCount(input.dims) }, (_, index) => Math.sin(index)),
};

function configText(versionPolicy: VersionPolicy): string {
  return printModelConfig({
    ...modelConfig(spec, "fp32", gpuLayout(0)),
    version_policy: versionPolicy,
  });
}

/**
 * Tests of a server that replaces a model under load, started with `--model-control-mode=explicit` and a repository that has version
 * 1 of {@link model}.
 */
export function testHotReplacement(start: (repository: string) => Promise<ReplacingServer>): void {
  let otherWeights: string;
  const cleanUps: (() => unknown)[] = [];
  beforeAll(async () => {
    otherWeights = (await tinyModel()).replace(/\.onnx$/, "-seed-7.onnx");
    await generateModel({ spec: defaultModel, profile: "tiny", seed: 7, file: otherWeights });
  });
  afterEach(async () => {
    for (const cleanUp of cleanUps.splice(0).reverse()) await cleanUp();
  });

  async function open(versionPolicy: VersionPolicy) {
    const files = { [`${model}/config.pbtxt`]: configText(versionPolicy) };
    const repository = await testRepository(files);
    cleanUps.push(() => repository.remove());
    const server = await start(repository.path);
    cleanUps.push(() => server.stop());
    const transports = [
      openHttpTransport({ url: server.url }),
      openGrpcTransport({ target: server.grpcTarget }),
    ] as const;
    cleanUps.push(() => Promise.all(transports.map((transport) => transport.close())));
    return { folder: join(repository.path, model), url: server.url, transports };
  }

  /** Adds a version with the other weights, or an invalid file, beside version 1. It appears at once. */
  async function addVersion(folder: string, version: string, weights = otherWeights) {
    const staging = `${folder}/.${version}`;
    await cp(join(folder, "1"), staging, { recursive: true });
    await rm(join(staging, "model.onnx"));
    await cp(weights, join(staging, "model.onnx"));
    await rename(staging, join(folder, version));
  }

  async function load(url: string) {
    const path = `${url}/v2/repository/models/${model}/load`;
    const response = await fetch(path, { method: "POST", body: "{}" });
    return { status: response.status, text: await response.text() };
  }

  async function embed(transport: Transport): Promise<Float32Array> {
    const [output] = await transport.infer(model, [image], call);
    return (output as Fp32Tensor).data;
  }

  /** Versions that respond when a request names them. */
  async function readyVersions(url: string): Promise<readonly string[]> {
    const versions = ["1", "2", "3"];
    const paths = versions.map((version) => `${url}/v2/models/${model}/versions/${version}/ready`);
    const responses = await Promise.all(paths.map((path) => fetch(path)));
    return versions.filter((_, index) => responses[index]?.ok);
  }

  /** Waits for the versions, because Triton unloads in the background. */
  const expectVersions = (url: string, versions: readonly string[]) =>
    expect.poll(() => readyVersions(url), { timeout: 10_000 }).toEqual(versions);

  const isClose = (one: Float32Array, other: Float32Array) =>
    one.every((value, index) => Math.abs(value - other[index]!) < 1e-4);

  test("a new version takes over under load over HTTP and gRPC without a failed request", async () => {
    const { folder, url, transports } = await open({ latest: { num_versions: 1 } });
    const first = await embed(transports[0]);
    let loading = true;
    const failures: unknown[] = [];
    const embeddings: Float32Array[] = [];
    let notReady = 0;
    const clients = Array.from({ length: 8 }, async (_, index) => {
      while (loading) {
        await embed(transports[index % 2]!).then(
          (embedding) => embeddings.push(embedding),
          (error) => failures.push(error),
        );
      }
    });
    const watcher = (async () => {
      while (loading) if (!(await transports[0].ready(model, call))) notReady += 1;
    })();

    await addVersion(folder, "2");
    expect(await load(url)).toEqual({ status: 200, text: "" });
    await expectVersions(url, ["2"]);
    const second = await embed(transports[1]);
    loading = false;
    await Promise.all([...clients, watcher]);

    expect(failures).toEqual([]);
    expect(notReady).toBe(0);
    expect(isClose(first, second)).toBe(false);
    const answeredBy = embeddings.map((embedding) =>
      isClose(embedding, first) ? "1" : isClose(embedding, second) ? "2" : "neither",
    );
    expect(answeredBy.filter((version) => version === "1").length).toBeGreaterThan(0);
    expect(answeredBy).not.toContain("neither");
  });

  test("the latest two versions are served side by side, the newest by default", async () => {
    const { folder, url, transports } = await open({ latest: { num_versions: 2 } });
    const first = await embed(transports[0]);
    await addVersion(folder, "2");
    expect(await load(url)).toEqual({ status: 200, text: "" });
    await expectVersions(url, ["1", "2"]);
    const second = await embed(transports[0]);
    expect(isClose(first, second)).toBe(false);
    const { versions } = await transports[0].modelMetadata(model, call);
    expect(versions).toEqual(["1", "2"]);

    await addVersion(folder, "3");
    expect(await load(url)).toEqual({ status: 200, text: "" });
    await expectVersions(url, ["2", "3"]);
  });

  test("a specific version stays until the configuration names another", async () => {
    const { folder, url, transports } = await open({ specific: { versions: [1] } });
    const first = await embed(transports[0]);
    await addVersion(folder, "2");
    expect(await load(url)).toEqual({ status: 200, text: "" });
    await expectVersions(url, ["1"]);
    expect(isClose(await embed(transports[1]), first)).toBe(true);

    const { backend } = await transports[0].modelConfig(model, call);
    const config = configText({ specific: { versions: [2] } });
    await writeFile(
      join(folder, "config.pbtxt"),
      // the real Triton of this test runs ONNX files in its Python backend
      backend === "python"
        ? config.replace('platform: "onnxruntime_onnx"', 'backend: "python"')
        : config,
    );
    expect(await load(url)).toEqual({ status: 200, text: "" });
    await expectVersions(url, ["2"]);
    expect(isClose(await embed(transports[1]), first)).toBe(false);
  });

  test("an invalid new version fails its load, and the old one keeps serving", async () => {
    const { folder, url, transports } = await open({ latest: { num_versions: 1 } });
    const first = await embed(transports[0]);
    const invalid = join(folder, "invalid.onnx");
    await writeFile(invalid, "not a model");
    await addVersion(folder, "2", invalid);
    expect((await load(url)).status).toBeGreaterThanOrEqual(400);
    expect(isClose(await embed(transports[1]), first)).toBe(true);
    await expectVersions(url, ["1"]);
  });
}
