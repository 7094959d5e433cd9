import { afterAll, beforeAll, expect, test } from "vitest";
import type { Environment } from "../../contract/environment.ts";
import { pathWith, type StandIns, standIns } from "../test-programs.ts";
import { driverVersion, gpuReader, runInContainer } from "./gpu-reader.ts";

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

test("runs the query of older drivers if the driver rejects a column", async () => {
  programs.put("docker", "exit 127");
  programs.put(
    "nvidia-smi",
    `case "$1" in
*clocks_event_reasons*) echo 'Field "clocks_event_reasons.active" is not a valid field to query.'; exit 2;;
*) echo "GPU-2, 1, 10, 20, 31.5, 70.00, 585, 5000, 41, 0x0000000000000001";;
esac`,
  );
  expect(await read()?.()).toMatchObject([{ id: "GPU-2", smClockMHz: 585, throttleReasons: 1 }]);
});

test("the driver's version is that of the host", async () => {
  programs.put("docker", "exit 127");
  programs.put(
    "nvidia-smi",
    'if [ "$*" = "--query-gpu=driver_version --format=csv,noheader" ]; then echo 560.35.03; echo 560.35.03; fi',
  );
  const { signal } = new AbortController();
  expect(await driverVersion(environment, ["single-gpu-embed"], signal)).toBe("560.35.03");
  programs.put("nvidia-smi", 'echo "NVIDIA-SMI has failed"; exit 9');
  expect(await driverVersion(environment, ["single-gpu-embed"], signal)).toBeUndefined();
});

test("a command runs in a container over the environment's Docker endpoint", async () => {
  programs.put(
    "docker",
    'if [ "$3 $4 $5 $6" = "exec triton ls /backends" ]; then echo libonnxruntime.so.1.19.2; else exit 1; fi',
  );
  const { signal } = new AbortController();
  const list = (container: string) =>
    runInContainer(environment, container, ["ls", "/backends"], signal);
  expect(await list("triton")).toEqual(["libonnxruntime.so.1.19.2"]);
  expect(await list("embed")).toBeUndefined();
});

test("returns nothing if Docker is unreachable", async () => {
  programs.put("docker", 'echo "Cannot connect to the Docker daemon" >&2; exit 1');
  expect(await read()?.()).toEqual([]);
});

test("reads nothing on a CPU or in a cluster", () => {
  expect(read({ accelerator: "cpu" })).toBeUndefined();
  expect(read({ namespace: "clipstack" })).toBeUndefined();
});
