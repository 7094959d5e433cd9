import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import OpenAI, { APIConnectionError } from "openai";
import { Agent, type RequestInit, fetch as undiciFetch } from "undici";
import { afterAll, beforeAll, expect, test } from "vitest";
import { embedPaths } from "../../contract/embed-api.ts";
import { dinov2Small } from "../../contract/models/dinov2-small.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { testCertificate } from "../../http/test-certificate.ts";
import { picture } from "../../inference/preprocess/test-images.ts";
import { startGateway, startTestTriton, type TestTriton } from "../gateway/test-triton.ts";
import type { RunningEmbedServer } from "../server/embed-server.ts";
import { startOpenAiServer } from "./test-openai-server.ts";

/** OpenAI's client, unmodified, against a gateway with an API key and TLS, and a Triton server behind it. */

const specs = [defaultModel, dinov2Small];
const apiKey = "a-key-for-the-openai-gateway";
const certificate = testCertificate();

let triton: TestTriton;
let gateway: RunningEmbedServer;
/** Embed server without Triton, with the same models. */
let direct: RunningEmbedServer;
let agent: Agent;
let client: OpenAI;
let photo: string;

beforeAll(async () => {
  triton = await startTestTriton(specs);
  const [certFile, keyFile] = ["cert.pem", "key.pem"].map((name) => join(triton.folder, name));
  await writeFile(certFile!, certificate.cert);
  await writeFile(keyFile!, certificate.key);
  gateway = await startGateway(triton, specs, {
    API_KEY: apiKey,
    TLS_CERT_FILE: certFile!,
    TLS_KEY_FILE: keyFile!,
  });
  direct = await startOpenAiServer(specs);
  agent = new Agent({ connect: { ca: certificate.cert } });
  client = clientOf(agent, apiKey);
  photo = `data:image/jpeg;base64,${(await picture("jpeg")).toString("base64")}`;
  const isReady = () => undiciFetch(`${url()}/readyz`, { dispatcher: agent });
  while ((await isReady()).status !== 200) await sleep(20);
});
afterAll(async () => {
  await Promise.all([gateway?.stop(), direct?.stop()]);
  await Promise.all([agent?.close(), triton?.stop()]);
});

const url = () => `https://127.0.0.1:${gateway.port}`;

/** Client that trusts the certificates of an agent. */
function clientOf(dispatcher: Agent, key: string): OpenAI {
  return new OpenAI({
    baseURL: `${url()}/v1`,
    apiKey: key,
    maxRetries: 0,
    fetch: (async (address: string, init: RequestInit) =>
      await undiciFetch(address, { ...init, dispatcher })) as unknown as typeof fetch,
  });
}

test.each([
  ["texts", () => ["a red bicycle", "寺の写真"]],
  ["images", () => [photo, photo]],
  ["texts and images", () => ["a red bicycle", photo, "a lake"]],
])("embeds %s as the embed server without Triton does", async (_name, input) => {
  const request = { model: defaultModel.name, input: input() };
  const baseURL = `http://127.0.0.1:${direct.port}/v1`;
  const expected = await new OpenAI({ baseURL, apiKey: "none" }).embeddings.create(request);
  const got = await client.embeddings.create(request);
  expect(got.usage).toEqual(expected.usage);
  expect(got.data).toHaveLength(request.input.length);
  for (const [index, { embedding }] of got.data.entries()) {
    const other = expected.data[index]!.embedding;
    const differences = embedding.map((value, at) => Math.abs(value - other[at]!));
    expect(Math.max(...differences)).toBeLessThan(1e-6);
  }
});

test("a client that does not trust the certificate does not connect", async () => {
  const untrusting = new Agent();
  const result = clientOf(untrusting, apiKey).models.list();
  await expect(result).rejects.toBeInstanceOf(APIConnectionError);
  await untrusting.close();
});

test("while no Triton server responds, the error is a server error", async () => {
  await triton.stop();
  const response = await undiciFetch(`${url()}${embedPaths.openAiEmbeddings}?timeout=2000000`, {
    method: "POST",
    dispatcher: agent,
    headers: { authorization: `Bearer ${apiKey}`, "content-type": "application/json" },
    body: JSON.stringify({ input: photo }),
  });
  expect([503, 504]).toContain(response.status);
  expect(await response.json()).toMatchObject({ error: { type: "server_error" } });
});
