import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { testBenchRecord, testSimulationRecord } from "../../bench/report/test-bench-record.ts";
import { clipstack } from "../test-programs.ts";

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

test("predicts each published setting by a model without it", async () => {
  const { exitCode, stdout } = await run("--cross-validate", "--json");
  expect(exitCode).toBe(0);
  const { rows, profile } = JSON.parse(stdout);
  expect(rows.length).toBeGreaterThan(40);
  expect(profile.length).toBeGreaterThan(5);
});

test("compares the model with every published figure", async () => {
  const { exitCode, stdout } = await run("--check");
  expect(exitCode).toBe(0);
  expect(stdout).toMatch(/Of \d+ predicted figures, \d+ are within 10 %/);
  expect(stdout).toContain("unexplained (error above 25 %)");
});

test("calibrates with a record and prints the error of each load point", async () => {
  const file = join(folder, "record.json");
  writeFileSync(file, JSON.stringify(testBenchRecord()));
  const checked = await run("--record", file, "--check");
  expect(checked.stdout).toMatch(/onnx-http b1 c16 .* predicted/);
  const error = /Median error over \d+ predicted load points: [\d.]+ % of images\/s/;
  expect(checked.stdout).toMatch(error);
  const result = await run("--record", file, "--payload", "jpeg", "--concurrency", "4");
  expect(result.stdout).toContain(`Calibrated with ${file}`);
  expect(result.stdout).toContain("random weights");
  expect(result.stdout).toMatch(error);
});

test("uses the backend of the record and rejects one that it lacks", async () => {
  const file = join(folder, "onnx.json");
  const all = testBenchRecord();
  writeFileSync(
    file,
    JSON.stringify({
      ...all,
      loadPoints: all.loadPoints.filter(({ endpoint }) => endpoint.startsWith("onnx-")),
    }),
  );
  const result = await run("--record", file, "--payload", "fp32", "--concurrency", "4");
  expect(result.stdout).toMatch(/^NVIDIA A10, ONNX Runtime: float32/);
  const lacked = await run("--record", file, "--payload", "fp32", "--backend", "tensorrt");
  expect(lacked).toMatchObject({ exitCode: 2, stdout: "" });
  expect(lacked.stderr).toContain(
    `${file} has no load point with one client of TensorRT for --payload fp32, only of onnx-http`,
  );
});

test("a record of a CPU has one device and no price", async () => {
  const file = join(folder, "cpu.json");
  writeFileSync(file, JSON.stringify(testSimulationRecord()));
  const job = await run("--record", file, "--images", "1000", "--within", "24h");
  expect(job.exitCode).toBe(0);
  expect(job.stdout).toContain("without prices, the one with the fewest GPUs");
  expect(job.stdout).not.toMatch(/\d × Test CPU|Costs are/);
  const several = await run("--record", file, "--gpus", "4");
  expect(several).toMatchObject({ exitCode: 2, stdout: "" });
  expect(several.stderr).toContain("was measured on a CPU (Test CPU) and cannot predict 4 GPUs");
});

test("fails if a record has several environments and none is selected", async () => {
  const file = join(folder, "several.json");
  const all = testBenchRecord();
  const others = all.loadPoints.map((point) => ({
    ...point,
    environment: "other",
    id: `${point.id} 2`,
  }));
  writeFileSync(file, JSON.stringify({ ...all, loadPoints: [...all.loadPoints, ...others] }));
  const failed = await run("--record", file);
  expect(failed).toMatchObject({ exitCode: 2, stdout: "" });
  expect(failed.stderr).toContain(
    "several environments, single-gpu, other: select one with --environment",
  );
  const named = await run("--record", file, "--environment", "single-gpu");
  expect(named.exitCode).toBe(0);
});

test("accepts a round trip of 0 ms", async () => {
  const { exitCode, stdout } = await run("--gpu", "t4", "--round-trip", "0ms", "--json");
  expect(exitCode).toBe(0);
  const { scenario, prediction } = JSON.parse(stdout);
  expect(scenario.roundTripMs).toBe(0);
  expect(prediction.imagesPerSecond).toBeGreaterThan(0);
});

const wrong: readonly (readonly [readonly string[], string])[] = [
  [[], "clipstack: an environment, --gpu or --record is required"],
  [["--gpu", "t4", "--images", "5"], "clipstack: a job requires both --images and --within"],
  [["--gpu", "t4", "--bandwidth", "100"], "must be a number above 0 with its unit, like 100Mbps"],
  [["--gpu", "t4", "--round-trip", "-1ms"], "must be a number 0 or more with its unit, like 60ms"],
  [["--gpu", "a10g"], "Allowed choices are t4, l4"],
  [["--record", "nothing.json"], "clipstack: nothing.json: cannot be read"],
];

test.each(wrong)("fails with one line on %j", async (args, message) => {
  const { exitCode, stdout, stderr } = await run(...args);
  expect({ exitCode, stdout }).toEqual({ exitCode: 2, stdout: "" });
  expect(stderr).toContain(message);
  expect(stderr).not.toMatch(/\n\s+at /);
});
