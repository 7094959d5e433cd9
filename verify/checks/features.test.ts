import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { checkResult } from "../../bench/record/record.ts";
import { embedPaths, embedResponse, fingerprintHeader } from "../../contract/embed-api.ts";
import { withModalities } from "../../contract/model-spec.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { modelSettings } from "../../contract/server/model-list.ts";
import { restrictControl } from "../../contract/triton-flags.ts";
import { testRepository } from "../../emulator/test-repository.ts";
import { startTritonEmulator } from "../../emulator/triton-emulator.ts";
import { picture } from "../../inference/preprocess/test-images.ts";
import type { RunningEmbedServer } from "../../inference-image/server/embed-server.ts";
import { startLoaded } from "../../inference-image/server/test-embed-server.ts";
import { tinyModel } from "../../model-tools/generate/test-model.ts";
import { writeModelRepository } from "../../model-tools/repository/repository.ts";
import type { Reference } from "../../target/reference/reference.ts";
import { unit } from "../../target/requests/infer.ts";
import type { TargetService } from "../../target/service/target-service.ts";
import type { CheckContext } from "./check.ts";
import { featuresCheck } from "./features.ts";
import { serviceAt } from "./test-embed-service.ts";

/** The check of features against real servers, and behind a proxy that breaks one of them. */

const apiKey = "a-key-of-this-test";
const model = withModalities(defaultModel, ["image"]);

let server: RunningEmbedServer;
let url: string;
let reference: Reference;
/** Allowed host, which has no image. */
let imageHost: string;
const cleanUps: (() => unknown)[] = [];

async function listen(respond: RequestListener): Promise<string> {
  const http = createServer(respond).listen(0, "127.0.0.1");
  await new Promise((resolve) => http.once("listening", resolve));
  cleanUps.push(() => http.close());
  return `http://127.0.0.1:${(http.address() as AddressInfo).port}`;
}

beforeAll(async () => {
  imageHost = await listen((_request, response) => response.writeHead(404).end());
  const repository = await testRepository({});
  cleanUps.push(() => repository.remove());
  await writeModelRepository(
    [{ spec: model, files: { image: await tinyModel() } }],
    repository.path,
  );
  server = await startLoaded({
    ...modelSettings([withModalities(model, ["image"])]),
    MODEL_REPOSITORY: repository.path,
    API_KEY: apiKey,
    IMAGE_URL_HOSTS: imageHost,
  });
  cleanUps.push(() => server.stop());
  url = `http://127.0.0.1:${server.port}`;
  const bytes = await picture("jpeg");
  const response = await fetch(`${url}${embedPaths.embed}`, {
    method: "POST",
    headers: { "content-type": "image/jpeg", authorization: `Bearer ${apiKey}` },
    body: bytes,
  });
  const { embeddings } = embedResponse.parse(await response.json());
  const embedding = unit(Float32Array.from(embeddings[0]!));
  const tensor = new Float32Array();
  reference = new Map([
    [model.name, [{ name: "a.jpg", bytes, contentType: "image/jpeg", tensor, embedding }]],
  ]);
});
afterAll(async () => {
  for (const cleanUp of cleanUps.reverse()) await cleanUp();
});

/** Runs the check on a service whose declared variables and command are given. */
async function check(
  service: TargetService,
  declared: { readonly env?: Record<string, string>; readonly command?: readonly string[] } = {},
): Promise<readonly string[]> {
  const workload = { ...service.workload, ...declared };
  const context = { target: "deployed", reference, textReference: new Map() } as unknown;
  const results = await featuresCheck.runService!(
    { ...service, workload },
    context as CheckContext,
  );
  for (const result of results) checkResult.parse(result);
  return results.map(({ outcome, message }) => `${outcome} ${message}`);
}

const hosts = () => ({ env: { IMAGE_URL_HOSTS: imageHost } });

/** Real server behind a proxy that changes the status, headers or body of a response. */
async function proxied(
  change: (response: {
    readonly path: string;
    readonly request: string;
    status: number;
    headers: Headers;
    body: string;
  }) => void,
): Promise<TargetService> {
  const proxy = await listen(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const sent = Buffer.concat(chunks);
    const { method = "GET", headers: received, url: path = "" } = request;
    const answer = await fetch(`${url}${path}`, {
      method,
      headers: {
        "content-type": received["content-type"] ?? "text/plain",
        ...(received.authorization !== undefined && { authorization: received.authorization }),
      },
      ...(method === "POST" && { body: sent }),
    });
    const changed = {
      path,
      request: sent.toString(),
      status: answer.status,
      headers: new Headers(answer.headers),
      body: await answer.text(),
    };
    change(changed);
    const fingerprint = changed.headers.get(fingerprintHeader);
    response
      .writeHead(changed.status, {
        "content-type": changed.headers.get("content-type") ?? "",
        ...(fingerprint !== null && { [fingerprintHeader]: fingerprint }),
      })
      .end(changed.body);
  });
  return serviceAt(proxy, "embed-http", { apiKey, model });
}

test("all features of a server pass", async () => {
  expect(await check(serviceAt(url, "embed-http", { apiKey, model }), hosts())).toEqual([
    expect.stringMatching(
      /^pass \/v1\/embeddings: image of openclip-vit-b32, fingerprint [0-9a-f]{12}$/,
    ),
    "pass API key: /v1/models, /metrics get 401 without a key",
    `pass image URLs: ${imageHost} respond, another host is rejected`,
  ]);
});

test("features that are off are skipped by name", async () => {
  const service = { ...serviceAt(url, "embed-http", { apiKey, model }), apiKey: undefined };
  expect((await check(service)).slice(1)).toEqual([
    "skip API key: off: the service requires no key",
    "skip image URLs: off: IMAGE_URL_HOSTS lists no host",
  ]);
});

test("image URLs that always fail are found, as in a server that cannot load its HTTP client", async () => {
  const service = await proxied((response) => {
    if (!response.request.includes(imageHost)) return;
    response.body = response.body.replace("its server responds 404", "the download failed");
  });
  expect((await check(service, hosts()))[2]).toMatch(
    /^fail image URLs: an image of http:\/\/127\.0\.0\.1:\d+ must be requested, got 400: .*cannot be downloaded: the download failed$/,
  );
});

test("an allowed host that the server cannot reach, or that it does not allow, is found", async () => {
  const service = await proxied((response) => {
    if (!response.request.includes("not-allowed.invalid")) return;
    response.status = 200;
    response.body = "{}";
  });
  expect((await check(service, hosts()))[2]).toMatch(
    /^fail image URLs: a URL of another host must be rejected, got 200/,
  );
  const unreachable = await proxied((response) => {
    response.body = response.body.replace("its server responds 404", "ECONNREFUSED");
  });
  expect((await check(unreachable, hosts()))[2]).toContain("ECONNREFUSED");
});

test.each<[string, number, Parameters<typeof proxied>[0], RegExp]>([
  [
    "another embedding",
    0,
    (response) => {
      response.body = response.body.replace(/"embedding":\[/, '"embedding":[9,');
    },
    /^fail \/v1\/embeddings: /,
  ],
  [
    "another fingerprint than that of the model",
    0,
    (response) => {
      response.headers.set(fingerprintHeader, `image=${"0".repeat(64)}`);
    },
    /^fail \/v1\/embeddings: image of openclip-vit-b32: the header x-embedding-fingerprint must be image=[0-9a-f]{64} as in \/v1\/models, got image=0{64}$/,
  ],
  [
    "a list of models without models",
    0,
    (response) => {
      if (response.path === embedPaths.openAiModels) response.body = "{}";
    },
    /^fail \/v1\/embeddings: \/v1\/models: object is required$/,
  ],
  [
    "a list of models for another key",
    0,
    (response) => {
      if (response.path === embedPaths.openAiModels) response.status = 401;
    },
    /^fail \/v1\/embeddings: GET \/v1\/models must get 200, got 401: /,
  ],
  [
    "metrics for everybody",
    1,
    (response) => {
      if (response.path === embedPaths.metrics) response.status = 200;
    },
    /^fail API key: GET \/metrics without a key must get 401, got 200$/,
  ],
])("a server with %s fails", async (_name, index, change, message) => {
  expect((await check(await proxied(change)))[index]).toMatch(message);
});

test.each([
  [
    "closed",
    "pass restricted control APIs: shared-memory, trace, logging, model-repository get 403",
  ],
  [
    "open",
    "fail restricted control APIs: POST /v2/repository/models/no_such_model/load must get 403, got 400",
  ],
] as const)("a Triton server whose model control is %s", async (modelControl, expected) => {
  const repository = await testRepository();
  const triton = await startTritonEmulator(
    repository.flags({ "model-control-mode": "explicit", ...restrictControl(modelControl) }),
    { log: () => {} },
  );
  onTestFinished(async () => {
    await triton.stop();
    await repository.remove();
  });
  const service = serviceAt(`http://127.0.0.1:${triton.ports.http}`, "oip-http", { model });
  const declared = restrictControl("closed")["http-restricted-api"].map(
    (value) => `--http-restricted-api=${value}`,
  );
  expect(await check(service, { command: ["tritonserver", ...declared] })).toEqual([expected]);
  expect(await check(service, { command: ["tritonserver"] })).toEqual([
    "skip restricted control APIs: off: the server restricts none",
  ]);
});
