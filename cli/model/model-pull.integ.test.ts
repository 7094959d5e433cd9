import { spawn } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { openclipVitB32 } from "../../contract/models/openclip-vit-b32.ts";
import { testCertificate } from "../../http/test-certificate.ts";
import { file, startProxy, startTlsFileServer } from "../../model-tools/fetch/test-file-server.ts";
import { tinyModel } from "../../model-tools/generate/test-model.ts";

const program = join(import.meta.dirname, "../clipstack.mjs");

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "clipstack-pull-proxy-"));
});
afterAll(async () => {
  await rm(folder, { recursive: true, force: true });
});

/** `clipstack model pull small …`, in its own process, because Node reads certificate authorities at start. */
async function pull(env: Readonly<Record<string, string>>) {
  const child = spawn(
    process.execPath,
    [program, "model", "pull", "small", "--output", "model.onnx"],
    {
      cwd: folder,
      env: { PATH: process.env.PATH, CLIPSTACK_ENVIRONMENTS_DIR: folder, ...env },
      stdio: ["ignore", "pipe", "pipe"],
    },
  );
  let text = "";
  for (const output of [child.stdout, child.stderr]) {
    output.on("data", (chunk: Buffer) => {
      text += chunk.toString("utf8");
    });
  }
  const [code] = await once(child, "close");
  return { code, text };
}

test("downloads over TLS through a proxy tunnel with a private certificate authority", async () => {
  const body = await readFile(await tinyModel());
  const sha256 = createHash("sha256").update(body).digest("hex");
  const { name: _name, ...facts } = openclipVitB32;
  const spec = {
    ...facts,
    towers: { image: facts.towers.image },
    sources: {},
    weights: {
      ...{ name: "mine", host: "huggingface", repository: "owner/name", file: "model.onnx" },
      ...{ revision: randomBytes(20).toString("hex"), bytes: body.length, sha256 },
    },
  };
  await mkdir(join(folder, "models"));
  await writeFile(join(folder, "models", "small.yaml"), JSON.stringify(spec));
  const certificate = testCertificate();
  await writeFile(join(folder, "ca.pem"), certificate.cert);
  const hub = await startTlsFileServer(certificate, file(body));
  const proxy = await startProxy("user:secret");
  const env = {
    HF_ENDPOINT: hub.url.origin,
    HTTPS_PROXY: `http://user:secret@${proxy.url.host}`,
  };
  try {
    const untrusted = await pull(env);
    expect(untrusted).toMatchObject({
      code: 1,
      text: expect.stringContaining("cannot be reached"),
    });
    expect(existsSync(join(folder, "model.onnx"))).toBe(false);
    const trusted = await pull({ ...env, NODE_EXTRA_CA_CERTS: join(folder, "ca.pem") });
    expect(trusted).toMatchObject({ code: 0, text: expect.stringContaining(sha256) });
    expect((await readFile(join(folder, "model.onnx"))).equals(body)).toBe(true);
    expect(proxy.tunnels).toContain(hub.url.host);
    expect(proxy.requests).toEqual([]);
  } finally {
    await Promise.all([hub.close(), proxy.close()]);
  }
}, 60_000);
