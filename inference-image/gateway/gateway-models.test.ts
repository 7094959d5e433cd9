import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  type InferenceClientOptions,
  openInferenceClient,
} from "../../client/embedding/inference-client.ts";
import { embedResponse } from "../../contract/embed-api.ts";
import { dinov2Small } from "../../contract/models/dinov2-small.ts";
import { openclipVitB32 } from "../../contract/models/openclip-vit-b32.ts";
import { modelSettings } from "../../contract/server/model-list.ts";
import { picture } from "../../inference/preprocess/test-images.ts";
import { openLocalTextEmbedder } from "../../inference/session/local-embedder.ts";
import type { RunningEmbedServer } from "../server/embed-server.ts";
import { startLoading } from "../server/test-embed-server.ts";
import { startGateway, startTestTriton, type TestTriton } from "./test-triton.ts";

/** Embed server, gateway and Triton emulator with the same two models, and the client of each. */

const specs = [openclipVitB32, dinov2Small];
const texts = ["a photo of a dog", " ", "Sunset at the beach, 1999", "寺の写真"];

let textModelPath: string;
let modelPath: string;
let triton: TestTriton;
let server: RunningEmbedServer;
let gateway: RunningEmbedServer;
let expected: readonly Float32Array[];

beforeAll(async () => {
  triton = await startTestTriton(specs);
  const { folder } = triton;
  modelPath = join(folder, "openclip_vit_b32/1/model.onnx");
  textModelPath = join(folder, "openclip_vit_b32_text/1/model.onnx");
  server = await startLoading({
    ...modelSettings(specs),
    MODEL_REPOSITORY: folder,
    INTRA_OP_THREADS: "1",
  });
  gateway = await startGateway(triton, specs);
  await server.loaded;
  const local = await openLocalTextEmbedder({ spec: openclipVitB32, modelPath: textModelPath });
  expected = await local.embed(texts);
  await local.close();
  while ((await fetch(`${urlOf(gateway)}/readyz`)).status !== 200) await sleep(20);
});
afterAll(async () => {
  await Promise.all([server?.stop(), gateway?.stop()]);
  await triton?.stop();
});

const urlOf = ({ port }: RunningEmbedServer) => `http://127.0.0.1:${port}`;

const clients: readonly (readonly [string, () => InferenceClientOptions])[] = [
  ["the embed server", () => ({ backend: "embed", mode: "remote", serviceUrl: urlOf(server) })],
  ["the gateway", () => ({ backend: "embed", mode: "remote", serviceUrl: urlOf(gateway) })],
  [
    "Triton over HTTP",
    () => ({
      ...{ backend: "triton", mode: "remote" },
      serviceUrl: `http://127.0.0.1:${triton.ports.http}`,
    }),
  ],
  [
    "Triton over gRPC",
    () => ({
      ...{ backend: "triton_grpc", mode: "remote" },
      tritonGrpcUrl: `127.0.0.1:${triton.ports.grpc}`,
    }),
  ],
  ["the local model", () => ({ mode: "local", modelPath, textModelPath })],
  [
    "the fallback",
    () => ({ serviceUrl: "http://127.0.0.1:9", textModelPath, onFallback: () => {} }),
  ],
];

describe.each(clients)("%s", (_name, options) => {
  test("embeds texts in order", async () => {
    const client = await openInferenceClient(options());
    const many = Array.from({ length: 40 }, (_, index) => texts[index % texts.length]!);
    const vectors = await client.embedText(many);
    await client.close();
    expect(vectors).toHaveLength(40);
    for (const [index, vector] of vectors.entries()) {
      const other = expected[index % texts.length]!;
      const difference = vector.map((value, at) => Math.abs(value - other[at]!));
      expect(Math.max(...difference)).toBeLessThan(1e-6);
    }
  });

  test("fails on an empty text", async () => {
    const client = await openInferenceClient(options());
    await expect(client.embedText(["a", ""])).rejects.toThrow(
      "[rejected] text 1 must not be an empty string",
    );
    await client.close();
  });
});

test.each(clients.slice(0, 4))(
  "%s embeds images with the model of the option",
  async (_name, options) => {
    const client = await openInferenceClient({ ...options(), model: "dinov2-small" });
    const [vector] = await client.embed([await picture()]);
    expect(vector).toHaveLength(384);
    await expect(client.embedText(["a"])).rejects.toThrow(
      /^\[rejected\] dinov2-small embeds no texts/,
    );
    await client.close();
  },
);

test("the gateway embeds images with each model as the embed server does", async () => {
  const body = new Uint8Array(await picture());
  for (const { name } of specs) {
    const [own, other] = await Promise.all(
      [server, gateway].map(async (service) => {
        const response = await fetch(`${urlOf(service)}/embed?model=${name}`, {
          method: "POST",
          headers: { "content-type": "image/jpeg" },
          body,
        });
        return embedResponse.parse(await response.json());
      }),
    );
    expect(other!.model).toBe(name);
    const difference = own!.embeddings[0]!.map((value, at) =>
      Math.abs(value - other!.embeddings[0]![at]!),
    );
    expect(Math.max(...difference)).toBeLessThan(1e-6);
  }
});

test.each([
  ["a model that is not in the catalogue", { backend: "triton", model: "own" }],
  ["a local model that is not in the catalogue", { modelPath: "a.onnx", model: "own" }],
] as const)("fails on %s without its spec", async (_name, options) => {
  await expect(openInferenceClient(options)).rejects.toThrow(
    /^\[settings\] model must be a spec or one of openclip-vit-b32, .*, got 'own'$/,
  );
});
