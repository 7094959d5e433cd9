import { type ChildProcess, execFile, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { request as plainRequest } from "node:http";
import { connect } from "node:http2";
import { request } from "node:https";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { freePorts } from "../artefact/free-ports.ts";
import { parseBenchRecord } from "../bench/record/bench-record.ts";
import { startClipstack } from "../cli/test-programs.ts";
import { pythonWithTritonClient } from "../client/triton/test-python.ts";
import { renderCaddyfile } from "../constructs/docker/caddyfile.ts";
import { defaultModel } from "../contract/models/index.ts";
import { tritonModelName } from "../contract/triton-models.ts";
import { type TestRepository, testRepository } from "../emulator/test-repository.ts";
import { type RunningTritonEmulator, startTritonEmulator } from "../emulator/triton-emulator.ts";
import { picture } from "../inference/preprocess/test-images.ts";
import { type ServerProcess, startEmbed } from "../lab/trials/server-process.ts";

/** Caddy with the rendered configuration, in front of an embed server and a Triton emulator; its own authority signs the certificate. */

const run = promisify(execFile);
const root = fileURLToPath(new URL("../", import.meta.url));
const python = await pythonWithTritonClient();
const apiKey = "a-key-for-the-clients-of-the-proxy";
const model = tritonModelName(defaultModel, "fp32");
const missing = (() => {
  try {
    execFileSync("caddy", ["version"], { stdio: "ignore" });
    return "";
  } catch {
    return "caddy is not installed";
  }
})();

describe.skipIf(missing !== "")(
  `the proxy${missing === "" ? "" : ` (skipped: ${missing})`}`,
  () => {
    let folder: string;
    let repository: TestRepository;
    let triton: RunningTritonEmulator;
    let embed: ServerProcess;
    let caddy: ChildProcess;
    let ports: Readonly<Record<"redirect" | "embed" | "health" | "http" | "grpc", number>>;
    let ca: Buffer;
    const caFile = () => join(folder, "data/pki/authorities/local/root.crt");

    beforeAll(async () => {
      folder = await mkdtemp(join(tmpdir(), "clipstack-proxy-"));
      repository = await testRepository();
      triton = await startTritonEmulator(repository.flags(), { log: () => {} });
      embed = await startEmbed({ env: { API_KEY: apiKey } });
      const [redirect = 0, https = 0, health = 0, http = 0] = await freePorts(4);
      // the client's default is the next port
      const grpc = http + 1;
      ports = { redirect, embed: https, health, http, grpc };
      const local = (port: number | undefined) => `127.0.0.1:${port}`;
      const config = join(folder, "Caddyfile");
      await writeFile(
        config,
        renderCaddyfile({
          domain: "localhost",
          email: "ops@example.com",
          routes: [
            { port: https, upstream: local(embed.ports[0]), protocol: "http" },
            { port: http, upstream: local(triton.ports.http), protocol: "http" },
            { port: grpc, upstream: local(triton.ports.grpc), protocol: "grpc" },
          ],
          httpPort: redirect,
          httpsPort: https,
          healthPort: health,
          storage: join(folder, "data"),
          issuer: "internal",
          bind: "127.0.0.1",
        }),
      );
      caddy = spawn("caddy", ["run", "--config", config, "--adapter", "caddyfile"], {
        stdio: "ignore",
        env: { PATH: process.env.PATH, HOME: folder, XDG_CONFIG_HOME: folder },
      });
      ca = await vi.waitFor(() => readFile(caFile()), { timeout: 60_000, interval: 100 });
      await vi.waitFor(() => send("GET", ports.health, "/"), { timeout: 60_000, interval: 100 });
    });
    afterAll(async () => {
      if (caddy?.exitCode === null) {
        caddy.kill();
        await once(caddy, "exit");
      }
      await embed?.stop();
      await triton?.stop();
      await repository?.remove();
      if (folder !== undefined) await rm(folder, { recursive: true, force: true });
    });

    /** Sends a request over HTTP/1.1 with a verified certificate. */
    const send = async (
      method: string,
      port: number,
      path: string,
      { body, headers = {} }: { body?: Buffer; headers?: Record<string, string> } = {},
    ) => {
      const sent = request({ host: "localhost", port, path, method, headers, ca });
      sent.end(body);
      const [response] = await once(sent, "response");
      return { status: response.statusCode as number, body: await text(response) };
    };

    test("serves HTTP/2 with a verified certificate", async () => {
      const session = connect(`https://localhost:${ports.embed}`, { ca });
      const stream = session.request({ ":path": "/healthz" });
      const [headers] = await once(stream, "response");
      stream.resume();
      session.close();
      expect(session.alpnProtocol).toBe("h2");
      expect(headers[":status"]).toBe(200);
      // no other protocol is advertised, because only TCP ports are published
      expect(headers["alt-svc"]).toBeUndefined();
    });

    test("redirects HTTP to HTTPS at the standard port", async () => {
      const sent = plainRequest({ host: "localhost", port: ports.redirect, path: "/embed" });
      sent.end();
      const [response] = await once(sent, "response");
      response.resume();
      expect(response.statusCode).toBe(308);
      expect(response.headers.location).toBe("https://localhost/embed");
    });

    test("a certificate of an unknown authority is rejected", async () => {
      const sent = request({ host: "localhost", port: ports.embed, path: "/healthz" });
      sent.end();
      await expect(once(sent, "response")).rejects.toThrow(/certificate/);
    });

    test("the embed server requires a key", async () => {
      const headers = { "content-type": "image/jpeg" };
      const body = await picture();
      expect((await send("POST", ports.embed, "/embed", { body, headers })).status).toBe(401);
      const authorised = { ...headers, authorization: `Bearer ${apiKey}` };
      const answer = await send("POST", ports.embed, "/embed", { body, headers: authorised });
      expect(answer.status).toBe(200);
      expect(JSON.parse(answer.body).embeddings[0]).toHaveLength(defaultModel.embedding.width);
    });

    test.each([
      ["embed", () => ({ serviceUrl: `https://localhost:${ports.embed}`, apiKey })],
      ["triton", () => ({ serviceUrl: `https://localhost:${ports.http}` })],
      ["triton_grpc", () => ({ serviceUrl: `https://localhost:${ports.http}` })],
      ["triton_grpc", () => ({ tritonGrpcUrl: `https://localhost:${ports.grpc}` })],
    ])("the client embeds with the backend %s", async (backend, options) => {
      const program = `
      import { openInferenceClient } from "./client/index.ts";
      const chunks = [];
      for await (const chunk of process.stdin) chunks.push(chunk);
      const client = await openInferenceClient(JSON.parse(process.argv[1]));
      const [embedding] = await client.embed([Buffer.concat(chunks)]);
      console.log(embedding.length);
      await client.close();`;
      const settings = JSON.stringify({ backend, mode: "remote", ...options() });
      const child = run(
        process.execPath,
        ["--import", "tsx", "--input-type=module", "-e", program, settings],
        { cwd: root, env: { ...process.env, NODE_EXTRA_CA_CERTS: caFile() } },
      );
      child.child.stdin?.end(await picture());
      expect(Number((await child).stdout)).toBe(defaultModel.embedding.width);
    });

    test("bench measures both protocols with TLS, with the authority of --ca", async () => {
      const output = join(folder, "bench.json");
      const command = startClipstack(
        [
          ...["bench", "--weights", "tiny", "--ca", caFile(), "--backend", "embed-http,onnx-grpc"],
          ...["--url", `embed-http=https://localhost:${ports.embed}`],
          ...["--url", `onnx-grpc=https://localhost:${ports.grpc}`],
          ...["--batch-sizes", "1", "--concurrency", "2", "--rounds", "1", "--windows", "1"],
          ...["--window", "0.5", "--warmup", "0.1", "--output", output, "--report", folder],
        ],
        { INFERENCE_API_KEY: apiKey },
      );
      const { code, stderr } = await command.done;
      expect([code, stderr.match(/✘.*/g)]).toEqual([0, null]);
      const { loadPoints } = parseBenchRecord(await readFile(output, "utf8"), output);
      expect(loadPoints.map(({ id }) => id)).toEqual(["embed-http b1 c2", "onnx-grpc b1 c2"]);
      for (const { errors, samples } of loadPoints)
        expect([samples > 0, errors]).toEqual([true, {}]);
    });

    test.skipIf(python.missing !== "")(
      `tritonclient infers with TLS${python.missing === "" ? "" : ` (skipped: ${python.missing})`}`,
      async () => {
        const program = `
import sys, numpy as np
import tritonclient.grpc as grpc, tritonclient.http as http
http_url, grpc_url, ca, model = sys.argv[1:]
image = np.zeros((1, 3, 224, 224), dtype=np.float32)
for module, client in (
    (http, http.InferenceServerClient(http_url, ssl=True, ssl_options={"ca_certs": ca})),
    (grpc, grpc.InferenceServerClient(grpc_url, ssl=True, root_certificates=ca)),
):
    tensor = module.InferInput("image", list(image.shape), "FP32")
    tensor.set_data_from_numpy(image)
    print(client.infer(model, [tensor]).as_numpy("embedding").shape[1])
    client.close()`;
        const { stdout } = await run(python.path, [
          "-c",
          program,
          `localhost:${ports.http}`,
          `localhost:${ports.grpc}`,
          caFile(),
          model,
        ]);
        const { width } = defaultModel.embedding;
        expect(stdout.trim().split("\n").map(Number)).toEqual([width, width]);
      },
    );
  },
);
