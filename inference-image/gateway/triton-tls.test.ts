import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { ServerCredentials } from "@grpc/grpc-js";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { testCertificate } from "../../http/test-certificate.ts";
import { picture } from "../../inference/preprocess/test-images.ts";
import type { RunningEmbedServer } from "../server/embed-server.ts";
import { startLoading } from "../server/test-embed-server.ts";
import { FakeTriton } from "./test-fake-triton.ts";

/** Gateway with a Triton server that requires TLS, a client certificate and a key in the metadata. */

const certificates = {
  triton: testCertificate("triton.internal"),
  gateway: testCertificate(),
  other: testCertificate("triton.internal"),
};
const key = "a-key-of-the-gateway";

let folder: string;
const file = (name: string) => join(folder, name);
let triton: FakeTriton;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "clipstack-triton-tls-"));
  for (const [name, { cert, key }] of Object.entries(certificates)) {
    await writeFile(file(`${name}.pem`), cert);
    await writeFile(file(`${name}.key`), key);
  }
  await writeFile(file("metadata"), `authorization: Bearer ${key}\n`);
  await writeFile(file("bad-metadata"), `authorization: Bearer x\nKey=${key}\n`);
});
afterAll(() => rm(folder, { recursive: true }));

let gateway: RunningEmbedServer | undefined;
afterEach(async () => {
  await gateway?.stop();
  gateway = undefined;
});

type Overrides = Readonly<Record<string, string>>;

async function startGateway(overrides: Overrides): Promise<void> {
  const [server, client] = [certificates.triton, certificates.gateway];
  const credentials = ServerCredentials.createSsl(
    Buffer.from(client.cert),
    [{ cert_chain: Buffer.from(server.cert), private_key: Buffer.from(server.key) }],
    true,
  );
  triton = await new FakeTriton().start(0, credentials);
  gateway = await startLoading({
    BACKEND: "triton",
    TRITON_GRPC_URLS: triton.target,
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
    if (reason.includes(`${triton.target}: `) && !reason.endsWith("not connected yet"))
      return reason;
    await sleep(20);
  }
}

const authorization = () => triton.metadata?.get("authorization");

test("verifies the server certificate's name and sends the client certificate and the metadata", async () => {
  await startGateway({});
  expect(await readiness()).toBe("ready");
  expect(authorization()).toEqual([`Bearer ${key}`]);
});

test("encrypts inferences like health checks, and sends the metadata with them", async () => {
  await startGateway({});
  expect(await readiness()).toBe("ready");
  triton.metadata = undefined;
  const response = await fetch(`http://127.0.0.1:${gateway!.port}/embed`, {
    method: "POST",
    headers: { "content-type": "image/jpeg" },
    body: new Uint8Array(await picture()),
  });
  expect(response.status).toBe(200);
  expect(authorization()).toEqual([`Bearer ${key}`]);
});

const noTls = {
  TRITON_TLS_CA_FILE: "",
  TRITON_TLS_CERT_FILE: "",
  TRITON_TLS_KEY_FILE: "",
  TRITON_TLS_SERVER_NAME: "",
};

describe("does not use a Triton server", () => {
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
      /^no Triton server can be used: /,
    ],
    ["without TLS settings, if it requires TLS", noTls, /^no Triton server can be used: /],
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
      `TRITON_TLS_KEY_FILE must be the key of the first certificate in TRITON_TLS_CERT_FILE, got '${path("other.key")}'`,
  ],
  [
    { TRITON_METADATA_FILE: "bad-metadata" },
    (path) =>
      `TRITON_METADATA_FILE must have lines 'name: value' in lower-case and printable ASCII characters, got an invalid line 2 in '${path("bad-metadata")}'`,
  ],
])("fails to start on %o", async (overrides, message) => {
  await expect(startGateway(withPaths(overrides))).rejects.toThrow(message(file));
});
