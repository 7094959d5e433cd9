import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { testCertificate } from "../../http/test-certificate.ts";
import { picture } from "../../inference/preprocess/test-images.ts";
import type { RunningEmbedServer } from "../../inference-image/server/embed-server.ts";
import { startLoaded } from "../../inference-image/server/test-embed-server.ts";
import { tinyRepository } from "../../model-tools/generate/test-model.ts";
import { openInferenceClient } from "./inference-client.ts";

const apiKey = "0123456789abcdef";
let modelRepository: string;
let jpeg: Buffer;
let folder: string;
let server: RunningEmbedServer;

beforeAll(async () => {
  [modelRepository, jpeg, folder] = await Promise.all([
    tinyRepository(),
    picture(),
    mkdtemp(join(tmpdir(), "clipstack-client-")),
  ]);
});
afterAll(() => rm(folder, { recursive: true }));
afterEach(() => server.stop());

async function start(env: Readonly<Record<string, string>>): Promise<void> {
  server = await startLoaded({
    MODEL_REPOSITORY: modelRepository,
    INTRA_OP_THREADS: "1",
    ...env,
  });
}

describe("a service with an API key", () => {
  async function embed(key: string | undefined) {
    await start({ API_KEY: apiKey });
    const client = await openInferenceClient({
      backend: "embed",
      mode: "remote",
      serviceUrl: `http://127.0.0.1:${server.port}`,
      apiKey: key,
    });
    try {
      return await client.embed([jpeg]);
    } finally {
      await client.close();
    }
  }

  test("accepts a client with the key", async () => {
    expect(await embed(apiKey)).toHaveLength(1);
  });

  test.each([undefined, "fedcba9876543210"])("rejects a client with the key %s", async (key) => {
    await expect(embed(key)).rejects.toThrow(
      /^\[rejected\] the header must be 'Authorization: Bearer'/,
    );
  });
});

test("embeds over HTTPS with a certificate authority from NODE_EXTRA_CA_CERTS", async () => {
  const { cert, key } = testCertificate();
  const [certFile, keyFile] = [join(folder, "cert.pem"), join(folder, "key.pem")];
  await Promise.all([writeFile(certFile, cert), writeFile(keyFile, key)]);
  await start({ TLS_CERT_FILE: certFile, TLS_KEY_FILE: keyFile, API_KEY: apiKey });
  const program = `
    import { readFile } from "node:fs/promises";
    import { clientOptionsFromEnv } from ${JSON.stringify(new URL("./client-env.ts", import.meta.url).href)};
    import { openInferenceClient } from ${JSON.stringify(new URL("./inference-client.ts", import.meta.url).href)};
    const client = await openInferenceClient(clientOptionsFromEnv(process.env));
    const [vector] = await client.embed([await readFile(process.env.IMAGE)]);
    console.log(vector.length);
    await client.close();
  `;
  await writeFile(join(folder, "client.mts"), program);
  await writeFile(join(folder, "a.jpg"), jpeg);
  const { stdout } = await promisify(execFile)(
    process.execPath,
    ["--import", import.meta.resolve("tsx"), join(folder, "client.mts")],
    {
      env: {
        ...process.env,
        NODE_EXTRA_CA_CERTS: certFile,
        INFERENCE_MODE: "remote",
        INFERENCE_SERVICE_URL: `https://localhost:${server.port}`,
        INFERENCE_API_KEY: apiKey,
        IMAGE: join(folder, "a.jpg"),
      },
    },
  );
  expect(stdout.trim()).toBe("512");
});
