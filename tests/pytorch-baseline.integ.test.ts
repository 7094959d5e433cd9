import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Child, startChild } from "../artefact/child-process.ts";
import { freePorts } from "../artefact/free-ports.ts";
import { waitUntilReady } from "../artefact/simulation.ts";
import { parseBenchRecord } from "../bench/record/bench-record.ts";
import { parseRecord } from "../bench/record/record.ts";
import { localPytorch } from "../cli/model/pytorch-baseline.ts";
import { runProgram } from "../cli/shared/run-program.ts";
import { clipstack } from "../cli/test-programs.ts";
import { imageTowerOf } from "../contract/model-shapes.ts";
import { openclipVitB32 } from "../contract/models/openclip-vit-b32.ts";
import { imageTensor } from "../inference/preprocess/image-tensor.ts";
import { openLocalEmbedder } from "../inference/session/local-embedder.ts";
import { syntheticImages } from "../model-tools/check/compare-models.ts";
import { tinyModel } from "../model-tools/generate/test-model.ts";
import { exportedTower } from "../model-tools/graph/test-exported-tower.ts";
import { onnxChunks } from "../model-tools/onnx/writer.ts";
import { readSamples } from "../target/reference/reference.ts";
import { cosine } from "../target/stats/statistics.ts";

const { pytorch, noPytorch = "" } = await localPytorch({ onProgress: () => {} });
const skipped = noPytorch && ` (skipped: ${noPytorch})`;

const project = fileURLToPath(new URL("../", import.meta.url));
const imageTower = imageTowerOf(openclipVitB32);
const folder = mkdtempSync(join(tmpdir(), "clipstack-pytorch-baseline-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const env = {
  CLIPSTACK_ENVIRONMENTS_DIR: join(folder, "environments"),
  CDKTF_OUTDIR: join(folder, "cdktf.out"),
};

function writeEnvironment(): void {
  const file = join(env.CLIPSTACK_ENVIRONMENTS_DIR, "compare.yaml");
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(
    file,
    [
      "stack: single-gpu",
      "baseline: pytorch",
      "tritonOnnx: { server: emulator }",
      "tritonTrt: { enabled: false }",
    ].join("\n"),
  );
}

const report = ["--port-offset", "24000", "--report", folder, "--weights", "tiny", "--json"];
const run = (args: readonly string[], more: Readonly<Record<string, string>> = {}) =>
  clipstack(args, { ...env, ...more }, folder);

beforeAll(writeEnvironment);

describe.skipIf(pytorch === undefined)(`the PyTorch baseline${skipped}`, () => {
  test("passes the checks of an environment", { timeout: 240_000 }, async () => {
    const { stdout } = await run(["verify", "compare", "--seconds", "0.2", ...report]);
    const { checks, measurements } = parseRecord(stdout, "verify");
    expect(checks.filter(({ outcome }) => outcome !== "pass")).toEqual([]);
    const own = checks.filter(({ service }) => service === "pytorch").map(({ id }) => id);
    expect([...new Set(own)].sort()).toEqual(
      ["batches", "embedding", "endpoints", "load", "parity", "start", "wiring"].sort(),
    );
    expect(measurements.map(({ endpoint }) => endpoint)).toContain("pytorch-http");
  });

  test("is measured beside the embed server and ONNX on Triton", { timeout: 240_000 }, async () => {
    const load = ["--batch-sizes", "1,8", "--concurrency", "2", "--window", "0.3"];
    const backends = ["--backend", "embed,onnx-http,pytorch", "--duration", "2", "--rounds", "2"];
    const { stdout } = await run(["bench", "compare", ...backends, ...load, ...report]);
    const { failures, loadPoints, parity, subject } = parseBenchRecord(stdout, "bench");
    expect(failures).toEqual([]);
    expect(parity.map(({ endpoint, passed }) => [endpoint, passed])).toEqual([
      ["embed-http", true],
      ["onnx-http", true],
      ["pytorch-http", true],
    ]);
    expect(loadPoints.map(({ endpoint }) => endpoint)).toEqual(
      expect.arrayContaining(["embed-http", "onnx-http", "pytorch-http"]),
    );
    expect(loadPoints.every(({ imagesPerSecond }) => imagesPerSecond > 0)).toBe(true);
    expect(subject.servers).toContainEqual({
      service: "pytorch",
      name: "PyTorch baseline",
      version: expect.stringMatching(/^2\./),
    });
  });
});

describe.skipIf(pytorch === undefined)(`requests to the PyTorch baseline${skipped}`, () => {
  let child: Child;
  let url: string;
  let model: string;

  beforeAll(async () => {
    model = await tinyModel();
    ({ child, url } = await start(model));
  }, 120_000);
  afterAll(async () => {
    await child?.stop(5);
  });

  const images = readSamples();

  async function start(file: string) {
    const [port] = await freePorts(1);
    const started = startChild({
      command: pytorch!.command,
      args: [],
      env: {
        ...pytorch!.env,
        ...{ DEVICE: "cpu", MODEL_NAME: "openclip-vit-b32", MODEL_PATH: file },
        ...{ PORT: String(port), END_WITH_PARENT: "true" },
      },
    });
    const address = `http://127.0.0.1:${port}`;
    const outcome = await waitUntilReady(started, `${address}/readyz`, 100);
    return { child: started, url: address, outcome };
  }

  const post = (path: string, body: RequestInit["body"], type?: string) =>
    fetch(`${url}${path}`, {
      method: "POST",
      body,
      headers: type === undefined ? {} : { "content-type": type },
    });

  test("return the embeddings of ONNX Runtime within 0.1 %", async () => {
    const embedder = await openLocalEmbedder({ spec: openclipVitB32, modelPath: model });
    try {
      const expected = await embedder.embed(images.map(({ bytes }) => bytes));
      const form = new FormData();
      for (const { bytes, contentType, name } of images) {
        form.append("images", new Blob([Buffer.from(bytes)], { type: contentType }), name);
      }
      const { embeddings } = (await (await post("/embed", form)).json()) as {
        embeddings: number[][];
      };
      expect(embeddings).toHaveLength(images.length);
      for (const [index, embedding] of embeddings.entries()) {
        expect(cosine(Float32Array.from(embedding), expected[index]!)).toBeGreaterThan(0.999_999);
      }
    } finally {
      await embedder.close();
    }
  });

  test.each(["torchscript", "dynamo"])(
    "load the file that PyTorch's exporter %s writes",
    async (exporter) => {
      const file = join(folder, `${exporter}.onnx`);
      const inputs = join(folder, "inputs");
      const { data } = imageTensor(syntheticImages(2, imageTower.input.size), imageTower);
      writeFileSync(inputs, data as Float32Array);
      writeFileSync(join(folder, "spec.json"), JSON.stringify(openclipVitB32));
      const { exitCode, stderr } = await runProgram(
        pytorch!.command[0]!,
        [
          ...[join(project, "model-tools/python/export/export.py"), "--random-weights"],
          ...["--profile", "tiny", "--exporter", exporter, "--architecture", "ViT-B-32"],
          ...["--spec", join(folder, "spec.json"), "--inputs", inputs, "--output", file],
        ],
        { timeoutMs: 170_000 },
      );
      expect({ exitCode, stderr }).toMatchObject({ exitCode: 0 });
      const other = await start(file);
      expect(other.outcome).toMatchObject({ ok: true });
      const [image] = images;
      const response = await fetch(`${other.url}/embed`, {
        method: "POST",
        body: Buffer.from(image!.bytes),
        headers: { "content-type": image!.contentType, accept: "application/octet-stream" },
      });
      const embedding = new Float32Array(await response.arrayBuffer());
      await other.child.stop(5);
      const embedder = await openLocalEmbedder({ spec: openclipVitB32, modelPath: file });
      const [expected] = await embedder.embed([image!.bytes]);
      await embedder.close();
      expect(cosine(embedding, expected!)).toBeGreaterThan(0.999_999);
    },
    240_000,
  );

  test("with an unreadable image, no image or another model are rejected", async () => {
    expect((await post("/embed", "not an image", "image/jpeg")).status).toBe(422);
    expect((await post("/embed", new FormData())).status).toBe(400);
    const base64 = (body: object) =>
      post("/embed/base64", JSON.stringify(body), "application/json");
    expect((await base64({ images: ["*"] })).status).toBe(400);
    const image = Buffer.from(images[0]!.bytes).toString("base64");
    expect((await base64({ images: [image], model: "other" })).status).toBe(404);
    expect((await base64({ images: [image] })).status).toBe(200);
  });

  test("a stop completes the accepted ones and exits with code 0", async () => {
    const second = await start(model);
    const requests = Array.from({ length: 6 }, () =>
      fetch(`${second.url}/embed`, {
        method: "POST",
        body: Buffer.from(images[0]!.bytes),
        headers: { "content-type": images[0]!.contentType },
      }).then(({ status }) => status),
    );
    await Promise.race(requests);
    const exit = await second.child.stop(30);
    expect(exit).toMatchObject({ code: 0, signal: null });
    expect(new Set(await Promise.all(requests))).toEqual(new Set([200]));
  }, 120_000);

  test("a file with other weights than those of OpenCLIP is rejected in one line", async () => {
    const file = join(folder, "other.onnx");
    // the style of an exporter that splits query, key and value
    writeFileSync(file, Buffer.concat([...onnxChunks(exportedTower({ unitLength: true }))]));
    const { outcome } = await start(file);
    expect(outcome).toMatchObject({ ok: false });
    expect(outcome).toHaveProperty("message", expect.stringContaining("NotOpenClip"));
  }, 120_000);
});

describe("without PyTorch", () => {
  const none = { CLIPSTACK_PYTHON_TORCH: join(folder, "no-python") };

  test("verify skips the baseline and checks the other services", {
    timeout: 240_000,
  }, async () => {
    const { code, stdout } = await run(["verify", "compare", "--seconds", "0.2", ...report], none);
    const { checks, environments } = parseRecord(stdout, "verify");
    expect(code).toBe(0);
    const skips = checks.filter(({ outcome }) => outcome === "skip");
    expect(new Set(skips.map(({ service }) => service))).toEqual(new Set(["pytorch"]));
    expect(environments[0]?.notes.join()).toContain(
      `compare-pytorch is not run: CLIPSTACK_PYTHON_TORCH: '${none.CLIPSTACK_PYTHON_TORCH}' is not a Python`,
    );
  });

  test("bench of the baseline by name fails in one line", async () => {
    const { code, stderr } = await run(
      ["bench", "compare", "--backend", "pytorch-http", ...report],
      none,
    );
    expect(code).toBe(2);
    expect(stderr.split("\n").at(-1)).toContain(
      "pytorch-http cannot be measured: CLIPSTACK_PYTHON_TORCH",
    );
  });
});

test("the locked packages of the web server have the versions of those of PyTorch's lock file", () => {
  const read = (path: string) =>
    readFileSync(new URL(`../${path}`, import.meta.url), "utf8").matchAll(/^([\w-]+)==(\S+)/gm);
  const exported = new Map(
    [...read("model-tools/python/export/requirements.txt")].map(([, name, version]) => [
      name,
      version,
    ]),
  );
  for (const [, name, version] of read("bench/baselines/pytorch/requirements.txt")) {
    if (exported.has(name)) expect([name, version]).toEqual([name, exported.get(name)]);
  }
});
