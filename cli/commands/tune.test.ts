import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { clipstack } from "../test-programs.ts";

const folder = mkdtempSync(join(tmpdir(), "clipstack-tune-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const environments = {
  host: "stack: single-gpu\naccelerator: cpu\nembed: { server: { maxBatchSize: 8 } }\n",
  gateway: "stack: single-gpu\naccelerator: cpu\nembed: { backend: triton }\n",
  "gpu-host": "stack: single-gpu\n",
  "read-only": "stack: single-gpu\naccelerator: cpu\n",
  cluster: "stack: kind\n",
  broken: "stack: single-gpu\naccelerator: tpu\n",
};
for (const [name, text] of Object.entries(environments)) {
  writeFileSync(join(folder, `${name}.yaml`), text);
}
chmodSync(join(folder, "read-only.yaml"), 0o444);

const tune = (...args: readonly string[]) =>
  clipstack(["tune", ...args], { CLIPSTACK_ENVIRONMENTS_DIR: folder });

test("--dry-run prints the values to try for the endpoint, without those above the SLO", async () => {
  const host = await tune("host", "--slo", "p99=50ms", "--dry-run", "--rounds", "4");
  expect(host.code).toBe(0);
  expect(host.stdout).toMatch(
    /^embed\.server\.modelInstances: 1, to try .*\nembed\.server\.maxBatchSize: 8, to try 2, 32\nembed\.server\.maxQueueDelayMicroseconds: 100000, to try 0, 10000\nembed\.server\.preprocessThreads: 0, to try .*\nat most \d+ measurements of embed-http$/,
  );
  const { stdout } = await tune(
    "gateway",
    "--slo",
    "p99=10ms",
    "--dry-run",
    "--backend",
    "onnx-grpc",
  );
  expect(stdout).toMatch(
    /^tritonOnnx\.maxQueueDelayMicroseconds: 0, to try 1000, 5000\nat most 28 measurements of onnx-grpc$/,
  );
});

test.each([
  [
    ["host", "--slo", "p99=0"],
    "It must be p50, p95, p99 = duration in ms or s, like p99=200ms, got 'p99=0'.",
  ],
  [["host", "--slo", "p50=…"], "got 'p50=…'."],
  [["host"], "required option '--slo <percentile=duration>' not specified"],
  [["nope", "--slo", "p99=1s"], `${folder}/nope.yaml does not exist`],
  [["../host", "--slo", "p99=1s"], "environment: name must be lower-case letters"],
  [["broken", "--slo", "p99=1s"], "accelerator must be one of gpu, cpu, got 'tpu'"],
  [
    ["cluster", "--slo", "p99=1s"],
    "environment must be of the stack single-gpu or multi-gpu, got 'cluster' of kind",
  ],
  [["gpu-host", "--slo", "p99=1s"], "gpu-host must have accelerator: cpu, got 'gpu'"],
  [["read-only", "--slo", "p99=1s", "--write"], "read-only.yaml is read-only"],
  [
    ["host", "--slo", "p99=1s", "--vary", "instances"],
    "--vary must be a list of modelInstances, maxBatchSize",
  ],
  [
    ["host", "--slo", "p99=1s", "--backend", "onnx"],
    "It must be one endpoint, like embed-http, got 'onnx'.",
  ],
  [
    ["host", "--slo", "p99=1s", "--model", "dinov2-small"],
    "--model must be a model of host: openclip-vit-b32",
  ],
] as const)("%j is rejected in one line", async (args, message) => {
  const { code, stdout, stderr } = await tune(...args);
  expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
  expect(stderr).toContain(message);
  expect(stderr).not.toMatch(/\n\s+at /);
});
