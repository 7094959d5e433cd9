import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { freePorts } from "../artefact/free-ports.ts";
import { parseBenchRecord } from "../bench/record/bench-record.ts";
import { parseRecord } from "../bench/record/record.ts";
import { clipstack, startClipstack } from "../cli/test-programs.ts";

/**
 * A model that no code knows, with a layout, channel order, resize and batch size that no model of the catalogue has: one YAML file
 * describes it.
 */
const spec = `
towers:
  image:
    input:
      tensor: pixel_values
      size: { width: 96, height: 64 }
      resize: { mode: letterbox, fill: [104, 117, 123] }
      filter: bilinear
      valueRange: 0..255
      mean: [104, 117, 123]
      std: [57, 57, 58]
      channelOrder: bgr
      layout: nhwc
    output: features
    millionParameters: 1
    gigaMacsPerItem: 0.1
embedding: { width: 100, normalisedBy: server }
batching: { maximum: 6, preferred: [2, 6] }
licence: { weights: Apache-2.0 }
weights: { name: shop-photos-v1 }
`;

const folder = mkdtempSync(join(tmpdir(), "clipstack-own-model-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const repository = join(folder, "model_repository");
const file = join(repository, "shop_photos/1/model.onnx");
const env = {
  CLIPSTACK_ENVIRONMENTS_DIR: join(folder, "environments"),
  CDKTF_OUTDIR: join(folder, "cdktf.out"),
};
const run = (...args: readonly string[]) => clipstack(args, env, folder);

beforeAll(async () => {
  for (const [path, text] of [
    ["models/shop-photos.yaml", spec],
    [
      "shop.yaml",
      `stack: single-gpu\naccelerator: cpu\nmodelRepository: ${repository}\nmodels: [shop-photos]\n`,
    ],
  ] as const) {
    const target = join(env.CLIPSTACK_ENVIRONMENTS_DIR, path);
    mkdirSync(dirname(target), { recursive: true });
    writeFileSync(target, text);
  }
  const { code, stderr } = await run(
    ...["model", "generate", "shop-photos", "--profile", "tiny", "--output", file],
  );
  expect({ code, stderr }).toMatchObject({ code: 0 });
});

test("its file fits its spec", async () => {
  const { code, stdout } = await run("model", "check", "shop-photos", "--weights", file);
  expect(stdout).toContain("input  pixel_values FP32 [batch, 64, 96, 3]");
  expect(code).toBe(0);
});

test("verify and bench pass on every endpoint", { timeout: 240_000 }, async () => {
  const report = ["--port-offset", "23000", "--report", folder, "--json"];
  const verified = await run("verify", "shop", "--seconds", "0.2", ...report);
  const { checks, measurements } = parseRecord(verified.stdout, "verify");
  expect(checks.filter(({ outcome }) => outcome === "fail")).toEqual([]);
  expect(measurements.map(({ endpoint }) => endpoint).sort()).toEqual([
    ...["embed-http", "onnx-grpc", "onnx-http", "trt-grpc", "trt-http"],
  ]);

  const load = ["--batch-sizes", "6", "--concurrency", "1", "--rounds", "1", "--window", "0.3"];
  const backends = ["--backend", "embed-http,onnx-grpc,onnx-http_jpeg,onnx-http_uint8"];
  const measured = await run("bench", "shop", "--no-synth", ...backends, ...load, ...report);
  const { failures, loadPoints } = parseBenchRecord(measured.stdout, "bench");
  expect(failures).toEqual([]);
  expect(loadPoints).toHaveLength(4);
});

test("serve embeds photos with it", { timeout: 60_000 }, async () => {
  const [port] = await freePorts(1);
  const args = ["serve", "--model", `shop-photos=${file}`, "--http-port", String(port)];
  const server = startClipstack(args, env);
  try {
    const url = `http://127.0.0.1:${port}`;
    await expect
      .poll(
        () =>
          fetch(`${url}/readyz`).then(
            ({ ok }) => ok,
            () => false,
          ),
        { timeout: 30_000 },
      )
      .toBe(true);
    const body = readFileSync(new URL("../model-tools/samples/sunset.jpg", import.meta.url));
    const headers = { "content-type": "image/jpeg" };
    const response = await fetch(`${url}/embed`, { method: "POST", headers, body });
    const { model, embeddings } = (await response.json()) as {
      readonly model: string;
      readonly embeddings: readonly (readonly number[])[];
    };
    expect(model).toBe("shop-photos");
    expect(embeddings[0]).toHaveLength(100);
  } finally {
    server.child.kill("SIGTERM");
    await server.done;
  }
});
