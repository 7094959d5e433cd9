import { type ChildProcess, spawn } from "node:child_process";
import { X509Certificate } from "node:crypto";
import { once } from "node:events";
import { closeSync, existsSync, openSync } from "node:fs";
import { mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { createServer as createHttpServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { connect as connectTls } from "node:tls";
import { fileURLToPath } from "node:url";
import { Agent, request } from "undici";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { embedResponse } from "../../contract/embed-api.ts";
import { embedMetrics } from "../../contract/metrics/embed-metrics.ts";
import { selfSignedCertificate } from "../../http/self-signed-certificate.ts";
import { testCertificate } from "../../http/test-certificate.ts";
import { closedPort, listen } from "../../http/test-listener.ts";
import { picture } from "../../inference/preprocess/test-images.ts";
import { tinyRepository } from "../../model-tools/generate/test-model.ts";
import type { RunningEmbedServer } from "./embed-server.ts";
import { startLoading } from "./test-embed-server.ts";

let modelRepository: string;
let jpeg: Buffer;
/** Folder with two certificates and their keys. */
let tlsFolder: string;
const tlsFile = (name: string) => join(tlsFolder, name);
const tlsEnv = () => ({ TLS_CERT_FILE: tlsFile("cert.pem"), TLS_KEY_FILE: tlsFile("key.pem") });
let certificate: ReturnType<typeof testCertificate>;

beforeAll(async () => {
  tlsFolder = await mkdtemp(join(tmpdir(), "clipstack-tls-"));
  certificate = testCertificate();
  await writeFile(tlsFile("cert.pem"), certificate.cert);
  await writeFile(tlsFile("key.pem"), certificate.key);
  await writeFile(tlsFile("other.pem"), testCertificate().key);
  await writeFile(tlsFile("cert.der"), new X509Certificate(certificate.cert).raw);
});
afterAll(() => rm(tlsFolder, { recursive: true }));

beforeAll(async () => {
  [modelRepository, jpeg] = await Promise.all([tinyRepository(), picture()]);
});

function embed(port: number): Promise<Response> {
  return fetch(`http://127.0.0.1:${port}/embed`, {
    method: "POST",
    headers: { "content-type": "image/jpeg" },
    body: new Uint8Array(jpeg),
  });
}

async function isReady(port: number): Promise<boolean> {
  const response = await fetch(`http://127.0.0.1:${port}/readyz`).catch(() => undefined);
  return response?.status === 200;
}

describe("in this process", () => {
  let server: RunningEmbedServer | undefined;

  async function start(env: Readonly<Record<string, string>> = {}): Promise<RunningEmbedServer> {
    server = await startLoading({
      MODEL_REPOSITORY: modelRepository,
      INTRA_OP_THREADS: "1",
      ...env,
    });
    return server;
  }
  afterEach(async () => {
    await server?.stop();
    server = undefined;
  });

  test("is live before the model is loaded and ready afterwards", async () => {
    const { port, loaded } = await start();
    const live = await fetch(`http://127.0.0.1:${port}/healthz`);
    expect(await live.json()).toEqual({ status: "ok" });
    await loaded;
    expect(await isReady(port)).toBe(true);
  });

  test("embeds images and reports its weights", async () => {
    const { port, loaded } = await start();
    await loaded;
    const { embeddings, model } = embedResponse.parse(await (await embed(port)).json());
    expect(embeddings).toHaveLength(1);
    expect(model).toBe("openclip-vit-b32");
  });

  describe("with a certificate", () => {
    const agents: Agent[] = [];
    afterEach(async () => {
      await Promise.all(agents.splice(0).map((agent) => agent.destroy()));
    });

    function embedSafely(port: number) {
      const dispatcher = new Agent({ connect: { ca: certificate.cert } });
      agents.push(dispatcher);
      return request(`https://localhost:${port}/embed`, {
        method: "POST",
        dispatcher,
        headers: { "content-type": "image/jpeg" },
        body: jpeg,
      });
    }

    test("serves only HTTPS", async () => {
      const { port, loaded } = await start(tlsEnv());
      await loaded;
      const { statusCode, body } = await embedSafely(port);
      expect(statusCode).toBe(200);
      expect(embedResponse.parse(await body.json()).embeddings).toHaveLength(1);
      await expect(fetch(`http://127.0.0.1:${port}/healthz`)).rejects.toThrow();
    });

    test("answers accepted requests when it stops", async () => {
      const { port, loaded } = await start(tlsEnv());
      await loaded;
      const answers = Array.from({ length: 8 }, () => embedSafely(port));
      await expect
        .poll(async () => {
          const dispatcher = new Agent({ connect: { ca: certificate.cert } });
          agents.push(dispatcher);
          const { body } = await request(`https://localhost:${port}/metrics`, { dispatcher });
          const text = await body.text();
          const value = (name: string) =>
            Number(new RegExp(`^${name} (\\d+)`, "m").exec(text)?.[1] ?? 0);
          return value(embedMetrics.pendingImages) + value(embedMetrics.images);
        })
        .toBe(8);
      const stopped = server!.stop();
      for (const answer of await Promise.all(answers)) {
        expect(answer.statusCode).toBe(200);
        await answer.body.dump();
      }
      await stopped;
      server = undefined;
    });

    test("reloads the certificate without a restart", async () => {
      const { port, reload, loaded } = await start(tlsEnv());
      const served = async () => {
        const socket = connectTls({ port, host: "127.0.0.1", rejectUnauthorized: false });
        await once(socket, "secureConnect");
        const { fingerprint256 } = socket.getPeerCertificate();
        socket.destroy();
        return fingerprint256;
      };
      const before = await served();
      const { cert, key } = testCertificate();
      await writeFile(tlsFile("cert.pem"), cert);
      await writeFile(tlsFile("key.pem"), key);
      // the server finds the new files by itself
      await expect.poll(served).not.toBe(before);
      const after = await served();
      await loaded;
      const metric = async (name: string) => {
        const dispatcher = new Agent({ connect: { ca: cert } });
        agents.push(dispatcher);
        const { body } = await request(`https://localhost:${port}/metrics`, { dispatcher });
        return Number(
          (await body.text())
            .split("\n")
            .find((line) => line.startsWith(name))
            ?.split(" ")[1],
        );
      };
      const expiry = Date.parse(new X509Certificate(cert).validTo) / 1000;
      expect(await metric(embedMetrics.certificateExpiry)).toBe(expiry);
      expect(await metric(`${embedMetrics.fileValid}{file="certificate"}`)).toBe(1);
      // a mismatched key changes nothing
      await writeFile(tlsFile("key.pem"), testCertificate().key);
      await reload();
      expect(await metric(`${embedMetrics.fileValid}{file="certificate"}`)).toBe(0);
      expect(await served()).toBe(after);
      await writeFile(tlsFile("cert.pem"), certificate.cert);
      await writeFile(tlsFile("key.pem"), certificate.key);
    });

    test.each([
      [
        "cert.pem",
        "none.pem",
        () => `TLS_KEY_FILE must be a readable file: '${tlsFile("none.pem")}' does not exist`,
      ],
      [
        "key.pem",
        "key.pem",
        () => `TLS_CERT_FILE must be a certificate in PEM, got '${tlsFile("key.pem")}'`,
      ],
      [
        "cert.der",
        "key.pem",
        () => `TLS_CERT_FILE must be a certificate in PEM, got '${tlsFile("cert.der")}'`,
      ],
      [
        "cert.pem",
        "cert.pem",
        () =>
          `TLS_KEY_FILE must be a private key in PEM without a password, got '${tlsFile("cert.pem")}'`,
      ],
      [
        "cert.pem",
        "other.pem",
        () =>
          `TLS_KEY_FILE must be the key of the first certificate in TLS_CERT_FILE, got '${tlsFile("other.pem")}'`,
      ],
    ])("fails on %s with the key %s", async (cert, key, message) => {
      const files = { TLS_CERT_FILE: tlsFile(cert), TLS_KEY_FILE: tlsFile(key) };
      await expect(start(files)).rejects.toThrow(message());
    });
  });

  test("fails if the model is missing", async () => {
    const { loaded } = await start({ MODEL_REPOSITORY: "none" });
    await expect(loaded).rejects.toThrow(
      "[model] none/openclip_vit_b32/1/model.onnx: no such file",
    );
  });
});

describe("as a process", () => {
  const main = fileURLToPath(new URL("../main.ts", import.meta.url));
  let child: ChildProcess | undefined;

  /** @param output - Standard output: received, or written to a file. */
  function start(
    env: Readonly<Record<string, string>>,
    args: readonly string[] = [],
    output: "pipe" | number = "pipe",
  ) {
    const started = spawn(process.execPath, ["--import", "tsx", main, ...args], {
      env: { ...process.env, HOST: "127.0.0.1", MODEL_REPOSITORY: modelRepository, ...env },
      stdio: ["ignore", output, "pipe"],
    });
    child = started;
    let [stdout, stderr] = ["", ""];
    started.stdout?.on("data", (data) => {
      stdout += String(data);
    });
    started.stderr!.on("data", (data) => {
      stderr += String(data);
    });
    const ended = once(started, "close").then(([code]) => ({ code, stdout, stderr }));
    return { child: started, ended };
  }
  const run = (env: Readonly<Record<string, string>>, ...args: string[]) => start(env, args);

  /** Starts a server and waits until it is ready. */
  async function startReady(env: Readonly<Record<string, string>>, output?: "pipe" | number) {
    const port = await closedPort();
    const running = start({ PORT: String(port), ...env }, [], output);
    await expect.poll(() => isReady(port), { timeout: 20_000 }).toBe(true);
    return { ...running, port };
  }
  afterEach(() => {
    child?.kill("SIGKILL");
  });

  test("answers a request that takes longer than Fastify's own limit of 10 s, and exits with 0", async () => {
    const images = createHttpServer((_request, response) => {
      setTimeout(() => response.end(jpeg), 12_000);
    });
    const { port: imagePort, stop } = await listen(images);
    const origin = `http://127.0.0.1:${imagePort}`;
    const {
      child: server,
      ended,
      port,
    } = await startReady({
      IMAGE_URL_HOSTS: origin,
      IMAGE_URL_TIMEOUT_MS: "30000",
    });
    const answer = fetch(`http://127.0.0.1:${port}/v1/embeddings`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ input: [{ image: `${origin}/a.jpg` }] }),
    });
    await once(images, "request");
    server.kill("SIGTERM");
    expect((await answer).status).toBe(200);
    expect(await ended).toMatchObject({ code: 0, stderr: "" });
    await stop();
  });

  test("warns about an expired certificate", async () => {
    const { cert, key } = selfSignedCertificate({ days: [-2, -1] });
    await writeFile(tlsFile("expired.pem"), cert);
    await writeFile(tlsFile("expired.key"), key);
    const { child: server, ended } = start({
      PORT: String(await closedPort()),
      TLS_CERT_FILE: tlsFile("expired.pem"),
      TLS_KEY_FILE: tlsFile("expired.key"),
    });
    server.stdout!.on("data", (line) => String(line).includes("listening") && server.kill());
    expect((await ended).stdout).toContain("the certificate of TLS_CERT_FILE expired at 20");
  });

  test("drains after SIGHUP if it has no certificate to reload", async () => {
    const { child: server, ended } = await startReady({});
    server.kill("SIGHUP");
    expect(await ended).toMatchObject({ code: 0, stderr: "" });
  });

  test.skipIf(!existsSync("/dev/full"))(
    "serves and stops while its log cannot be written to a full disk",
    async () => {
      const disk = openSync("/dev/full", "w");
      const { child: server, ended, port } = await startReady({}, disk);
      expect((await embed(port)).status).toBe(200);
      server.kill("SIGTERM");
      expect(await ended).toMatchObject({ code: 0, stderr: "" });
      closeSync(disk);
    },
  );

  test("serves and stops after the reader of its log is closed", async () => {
    const { child: server, ended, port } = await startReady({ LOG_LEVEL: "trace" });
    server.stdout!.destroy();
    expect((await embed(port)).status).toBe(200);
    server.kill("SIGTERM");
    expect(await ended).toMatchObject({ code: 0, stderr: "" });
  });

  test("answers accepted requests after SIGTERM and exits with 0", async () => {
    const port = await closedPort();
    const { child: server, ended } = run({ PORT: String(port) });
    await expect.poll(() => isReady(port), { timeout: 20_000 }).toBe(true);

    const images = Array.from({ length: 32 }, () => jpeg.toString("base64"));
    const requests = Array.from({ length: 6 }, () =>
      fetch(`http://127.0.0.1:${port}/embed/base64`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ images }),
      }),
    );
    await expect
      .poll(
        async () => {
          const text = await (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
          const value = (name: string) =>
            Number(new RegExp(`^${name} (\\d+)`, "m").exec(text)?.[1] ?? 0);
          return value(embedMetrics.pendingImages) + value(embedMetrics.images);
        },
        { timeout: 20_000, interval: 5 },
      )
      .toBe(6 * 32);
    server.kill("SIGTERM");

    const answers = await Promise.all(requests);
    expect(answers.map(({ status }) => status)).toEqual(Array(6).fill(200));
    for (const answer of answers) {
      expect(embedResponse.parse(await answer.json()).embeddings).toHaveLength(32);
    }
    const { code, stdout } = await ended;
    expect(code).toBe(0);
    expect(stdout).toMatch(/"sha256":"[0-9a-f]{64}".*"weights":"random"/);
  });

  test("ONNX Runtime writes no telemetry files", async () => {
    const folder = await mkdtemp(join(tmpdir(), "clipstack-home-"));
    const port = await closedPort();
    const { child: server, ended } = run({
      PORT: String(port),
      HOME: folder,
      TMPDIR: folder,
      XDG_CACHE_HOME: folder,
      CI: "", // with a value, the runtime is silent anyway
    });
    await expect.poll(() => isReady(port), { timeout: 20_000 }).toBe(true);
    server.kill("SIGTERM");
    await ended;
    const files = await readdir(folder);
    await rm(folder, { recursive: true });
    // by default it writes a device identifier and an event database
    const ownFiles = /^(tsx-.*|node-compile-cache|clipstack)$/;
    expect(files.filter((file) => !ownFiles.test(file))).toEqual([]);
  });

  test.each<[number, string, () => Promise<Readonly<Record<string, string>>>, string | RegExp]>([
    [
      2,
      "invalid settings, one line each",
      async () => ({ PORT: "x", LOG_LEVEL: "loud" }),
      "PORT must be a whole number, 1 to 65535, got 'x'\nLOG_LEVEL must be one of fatal, error, warn, info, debug, trace, silent, got 'loud'\n",
    ],
    [
      2,
      "a public address without a key",
      async () => ({ HOST: "0.0.0.0" }),
      "API_KEY or API_KEYS_FILE is required unless HOST is a loopback address (or set ALLOW_ANONYMOUS=true if the network restricts access), got HOST '0.0.0.0'\n",
    ],
    [
      2,
      "a certificate without its key",
      async () => ({ ...tlsEnv(), TLS_KEY_FILE: "none.pem" }),
      "TLS_KEY_FILE must be a readable file: 'none.pem' does not exist\n",
    ],
    [
      1,
      "a missing model",
      async () => ({ PORT: String(await closedPort()), MODEL_REPOSITORY: "none" }),
      "clipstack embed server: [model] none/openclip_vit_b32/1/model.onnx: no such file\n",
    ],
    [
      1,
      "CUDA that is unavailable",
      async () => ({ PORT: String(await closedPort()), EXECUTION_PROVIDER: "cuda" }),
      /^clipstack embed server: .* cannot be loaded with EXECUTION_PROVIDER cuda: .+\n$/,
    ],
  ])("exits with %i on %s", async (expected, _, env, message) => {
    const { code, stderr } = await run(await env()).ended;
    expect(code).toBe(expected);
    expect(stderr).toEqual(typeof message === "string" ? message : expect.stringMatching(message));
  });

  test("exits with 1 and one line if the port is in use", async () => {
    const { port, stop } = await listen();
    const { code, stderr } = await run({ PORT: String(port) }).ended;
    await stop();
    expect(code).toBe(1);
    expect(stderr).toBe(
      `clipstack embed server: port ${port} on 127.0.0.1 is in use: stop the program that uses it, or set PORT\n`,
    );
  });

  test("exits with 2 on an unknown argument", async () => {
    const { code, stderr } = await run({}, "serve").ended;
    expect(code).toBe(2);
    expect(stderr).toBe(
      "the first argument must be tritonserver, bulk, check-weights, fetch-weights, apply-config or deploy-version, got 'serve'\n",
    );
  });
});
