import { afterAll, beforeAll, expect, test } from "vitest";
import type { Environment } from "../../contract/environment.ts";
import { pathWith, type StandIns, standIns } from "../test-programs.ts";
import { gpuReader } from "./gpu-reader.ts";

let programs: StandIns;
const path = process.env.PATH;
beforeAll(() => {
  programs = standIns();
  process.env.PATH = pathWith(programs.folder);
});
afterAll(() => {
  process.env.PATH = path;
  programs.remove();
});

const environment = {
  schema: 1,
  name: "single-gpu",
  where: "unix:///var/run/docker.sock",
  accelerator: "gpu",
  services: [],
} as unknown as Environment;

const read = (more: Partial<Environment> = {}) =>
  gpuReader(
    { ...environment, ...more },
    ["single-gpu-triton-onnx", "single-gpu-embed"],
    new AbortController().signal,
  );

test("runs nvidia-smi in the first container that has it, over the environment's Docker endpoint", async () => {
  programs.put(
    "docker",
    'if [ "$2 $3 $4 $5" = "unix:///var/run/docker.sock exec single-gpu-embed nvidia-smi" ]; then echo "GPU-1, 50, 100, 200"; else exit 127; fi',
  );
  programs.put("nvidia-smi", 'echo "GPU-2, 1, 1, 1"');
  expect(await read()?.()).toEqual([
    { id: "GPU-1", utilization: 0.5, memoryUsedMiB: 100, memoryTotalMiB: 200 },
  ]);
});

test("runs nvidia-smi on the host if no container has it", async () => {
  programs.put("docker", "exit 127");
  programs.put("nvidia-smi", 'echo "GPU-2, 1, 10, 20"');
  expect(await read()?.()).toEqual([
    { id: "GPU-2", utilization: 0.01, memoryUsedMiB: 10, memoryTotalMiB: 20 },
  ]);
});

test("returns nothing if Docker is unreachable", async () => {
  programs.put("docker", 'echo "Cannot connect to the Docker daemon" >&2; exit 1');
  expect(await read()?.()).toEqual([]);
});

test("reads nothing on a CPU or in a cluster", () => {
  expect(read({ accelerator: "cpu" })).toBeUndefined();
  expect(read({ namespace: "clipstack" })).toBeUndefined();
});
