import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { openInferenceClient } from "../../client/embedding/inference-client.ts";
import { fingerprintHeader, modelHeader } from "../../contract/embed-api.ts";
import {
  decodedFingerprint,
  fingerprintOf,
  preprocessingSha256,
} from "../../contract/fingerprint.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { modelsResponse } from "../../contract/openai-api.ts";
import { repositoryAt } from "../../emulator/test-repository.ts";
import { type RunningTritonEmulator, startTritonEmulator } from "../../emulator/triton-emulator.ts";
import { picture } from "../../inference/preprocess/test-images.ts";
import { ensureTinyModel } from "../../model-tools/generate/generate.ts";
import { weightsIdentity } from "../../model-tools/repository/fingerprint.ts";
import { writeModelRepository } from "../../model-tools/repository/repository.ts";
import type { RunningEmbedServer } from "../server/embed-server.ts";
import { startLoaded } from "../server/test-embed-server.ts";

/** The fingerprint of a model behind ONNX Runtime in the server's process, and behind gateways to a Triton server. */

let folder: string;
let triton: RunningTritonEmulator;
let image: string;
let text: string;
let photo: Buffer;
const running: RunningEmbedServer[] = [];

beforeAll(async () => {
  photo = await picture("jpeg");
  const files = {
    image: await ensureTinyModel(defaultModel, "image"),
    text: await ensureTinyModel(defaultModel, "text"),
  };
  [image, text] = (await Promise.all(
    (["image", "text"] as const).map(async (modality) =>
      fingerprintOf(
        preprocessingSha256(defaultModel, modality),
        await weightsIdentity(files[modality]),
      ),
    ),
  )) as [string, string];
  folder = await mkdtemp(join(tmpdir(), "clipstack-fingerprint-"));
  await writeModelRepository([{ spec: defaultModel, files }], folder);
  triton = await startTritonEmulator(repositoryAt(folder).flags(), { log: () => {} });
});
afterAll(async () => {
  await Promise.all(running.map((server) => server.stop()));
  await triton?.stop();
  await rm(folder, { recursive: true });
});

const viaTriton = (modelKind: string) => ({
  BACKEND: "triton",
  TRITON_MODEL_KIND: modelKind,
  TRITON_GRPC_URLS: `127.0.0.1:${triton.ports.grpc}`,
});

async function start(env: Readonly<Record<string, string>>): Promise<string> {
  const server = await startLoaded({
    MODELS: defaultModel.name,
    MODEL_REPOSITORY: folder,
    ...env,
  });
  running.push(server);
  const url = `http://127.0.0.1:${server.port}`;
  await expect
    .poll(async () => (await fetch(`${url}/readyz`)).status, { timeout: 20_000 })
    .toBe(200);
  return url;
}

async function modelsOf(url: string) {
  const { data } = modelsResponse.parse(await (await fetch(`${url}/v1/models`)).json());
  return data[0]!.fingerprints;
}

function post(url: string, type: string, body: string | Buffer, accept = "*/*"): Promise<Response> {
  return fetch(url, {
    method: "POST",
    headers: { "content-type": type, accept },
    body: body as string,
  });
}

test("is the same behind ONNX Runtime and gateways, for the original and the optimised file", async () => {
  for (const env of [
    {} as Readonly<Record<string, string>>,
    { MODEL_PRECISION: "fp32" },
    viaTriton("fp32"),
    viaTriton("u8"),
    viaTriton("jpeg"),
  ]) {
    expect(await modelsOf(await start(env))).toEqual({ image, text });
  }
});

test("differs behind TensorRT in FP16", async () => {
  const fp16 = fingerprintOf(preprocessingSha256(defaultModel, "image"), {
    ...(await weightsIdentity(await ensureTinyModel(defaultModel))),
    precision: "fp16",
  });
  expect((await modelsOf(await start(viaTriton("trt")))).image).toBe(fp16);
});

test("depends on the decoding, but not for texts", async () => {
  const fast = { image: decodedFingerprint(image, "fast"), text };
  for (const env of [{}, viaTriton("fp32")]) {
    expect(await modelsOf(await start({ ...env, PREPROCESSING: "fast" }))).toEqual(fast);
  }
});

test("every response with embeddings names the model and its fingerprint", async () => {
  const url = await start({});
  const photos = { input: [`data:image/jpeg;base64,${photo.toString("base64")}`] };
  const json = (path: string, body: object) =>
    post(`${url}${path}`, "application/json", JSON.stringify(body));
  for (const [response, fingerprints] of [
    [await post(`${url}/embed`, "image/jpeg", photo), `image=${image}`],
    [await post(`${url}/embed`, "image/jpeg", photo, "application/octet-stream"), `image=${image}`],
    [await json("/embed/base64", { images: [photo.toString("base64")] }), `image=${image}`],
    [await json("/embed/text", { texts: ["a lake"] }), `text=${text}`],
    [await json("/v1/embeddings", photos), `image=${image}`],
    [
      await json("/v1/embeddings", { input: ["a lake", ...photos.input] }),
      `image=${image}, text=${text}`,
    ],
  ] as const) {
    expect(response.status).toBe(200);
    expect(response.headers.get(modelHeader)).toBe(defaultModel.name);
    expect(response.headers.get(fingerprintHeader)).toBe(fingerprints);
  }
});

test("a client that requires another fingerprint fails by its name", async () => {
  const serviceUrl = await start(viaTriton("fp32"));
  const open = (expected: object) =>
    openInferenceClient({ mode: "remote", serviceUrl, expect: expected });
  const same = await open({ image, text });
  expect(await same.embed([photo])).toHaveLength(1);
  expect(await same.embedText(["a lake"])).toHaveLength(1);
  await same.close();
  const other = await open({ text: image });
  expect(await other.embed([photo])).toHaveLength(1);
  await expect(other.embedText(["a lake"])).rejects.toMatchObject({
    code: "fingerprint",
    problem: `${serviceUrl}: openclip-vit-b32 must embed texts with the fingerprint ${image}, got ${text}`,
  });
  await other.close();
  await expect(openInferenceClient({ backend: "triton", expect: { image } })).rejects.toThrow(
    "[settings] expect requires the backend 'embed' without a local model, got the backend 'triton'",
  );
});
