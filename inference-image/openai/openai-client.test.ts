import { once } from "node:events";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import OpenAI, {
  APIError,
  AuthenticationError,
  BadRequestError,
  NotFoundError,
  RateLimitError,
} from "openai";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  embedPaths,
  embedResponse,
  serverTimingHeader,
  warningHeader,
} from "../../contract/embed-api.ts";
import { embedMetrics } from "../../contract/metrics/embed-metrics.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { modelsResponse, openAiErrorResponse } from "../../contract/openai-api.ts";
import { picture } from "../../inference/preprocess/test-images.ts";
import { type LocalEmbedder, openLocalEmbedder } from "../../inference/session/local-embedder.ts";
import { tinyModel } from "../../model-tools/generate/test-model.ts";
import type { RunningEmbedServer } from "../server/embed-server.ts";
import { photoModel, startOpenAiServer, truncatableModel } from "./test-openai-server.ts";

/** OpenAI's client for Node, unmodified, against a server that listens. */

const apiKey = "a-key-for-the-openai-client";
let server: RunningEmbedServer;
let client: OpenAI;
let local: LocalEmbedder;
let files: Server;
let filesUrl: string;
let photos: readonly Buffer[];

beforeAll(async () => {
  photos = await Promise.all([picture("jpeg", { seed: 1 }), picture("png", { seed: 2 })]);
  files = createServer((_request, response) => response.end(photos[1]));
  files.listen(0, "127.0.0.1");
  await once(files, "listening");
  filesUrl = `http://127.0.0.1:${(files.address() as AddressInfo).port}`;
  server = await startOpenAiServer([photoModel, truncatableModel, defaultModel], {
    API_KEY: apiKey,
    IMAGE_URL_HOSTS: filesUrl,
  });
  client = clientWith();
  local = await openLocalEmbedder({
    spec: photoModel,
    modelPath: await tinyModel(photoModel),
    intraOpThreads: 1,
  });
});
afterAll(async () => {
  files?.close();
  await Promise.all([server?.stop(), local?.close()]);
});

function clientWith(options: { readonly apiKey?: string } = {}): OpenAI {
  const baseURL = `http://127.0.0.1:${server.port}/v1`;
  return new OpenAI({ baseURL, apiKey, maxRetries: 0, ...options });
}

const dataUri = (file: Buffer, type = "image/jpeg") =>
  `data:${type};base64,${file.toString("base64")}`;

type Request = Parameters<OpenAI["embeddings"]["create"]>[0];

/** Input that OpenAI's types do not have. */
const imageInput = (...images: readonly string[]) =>
  images.map((image) => ({ image })) as unknown as string[];

async function vectorsOf(request: Request): Promise<readonly number[][]> {
  const { data } = await client.embeddings.create(request);
  expect(data.map(({ index }) => index)).toEqual(data.map((_, index) => index));
  return data.map(({ embedding }) => embedding);
}

async function errorOf(request: Request): Promise<APIError> {
  const error = await client.embeddings.create(request).then(
    () => undefined,
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(APIError);
  return error as APIError;
}

function expectSame(got: readonly number[] | undefined, expected: Float32Array | undefined) {
  expect(got).toHaveLength(expected!.length);
  const differences = got!.map((value, index) => Math.abs(value - expected![index]!));
  expect(Math.max(...differences)).toBeLessThan(1e-5);
}

test("embeds data URIs in order, in base64 by default", async () => {
  const [first, second] = await local.embed(photos);
  const vectors = await vectorsOf({
    model: photoModel.name,
    input: photos.map((file) => dataUri(file)),
  });
  expectSame(vectors[0], first);
  expectSame(vectors[1], second);
});

test("float and base64 agree", async () => {
  const request = { model: photoModel.name, input: dataUri(photos[0]!) };
  const [float] = await vectorsOf({ ...request, encoding_format: "float" });
  const { data } = await client.embeddings.create({ ...request, encoding_format: "base64" });
  const text = data[0]!.embedding as unknown as string;
  const base64 = new Float32Array(new Uint8Array(Buffer.from(text, "base64")).buffer);
  expectSame(float, base64);
});

test("embeds image objects: base64, data URI and URL", async () => {
  const [first, second] = await local.embed(photos);
  const vectors = await vectorsOf({
    model: photoModel.name,
    input: imageInput(
      photos[0]!.toString("base64"),
      dataUri(photos[1]!, "image/png"),
      `${filesUrl}/photo.png`,
    ),
  });
  expectSame(vectors[0], first);
  expectSame(vectors[1], second);
  expectSame(vectors[2], second);
});

test("reports the model and no tokens for images", async () => {
  const { object, model, usage } = await client.embeddings.create({
    model: photoModel.name,
    input: dataUri(photos[0]!),
    user: "somebody",
  });
  expect({ object, model, usage }).toEqual({
    object: "list",
    model: "photos",
    usage: { prompt_tokens: 0, total_tokens: 0 },
  });
});

test("embeds texts and images in the order of the request, and counts token ids", async () => {
  const texts = ["a red bicycle", "a lake in the mountains"] as const;
  const { body: expected } = await embedTexts(texts);
  const { data, usage } = await client.embeddings.create({
    model: defaultModel.name,
    input: [texts[0], dataUri(photos[0]!), texts[1]],
  });
  expectSame(data[0]!.embedding, Float32Array.from(expected.embeddings[0]!));
  expectSame(data[2]!.embedding, Float32Array.from(expected.embeddings[1]!));
  const [image] = await vectorsOf({ model: defaultModel.name, input: dataUri(photos[0]!) });
  expectSame(data[1]!.embedding, Float32Array.from(image!));
  // begin, words and end
  expect(usage).toEqual({ prompt_tokens: 5 + 7, total_tokens: 5 + 7 });
});

test("selects the first model with all modalities if the request names none", async () => {
  const modelOf = async (input: unknown) => {
    const { body } = await postJson(embedPaths.openAiEmbeddings, { input });
    return (body as { readonly model: string }).model;
  };
  expect(await modelOf(dataUri(photos[0]!))).toBe("photos");
  expect(await modelOf("a red bicycle")).toBe(defaultModel.name);
  expect(await modelOf(["a red bicycle", dataUri(photos[0]!)])).toBe(defaultModel.name);
});

async function embedTexts(texts: readonly string[]) {
  const { body } = await postJson(embedPaths.embedText, { texts, model: defaultModel.name });
  return { body: embedResponse.parse(body) };
}

async function postJson(path: string, value: unknown): Promise<{ readonly body: unknown }> {
  return { body: await (await post(path, value)).json() };
}

function post(path: string, value: unknown): Promise<Response> {
  return fetch(`http://127.0.0.1:${server.port}${path}`, {
    method: "POST",
    headers: { authorization: `Bearer ${apiKey}`, "content-type": "application/json" },
    body: JSON.stringify(value),
  });
}

test("parses a large body in a thread", async () => {
  const large = await picture("png", { width: 800, height: 600, seed: 3 });
  const input = imageInput(large.toString("base64"), dataUri(large));
  const [first, second] = await vectorsOf({ model: photoModel.name, input });
  expectSame(first, (await local.embed([large]))[0]);
  expect(first).toEqual(second);
});

test("truncates to the dimensions of the spec, with unit norm", async () => {
  const request = { model: truncatableModel.name, input: dataUri(photos[0]!) };
  const [full] = await vectorsOf(request);
  const [short] = await vectorsOf({ ...request, dimensions: 64 });
  expect(short).toHaveLength(64);
  expect(Math.hypot(...short!)).toBeCloseTo(1, 5);
  const scale = short![0]! / full![0]!;
  expectSame(
    short,
    Float32Array.from(full!.slice(0, 64), (value) => value * scale),
  );
});

test("lists the models in the order of MODELS", async () => {
  const { data } = await client.models.list();
  expect(data.map(({ id }) => id)).toEqual(["photos", "truncatable", defaultModel.name]);
  const listed = modelsResponse.parse(await (await getJson(embedPaths.openAiModels)).json());
  expect(listed.data[0]).toMatchObject({ modalities: ["image"], dimensions: 512 });
  expect(listed.data[2]).toMatchObject({ modalities: ["image", "text"], dimensions: 512 });
});

test("retrieves a model as it is listed", async () => {
  const { data } = await client.models.list();
  expect(await client.models.retrieve(defaultModel.name)).toEqual(data[2]);
});

test("reports the stages of a request", async () => {
  const timingOf = async (input: unknown) => {
    const response = await post(embedPaths.openAiEmbeddings, { input });
    expect(response.status).toBe(200);
    const entries = response.headers.get(serverTimingHeader)!.split(", ");
    return Object.fromEntries(
      entries.map((entry) => {
        const [stage, duration] = entry.split(";dur=");
        return [stage, Number(duration)];
      }),
    );
  };
  const stages = ["receive", "decode", "queue", "infer", "total"];
  const image = await timingOf(dataUri(photos[0]!));
  expect(Object.keys(image)).toEqual(stages);
  expect(image.decode! + image.queue! + image.infer!).toBeLessThan(image.total!);
  expect(image.infer).toBeGreaterThan(0);
  expect(Object.keys(await timingOf("a red bicycle"))).toEqual(stages);
  const url = await timingOf([{ image: `${filesUrl}/photo.png` }]);
  expect(url.download).toBeGreaterThan(0);
});

test("measures the time of requests outside their stages, by model and modality", async () => {
  const count = async (modality: string) => {
    const text = await (await getJson(embedPaths.metrics)).text();
    const labels = `{model="${defaultModel.name}",modality="${modality}"}`;
    const line = text.split("\n").find((it) => it.startsWith(`${overheadCount}${labels}`));
    return Number(line?.split(" ")[1] ?? 0);
  };
  const before = { image: await count("image"), text: await count("text") };
  await client.embeddings.create({ model: defaultModel.name, input: "a red bicycle" });
  await client.embeddings.create({ model: defaultModel.name, input: dataUri(photos[0]!) });
  expect(await count("image")).toBe(before.image + 1);
  expect(await count("text")).toBe(before.text + 1);
});

const overheadCount = `${embedMetrics.overheadSeconds}_count`;

function getJson(path: string): Promise<Response> {
  const headers = { authorization: `Bearer ${apiKey}` };
  return fetch(`http://127.0.0.1:${server.port}${path}`, { headers });
}

test("names unknown fields in a warning", async () => {
  const { response } = await client.embeddings
    .create({ model: "photos", input: dataUri(photos[0]!), task: "retrieval" } as Request)
    .withResponse();
  expect(response.headers.get(warningHeader)).toBe('299 - "ignored fields: task"');
  const strange = Object.fromEntries(Array.from({ length: 12 }, (_, at) => [`${at}\n"é`, at]));
  const { headers } = await post(embedPaths.openAiEmbeddings, {
    input: dataUri(photos[0]!),
    ...strange,
  });
  expect(headers.get(warningHeader)).toMatch(
    /^299 - "ignored fields: 0\?\?\?, 1\?\?\?, .* and 2 more"$/,
  );
  const plain = await post(embedPaths.openAiEmbeddings, { input: "a lake", user: null });
  expect(plain.headers.get(warningHeader)).toBeNull();
});

test("rejects a text that fills the context if it must not be cut", async () => {
  const words = (count: number) => Array.from({ length: count }, () => "dog").join(" ");
  const request = { model: defaultModel.name, truncate: "NONE" };
  const fits = await post(embedPaths.openAiEmbeddings, { ...request, input: words(74) });
  expect(fits.status).toBe(200);
  const error = await errorOf({ ...request, input: ["a", words(76)] } as Request);
  expect(error).toMatchObject({ status: 413, code: "too_large", param: "input" });
  expect(error.message).toBe(
    "413 input 1 must have fewer than 77 token ids if truncate is NONE or false",
  );
});

describe("errors", () => {
  const photo = () => dataUri(photos[0]!);

  test.each<[name: string, request: () => Request, message: string, param: string]>([
    [
      "token ids",
      () => ({ model: "photos", input: [1, 2, 3] }),
      "400 input must be texts or images, got token ids: the server has its own tokenizer",
      "input",
    ],
    [
      "a text for a model without text tower",
      () => ({ model: "photos", input: "a red bicycle" }),
      `400 photos embeds no texts; use ${defaultModel.name}`,
      "model",
    ],
    [
      "dimensions of a model that cannot be truncated",
      () => ({ model: "photos", input: photo(), dimensions: 64 }),
      "400 dimensions must be 512 for photos, got 64",
      "dimensions",
    ],
    [
      "dimensions that the spec does not list",
      () => ({ model: "truncatable", input: photo(), dimensions: 65 }),
      "400 dimensions must be 64 or 256 or 512 for truncatable, got 65",
      "dimensions",
    ],
    [
      "invalid base64",
      () => ({ model: "photos", input: [photo(), "data:image/png;base64,#"] }),
      "400 input 1 is not base64: its length must be a multiple of 4 with padding, got 1",
      "input",
    ],
    [
      "a URL of another host",
      () => ({ model: "photos", input: imageInput(photo(), "http://169.254.169.254/latest") }),
      "400 input 1 is a URL of http://169.254.169.254, which this server does not allow",
      "input",
    ],
  ])("fails on %s", async (_name, request, message, param) => {
    const error = await errorOf(request());
    expect(error).toBeInstanceOf(BadRequestError);
    expect(error.message).toBe(message);
    expect(error.param ?? "").toBe(param);
    expect(error.type).toBe("invalid_request_error");
  });

  test("names the invalid image by its index in the request", async () => {
    const input = [photo(), dataUri(Buffer.from("no image"))];
    const error = await errorOf({ model: "photos", input });
    expect(error.status).toBe(415);
    expect(error.message).toContain("input 1 is not a JPEG, PNG or WebP file");
    expect(error.param).toBe("input");
  });

  test("an unknown model is not found", async () => {
    const error = await errorOf({ model: "text-embedding-3-small", input: photo() });
    expect(error).toBeInstanceOf(NotFoundError);
    expect(error.code).toBe("model_not_found");
    expect(error.message).toBe(
      "404 model must be one of photos, truncatable, openclip-vit-b32, got 'text-embedding-3-small'",
    );
  });

  test.each(["text-embedding-3-small", "a/b", "x".repeat(500)])(
    "fails to retrieve the unknown model %s",
    async (name) => {
      const error = await client.models.retrieve(name).catch((reason: unknown) => reason);
      expect(error).toBeInstanceOf(NotFoundError);
      expect(error).toMatchObject({ code: "model_not_found", param: "model" });
      expect((error as Error).message).toBe(
        `404 model must be one of photos, truncatable, openclip-vit-b32, got '${name.slice(0, 100)}'`,
      );
    },
  );

  test("a model has no other methods", async () => {
    const error = await client.models.delete("photos").catch((reason: unknown) => reason);
    expect(error).toMatchObject({
      status: 405,
      message: "405 /v1/models/photos requires GET, got DELETE",
    });
  });

  test("a path that cannot be decoded has OpenAI's format", async () => {
    const response = await getJson("/v1/models/%E0%A4%A");
    expect(response.status).toBe(400);
    expect(openAiErrorResponse.parse(await response.json()).error.code).toBe("bad_request");
  });

  test("an unknown route is not found", async () => {
    const messages = [{ role: "user", content: "hello" }] as const;
    const result = client.chat.completions.create({ model: "photos", messages: [...messages] });
    await expect(result).rejects.toThrow("404 no route has the path /v1/chat/completions");
  });

  test("a wrong key is an authentication error", async () => {
    const stranger = clientWith({ apiKey: "another-key-of-enough-length" });
    const result = stranger.embeddings.create({ model: "photos", input: photo() });
    await expect(result).rejects.toBeInstanceOf(AuthenticationError);
    await expect(result).rejects.toMatchObject({ code: "invalid_api_key" });
    for (const read of [stranger.models.list(), stranger.models.retrieve("photos")]) {
      await expect(read).rejects.toBeInstanceOf(AuthenticationError);
    }
  });

  test("too many images are too large", async () => {
    const input = Array.from({ length: 33 }, photo);
    expect(await errorOf({ model: "photos", input })).toMatchObject({
      status: 413,
      code: "too_large",
      message: "413 images must be 1 to 32, got 33",
    });
  });

  test("other API routes keep the format of the embed API", async () => {
    const response = await getJson("/none");
    expect(await response.json()).toMatchObject({ error: { code: "not_found" } });
    const openAi = await getJson("/v1/none");
    expect(openAiErrorResponse.parse(await openAi.json()).error.param).toBeNull();
  });
});

test("a full queue is a rate limit error with Retry-After", async () => {
  const full = await startOpenAiServer([photoModel], {
    MAX_QUEUE_BYTES: "2000000",
  });
  const large = await picture("png", { width: 700, height: 500, seed: 4 });
  const baseURL = `http://127.0.0.1:${full.port}/v1`;
  const request = { model: "photos", input: [dataUri(large), dataUri(large)] };
  try {
    const eager = new OpenAI({ baseURL, apiKey: "none", maxRetries: 0 });
    const results = await Promise.allSettled(
      Array.from({ length: 12 }, () => eager.embeddings.create(request)),
    );
    const failures = results.flatMap((result) => ("reason" in result ? [result.reason] : []));
    expect(failures.length).toBeGreaterThan(0);
    for (const failure of failures) {
      expect(failure).toBeInstanceOf(RateLimitError);
      expect(failure.type).toBe("rate_limit_error");
      expect(failure.code).toBe("rate_limit_exceeded");
      expect(Number(failure.headers.get("retry-after"))).toBeGreaterThan(0);
    }
  } finally {
    await full.stop();
  }
});

test("while the server stops, the error is a server error with Retry-After", async () => {
  const other = await startOpenAiServer([photoModel]);
  const stopping = other.stop();
  const response = await fetch(`http://127.0.0.1:${other.port}${embedPaths.openAiEmbeddings}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ input: dataUri(photos[0]!) }),
  });
  expect(response.status).toBe(503);
  expect(response.headers.get("retry-after")).toBe("1");
  expect(openAiErrorResponse.parse(await response.json()).error).toMatchObject({
    type: "server_error",
    code: "unavailable",
  });
  await stopping;
});
