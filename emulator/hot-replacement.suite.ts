import { cp, mkdir, readdir, rename, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { afterEach, beforeAll, expect, test } from "vitest";
import { openGrpcTransport } from "../client/triton/grpc-transport.ts";
import { openHttpTransport } from "../client/triton/http-transport.ts";
import type { Transport } from "../client/triton/transport.ts";
import type { VersionPolicy } from "../contract/model-config.ts";
import { gpuLayout, modelConfig } from "../contract/model-config.ts";
import { imageBytes, imageTowerOf } from "../contract/model-shapes.ts";
import { defaultModel } from "../contract/models/index.ts";
import { openclipVitB32 as spec } from "../contract/models/openclip-vit-b32.ts";
import { printModelConfig } from "../contract/print-model-config.ts";
import { elementCount, type Fp32Tensor, type Tensor } from "../contract/tensor.ts";
import { nextModelName, tritonModel } from "../contract/triton-models.ts";
import { testGateway } from "../inference-image/gateway/test-gateway.ts";
import { generateModel } from "../model-tools/generate/generate.ts";
import { tinyModel } from "../model-tools/generate/test-model.ts";
import { addVersion } from "../model-tools/repository/deploy-version.ts";
import { testRepository } from "./test-repository.ts";
import { unloadedMs, unloadingFirst } from "./test-unloading-proxy.ts";

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
    const { url, grpcTarget } = server;
    return { folder: join(repository.path, model), url, grpcTarget, transports };
  }

  /** Adds a version with the other weights, or an invalid file, beside version 1. It appears at once. */
  async function addFolder(folder: string, version: string, weights = otherWeights) {
    const staging = `${folder}/.${version}`;
    await mkdir(staging);
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

    await addFolder(folder, "2");
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

  test("the latest two versions are served side by side, the newest by default, also if the next one is invalid", async () => {
    const { folder, url, transports } = await open({ latest: { num_versions: 2 } });
    const first = await embed(transports[0]);
    await addFolder(folder, "2");
    expect(await load(url)).toEqual({ status: 200, text: "" });
    await expectVersions(url, ["1", "2"]);
    const second = await embed(transports[0]);
    expect(isClose(first, second)).toBe(false);
    const { versions } = await transports[0].modelMetadata(model, call);
    expect(versions).toEqual(["1", "2"]);

    await addFolder(folder, "3");
    expect(await load(url)).toEqual({ status: 200, text: "" });
    await expectVersions(url, ["2", "3"]);

    const invalid = join(folder, "invalid.onnx");
    await writeFile(invalid, "not a model");
    await addFolder(folder, "4", invalid);
    expect((await load(url)).status).toBeGreaterThanOrEqual(400);
    expect(isClose(await embed(transports[1]), second)).toBe(true);
    await expectVersions(url, ["2", "3"]);
  });

  test("a specific version stays until the configuration names another", async () => {
    const { folder, url, transports } = await open({ specific: { versions: [1] } });
    const first = await embed(transports[0]);
    const options = { folder, file: otherWeights, servers: [url], timeoutSeconds: 60 };
    await expect(addVersion(options)).rejects.toThrow(
      `${model}: version 2 is not served: version_policy must allow it, got only 1`,
    );
    await addFolder(folder, "2");
    expect(await load(url)).toEqual({ status: 200, text: "" });
    await expectVersions(url, ["1"]);
    expect(isClose(await embed(transports[1]), first)).toBe(true);

    await writeFile(join(folder, "config.pbtxt"), configText({ specific: { versions: [2] } }));
    expect(await load(url)).toEqual({ status: 200, text: "" });
    await expectVersions(url, ["2"]);
    expect(isClose(await embed(transports[1]), first)).toBe(false);
  });

  /** Sends requests to a gateway of the server until `stop()`. */
  async function gatewayUnderLoad(target: string) {
    const gateway = await testGateway([target]);
    cleanUps.push(() => gateway.close());
    const pixels = Uint8Array.from(
      { length: imageBytes(imageTowerOf(spec), "uint8")! },
      (_, at) => at,
    );
    const load = { embeddings: [] as Float32Array[], failures: [] as unknown[], slowestMs: 0 };
    const send = async () => {
      const startedAt = performance.now();
      await gateway.embedder.embed([pixels]).then(
        ([embedding]) => load.embeddings.push(embedding!),
        (error) => load.failures.push(error),
      );
      load.slowestMs = Math.max(load.slowestMs, performance.now() - startedAt);
    };
    let sending = true;
    const clients = Array.from({ length: 4 }, async () => {
      while (sending) await send();
    });
    const stop = async () => {
      sending = false;
      await Promise.all(clients);
    };
    return { load, send, stop };
  }

  test.each(["beside the served one", "after it has unloaded the served one"])(
    "a gateway loses no request of a server that loads a version %s",
    async (order) => {
      const { folder, url, grpcTarget } = await open({ latest: { num_versions: 1 } });
      const proxy = await unloadingFirst(url);
      cleanUps.push(() => proxy.close());
      const { load, send, stop } = await gatewayUnderLoad(grpcTarget);
      await send();
      const [first] = load.embeddings;
      const deployed = await addVersion({
        folder,
        file: otherWeights,
        servers: [order.startsWith("beside") ? url : proxy.url],
        timeoutSeconds: 60,
      });
      await stop();
      await send();
      const second = load.embeddings.at(-1)!;

      expect(deployed).toMatchObject({ version: "2", served: ["2"] });
      expect(load.failures).toEqual([]);
      // no request waited for the model to be loaded again
      expect(load.slowestMs).toBeLessThan(unloadedMs - 1_000);
      expect(isClose(first!, second)).toBe(false);
      const isKnown = (it: Float32Array) => isClose(it, first!) || isClose(it, second);
      expect(load.embeddings.every(isKnown)).toBe(true);
      // under the name of the model again
      await expectVersions(url, ["2"]);
      expect((await fetch(`${url}/v2/models/${nextModelName(model)}/ready`)).ok).toBe(false);
      expect(await readdir(dirname(folder))).toEqual([model]);
    },
    60_000,
  );

  test("a gateway keeps the served version if the new one is invalid", async () => {
    const { folder, url, grpcTarget } = await open({ latest: { num_versions: 1 } });
    const proxy = await unloadingFirst(url);
    cleanUps.push(() => proxy.close());
    const { load, stop } = await gatewayUnderLoad(grpcTarget);
    const file = join(dirname(folder), "invalid.onnx");
    await writeFile(file, "not a model");
    const servers = [proxy.url];
    await expect(addVersion({ folder, file, servers, timeoutSeconds: 60 })).rejects.toThrow(
      `${model}: version 2 is not served: ${proxy.url} rejected it: load failed`,
    );
    await stop();
    expect(load.failures).toEqual([]);
    expect(load.slowestMs).toBeLessThan(unloadedMs - 1_000);
    expect(load.embeddings.every((it) => isClose(it, load.embeddings[0]!))).toBe(true);
    await expectVersions(url, ["1"]);
    expect((await readdir(folder)).filter((name) => /\d/.test(name))).toEqual(["1"]);
  }, 60_000);
}
