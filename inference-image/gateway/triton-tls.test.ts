import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { type Metadata, Server, ServerCredentials } from "@grpc/grpc-js";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { inferenceService } from "../../client/triton/wire-grpc.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { tritonModel } from "../../contract/triton-models.ts";
import { testCertificate } from "../../http/test-certificate.ts";
import { picture } from "../../inference/preprocess/test-images.ts";
import type { RunningEmbedServer } from "../server/embed-server.ts";
import { startLoading } from "../server/test-embed-server.ts";

const fp32Model = tritonModel(defaultModel, "fp32");

/** Gateway with a Triton that requires TLS, a client certificate and a key in the metadata. */

const certificates = {
  triton: testCertificate("triton.internal"),
  gateway: testCertificate(),
  other: testCertificate("triton.internal"),
};
const key = "a-key-of-the-gateway";

let folder: string;
const file = (name: string) => join(folder, name);
let triton: Server;
let target: string;
let received: Metadata | undefined;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "clipstack-triton-tls-"));
  for (const [name, { cert, key }] of Object.entries(certificates)) {
    await writeFile(file(`${name}.pem`), cert);
    await writeFile(file(`${name}.key`), key);
  }
  await writeFile(file("metadata"), `authorization: Bearer ${key}\n`);
  await writeFile(file("bad-metadata"), `authorization: Bearer x\nKey=${key}\n`);
  await startTriton();
});
afterAll(async () => {
  triton?.forceShutdown();
  await rm(folder, { recursive: true });
});

async function startTriton(): Promise<void> {
  triton = new Server();
  type Callback = (error: null, response: object) => void;
  const spec = ({ name, dataType, dims }: (typeof fp32Model.inputs)[number] | Output) => ({
    name,
    datatype: dataType,
    shape: [-1, ...dims],
  });
  triton.addService(inferenceService, {
    ModelReady: ({ metadata }: { metadata: Metadata }, callback: Callback) => {
      received = metadata;
      callback(null, { ready: true });
    },
    ModelMetadata: (_call: unknown, callback: Callback) =>
      callback(null, {
        name: fp32Model.name,
        versions: ["1"],
        platform: fp32Model.platform,
        inputs: fp32Model.inputs.map(spec),
        outputs: fp32Model.outputs.map(spec),
      }),
    ModelConfig: (_call: unknown, callback: Callback) =>
      callback(null, { config: { max_batch_size: 8 } }),
    ModelInfer: ({ metadata }: { metadata: Metadata }, callback: Callback) => {
      received = metadata;
      const [{ name, dims }] = fp32Model.outputs as readonly [Output];
      const embedding = new Float32Array(dims[0]!).fill(1);
      callback(null, {
        outputs: [{ name, datatype: "FP32", shape: [1, ...dims] }],
        raw_output_contents: [Buffer.from(embedding.buffer)],
      });
    },
  });
  const [server, client] = [certificates.triton, certificates.gateway];
  const credentials = ServerCredentials.createSsl(
    Buffer.from(client.cert),
    [{ cert_chain: Buffer.from(server.cert), private_key: Buffer.from(server.key) }],
    true,
  );
  const port = await new Promise<number>((resolve, reject) => {
    triton.bindAsync("127.0.0.1:0", credentials, (error, bound) =>
      error === null ? resolve(bound) : reject(error),
    );
  });
  target = `127.0.0.1:${port}`;
}
type Output = (typeof fp32Model.outputs)[number];

let gateway: RunningEmbedServer | undefined;
afterEach(async () => {
  await gateway?.stop();
  gateway = undefined;
});

type Overrides = Readonly<Record<string, string>>;

async function startGateway(overrides: Overrides): Promise<void> {
  gateway = await startLoading({
    BACKEND: "triton",
    TRITON_GRPC_URLS: target,
    TRITON_TLS_CA_FILE: file("triton.pem"),
    TRITON_TLS_CERT_FILE: file("gateway.pem"),
    TRITON_TLS_KEY_FILE: file("gateway.key"),
    TRITON_TLS_SERVER_NAME: "triton.internal",
    TRITON_METADATA_FILE: file("metadata"),
    ...overrides,
  });
}

/** Returns `ready` or the reason. */
async function readiness(): Promise<string> {
  for (;;) {
    const response = await fetch(`http://127.0.0.1:${gateway!.port}/readyz`);
    if (response.status === 200) return "ready";
    const { reason = "" } = (await response.json()) as { reason?: string };
    if (reason.includes(`${target}: `) && !reason.endsWith("not connected yet")) return reason;
    await sleep(20);
  }
}

test("verifies the server certificate's name and sends the client certificate and the metadata", async () => {
  received = undefined;
  await startGateway({});
  expect(await readiness()).toBe("ready");
  expect((received as Metadata | undefined)?.get("authorization")).toEqual([`Bearer ${key}`]);
});

test("encrypts inferences like health checks, and sends the metadata with them", async () => {
  await startGateway({});
  expect(await readiness()).toBe("ready");
  received = undefined;
  const response = await fetch(`http://127.0.0.1:${gateway!.port}/embed`, {
    method: "POST",
    headers: { "content-type": "image/jpeg" },
    body: new Uint8Array(await picture()),
  });
  expect(response.status).toBe(200);
  expect((received as Metadata | undefined)?.get("authorization")).toEqual([`Bearer ${key}`]);
});

const noTls = {
  TRITON_TLS_CA_FILE: "",
  TRITON_TLS_CERT_FILE: "",
  TRITON_TLS_KEY_FILE: "",
  TRITON_TLS_SERVER_NAME: "",
};

describe("does not use a Triton", () => {
  test.each<[string, Overrides, RegExp]>([
    [
      "whose certificate another authority signed",
      { TRITON_TLS_CA_FILE: "other.pem" },
      /self-signed certificate|signature/,
    ],
    [
      "whose certificate has another name",
      { TRITON_TLS_SERVER_NAME: "" },
      /does not match certificate's altnames/,
    ],
    [
      "that does not accept the gateway's certificate",
      { TRITON_TLS_CERT_FILE: "other.pem", TRITON_TLS_KEY_FILE: "other.key" },
      /^no Triton can be used: /,
    ],
    ["without TLS settings, if it requires TLS", noTls, /^no Triton can be used: /],
  ])("%s", async (_, overrides, reason) => {
    await startGateway(withPaths(overrides));
    expect(await readiness()).toMatch(reason);
  });
});

function withPaths(overrides: Overrides): Overrides {
  return Object.fromEntries(
    Object.entries(overrides).map(([name, value]) => [
      name,
      name.endsWith("_FILE") && value !== "" ? file(value) : value,
    ]),
  );
}

test.each<[Overrides, (path: typeof file) => string]>([
  [
    { TRITON_TLS_CA_FILE: "none.pem" },
    (path) => `TRITON_TLS_CA_FILE must be a readable file: '${path("none.pem")}' does not exist`,
  ],
  [
    { TRITON_TLS_CA_FILE: "triton.key" },
    (path) => `TRITON_TLS_CA_FILE must be a certificate in PEM, got '${path("triton.key")}'`,
  ],
  [
    { TRITON_TLS_KEY_FILE: "other.key" },
    (path) =>
      `TRITON_TLS_KEY_FILE must be the key of the certificate in TRITON_TLS_CERT_FILE, got '${path("other.key")}'`,
  ],
  [
    { TRITON_METADATA_FILE: "bad-metadata" },
    (path) =>
      `TRITON_METADATA_FILE must have lines 'name: value' in lower-case and printable ASCII characters, got an invalid line 2 in '${path("bad-metadata")}'`,
  ],
])("fails to start on %o", async (overrides, message) => {
  await expect(startGateway(withPaths(overrides))).rejects.toThrow(message(file));
});
