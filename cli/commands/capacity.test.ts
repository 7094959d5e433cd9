import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { synthesizedText } from "../../review/test-stacks.ts";
import { parseEnvironment } from "../../stacks/settings/settings.ts";
import { clipstack } from "../test-programs.ts";
import { synthesized } from "../test-synthesized.ts";

const folder = mkdtempSync(join(tmpdir(), "clipstack-capacity-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const run = async (...args: readonly string[]) => {
  const { code, ...output } = await clipstack(["capacity", ...args]);
  return { exitCode: code, ...output };
};

test("predicts the throughput, cost and bottleneck of a GPU, payload format and link", async () => {
  const { exitCode, stdout } = await run(
    ...["--gpu", "rtx-4080", "--gpus", "4", "--topology", "per-gpu", "--payload", "fp32"],
    ...["--bandwidth", "100Mbps", "--round-trip", "60ms", "--concurrency", "32"],
  );
  expect(exitCode).toBe(0);
  // 100 Mbit/s carry 20.8 tensors of 602 112 bytes per second, whatever the GPUs do
  expect(stdout).toMatch(/images\/s {8}20\.8/);
  expect(stdout).toMatch(/\$\/1,000 images {2}0\.11 \(P10-P90 0\.11-0\.20\) {2}\(\$8\.00 per hour/);
  expect(stdout).toMatch(/bottleneck {6}link bandwidth/);
  expect(stdout).toMatch(/send JPEG/);
  expect(stdout).toContain("accuracy");
});

test("prints the prediction as JSON and writes it to a file", async () => {
  const file = join(folder, "answer.json");
  const { stdout } = await run("--gpu", "t4", "--payload", "uint8", "--json", "--output", file);
  expect(readFileSync(file, "utf8").trim()).toBe(stdout.trim());
  expect(JSON.parse(stdout)).toMatchObject({
    schema: 1,
    scenario: { device: { name: "t4" }, payload: "uint8" },
    prediction: { imagesPerSecond: expect.any(Number), bottleneck: expect.any(String) },
  });
});

test("predicts a model of the catalogue, and names the source of its times", async () => {
  const load = ["--gpu", "l4", "--payload", "uint8", "--bandwidth", "10Gbps", "--json"];
  const base = await run(...load);
  const large = await run(...load, "--model", "openclip-vit-l14");
  const rate = ({ stdout }: { stdout: string }) =>
    JSON.parse(stdout).prediction.gpusAloneImagesPerSecond;
  expect(rate(base) / rate(large)).toBeGreaterThan(10);
  expect(JSON.parse(large.stdout).trust.notes[0]).toMatch(
    /^No figure of openclip-vit-l14 is published: its arithmetic follows from the peak of l4/,
  );
  const { exitCode, stderr } = await run("--gpu", "l4", "--model", "clip");
  expect([exitCode, stderr.trim()]).toEqual([
    2,
    expect.stringMatching(/^clipstack: model must be one of openclip-vit-b32, .*, got 'clip'$/),
  ]);
});

test("finds the cheapest plan of a job, and exits with 1 if none meets the deadline", async () => {
  const job = ["--images", "1000000", "--within", "6h", "--round-trip", "35ms"];
  const found = await run(...job, "--bandwidth", "200Mbps", "--json");
  expect(found.exitCode).toBe(0);
  expect(JSON.parse(found.stdout).options[0]).toMatchObject({ meetsDeadline: true });
  const none = await run(...job, "--bandwidth", "200Mbps", "--payload", "fp32");
  expect(none.exitCode).toBe(1);
  expect(none.stdout).toMatch(/none of \d+ plans meets the deadline/);
  expect(none.stdout).toMatch(/fp32 +223/);
});

test.each([
  ["l4", "1", "tensorrt", { stack: "single-gpu", embed: { upstream: "triton-trt" } }],
  ["t4", "4", "onnxruntime", { stack: "multi-gpu", topology: "instance-group" }],
] as const)(
  "--write writes the plan of %s GPUs as an environment",
  async (gpu, gpus, backend, settings) => {
    const file = join(folder, `plan-${gpu}.yaml`);
    const plan = ["--gpu", gpu, "--gpus", gpus, "--backend", backend, "--model", "dinov2-small"];
    const written = await run(...plan, "--write", file);
    expect(written).toMatchObject({ exitCode: 0, stderr: "" });
    const text = readFileSync(file, "utf8");
    const { stack, settings: parsed } = parseEnvironment("plan", file, text);
    const [model] = parsed.models;
    const used = backend === "tensorrt" ? "tritonTrt" : "tritonOnnx";
    expect({ stack, ...parsed }).toMatchObject({
      ...settings,
      host: { gpu, count: Number(gpus) },
      tritonTrt: { enabled: used === "tritonTrt" },
      tritonOnnx: { enabled: used === "tritonOnnx" },
    });
    expect(model?.name).toBe("dinov2-small");
    const again = await run(...plan, "--write", file);
    expect([again.exitCode, again.stderr]).toEqual([2, `clipstack: --write ${file} exists`]);
    expect(readFileSync(file, "utf8")).toBe(text);
  },
);

test.each([
  [["--write", "x.yml"], "--write must end in .yaml, got 'x.yml'"],
  [["--write", "X.yaml"], "--write: name must be lower-case letters"],
  [["--write", "x.yaml", "--payload", "uint8"], "--write requires --payload jpeg, fp32 or json"],
  [["--write", "x.yaml", "--gpus", "64"], "host.count must be 1 to 16, got 64"],
])("%j is rejected in one line, and nothing is written", async (args, message) => {
  const { exitCode, stderr } = await run("--gpu", "l4", ...args);
  expect(exitCode).toBe(2);
  expect(stderr).toContain(message);
});

test("decoding and ingest scale with the cores of the host", async () => {
  const rate = async (...cores: readonly string[]) => {
    const load = ["--gpu", "a100-sxm4-80gb", "--bandwidth", "100Gbps", "--concurrency", "512"];
    const { stdout } = await run(...load, ...cores, "--json");
    return JSON.parse(stdout).prediction.limitImagesPerSecond;
  };
  expect(await rate()).toBe(await rate("--cores", "8"));
  // with more, the GPU is the limit
  expect((await rate("--cores", "4")) / (await rate("--cores", "2"))).toBeCloseTo(2, 2);
});

test("a job lists the formats that the stacks serve, and the transfer of its source", async () => {
  const job = ["--images", "2000000", "--within", "6h", "--jpeg-kb", "300"];
  const plan = async (...args: string[]) =>
    JSON.parse((await run(...job, ...args, "--json")).stdout);
  const { options, transfer } = await plan();
  const formats = options.map(
    (option: { scenario: { payload: string } }) => option.scenario.payload,
  );
  expect([...new Set(formats)].sort()).toEqual(["fp32", "jpeg"]);
  expect(transfer).toEqual({ gigabytes: 600, usdPerGb: 0.09, usd: 54 });
  expect((await plan("--egress-price", "0")).transfer.usd).toBe(0);
});

describe("with an environment", () => {
  const environment = async (yaml: string, ...args: readonly string[]) => {
    const { outdir } = synthesized(JSON.parse(synthesizedText("single-gpu", yaml)));
    const { code, ...output } = await clipstack(["capacity", "single-gpu", ...args], {
      CDKTF_OUTDIR: outdir,
    });
    rmSync(outdir, { recursive: true });
    return { exitCode: code, ...output };
  };

  test("its formats and their backends are those of its services", async () => {
    const own = await environment("");
    // the embed server runs ONNX Runtime itself, beside a Triton server with TensorRT
    expect(own.stdout).toMatch(/^rtx-4080, ONNX Runtime: a JPEG/);
    expect(own.stdout).not.toContain("tensor ingest");
    expect((await environment("", "--payload", "fp32", "--connections", "kept")).stdout).toMatch(
      /^rtx-4080, TensorRT/,
    );
    const other = await environment("", "--payload", "uint8");
    expect([other.exitCode, other.stderr]).toEqual([
      2,
      "clipstack: --payload must be one of jpeg, fp32, json, which the environment serves, got 'uint8'",
    ]);
    const tensors = await environment(
      "embed: { enabled: false }",
      "--images",
      "9",
      "--within",
      "1h",
    );
    expect(tensors.stdout).not.toContain("jpeg");
  });

  test("its price is not that of another GPU", async () => {
    const { stdout } = await environment("", "--gpu", "a100-sxm4-80gb");
    expect(stdout).toContain("($1.50 per hour, price of 2026-11)");
  });

  test("its declared GPU is predicted with its peak and price", async () => {
    const declared = "name: Card, memory: 24564, architecture: 8.9, price: 0.5, fp16Tflops: 330.3";
    const card = await environment(`host: { gpu: { ${declared} } }`, "--payload", "fp32");
    expect(card.stdout).toContain("($0.500 per hour, from --price or the settings)");
    expect(card.stdout).toContain("No figure for Card with TensorRT");
    const known = await run("--gpu", "rtx-4090", "--payload", "fp32");
    const alone = ({ stdout }: { stdout: string }) => /GPUs alone +([\d,]+)/.exec(stdout)?.[1];
    expect(alone(card)).toBe(alone(known));
  });
});

test("accepts a round trip of 0 ms", async () => {
  const { exitCode, stdout } = await run("--gpu", "t4", "--round-trip", "0ms", "--json");
  expect(exitCode).toBe(0);
  const { scenario, prediction } = JSON.parse(stdout);
  expect(scenario.roundTripMs).toBe(0);
  expect(prediction.imagesPerSecond).toBeGreaterThan(0);
});

const wrong: readonly (readonly [readonly string[], string])[] = [
  [[], "clipstack: an environment or --gpu is required"],
  [["--gpu", "t4", "--images", "5"], "clipstack: a job requires both --images and --within"],
  [["--gpu", "t4", "--bandwidth", "100"], "must be a number above 0 with its unit, like 100Mbps"],
  [
    ["--gpu", "t4", "--bandwidth", "200MB"],
    "Its unit must be kbps, kbit/s, Mbps, Mbit/s, Gbps, Gbit/s (bits, not bytes), got MB.",
  ],
  [["--gpu", "t4", "--round-trip", "-1ms"], "must be a number 0 or more with its unit, like 60ms"],
  [
    ["--images", "5", "--within", "1h", "--price", "1"],
    "--price is that of one GPU model: set --gpu",
  ],
  [["--gpu", "t4", "--egress-price", "-1"], "a number from 0 to 1000000000000"],
  [["--gpu", "a10g"], "Allowed choices are t4, l4"],
];

test.each(wrong)("fails with one line on %j", async (args, message) => {
  const { exitCode, stdout, stderr } = await run(...args);
  expect({ exitCode, stdout }).toEqual({ exitCode: 2, stdout: "" });
  expect(stderr).toContain(message);
  expect(stderr).not.toMatch(/\n\s+at /);
});
