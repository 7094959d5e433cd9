import { describe, expect, test } from "vitest";
import {
  parseEngineInfo,
  parseFreeMiB,
  parseGpus,
  parseImages,
  parseListeners,
  parsePublished,
} from "./host-parse.ts";

test("parses listeners from ss, with their process if visible", () => {
  const text = `LISTEN 0      4096         127.0.0.1:8010       0.0.0.0:*    users:(("nginx",pid=812,fd=6),("nginx",pid=813,fd=6))
LISTEN 0      128            0.0.0.0:2024       0.0.0.0:*
LISTEN 0      4096     127.0.0.53%lo:53         0.0.0.0:*
LISTEN 0      128               [::]:22            [::]:*
LISTEN 0      4096                 *:9100             *:*    users:(("node_exporter",pid=7,fd=3))
`;
  expect(parseListeners(text)).toEqual([
    { port: 8010, address: "127.0.0.1", process: "nginx (pid 812)" },
    { port: 2024, address: "0.0.0.0", process: undefined },
    { port: 53, address: "127.0.0.53", process: undefined },
    { port: 22, address: "::", process: undefined },
    { port: 9100, address: "*", process: "node_exporter (pid 7)" },
  ]);
});

test("parses published ports from docker ps: ranges, both address families, unpublished ports", () => {
  const text = `single-gpu-triton-onnx\tsingle-gpu\t127.0.0.1:8010-8012->8000-8002/tcp
web\t\t0.0.0.0:80->8080/tcp, :::80->8080/tcp, [::]:443->443/tcp, 9000/tcp, 0.0.0.0:53->53/udp
quiet\t\t
`;
  expect(parsePublished(text)).toEqual([
    ...[8010, 8011, 8012].map((port) => ({
      port,
      address: "127.0.0.1",
      container: "single-gpu-triton-onnx",
      environment: "single-gpu",
    })),
    { port: 80, address: "0.0.0.0", container: "web", environment: undefined },
    { port: 80, address: "::", container: "web", environment: undefined },
    { port: 443, address: "::", container: "web", environment: undefined },
  ]);
});

describe("nvidia-smi", () => {
  test("is parsed line by line", () => {
    const text = `0, GPU-8a56a4bc-1111-2222-3333-444455556666, 16376, 16075, 8.9, 570.86.15, NVIDIA GeForce RTX 4080
1, GPU-00000000-1111-2222-3333-444455556666, 81920, 81920, 8.0, 570.86.15, NVIDIA A100-SXM4-80GB
`;
    expect(parseGpus(text)).toEqual([
      {
        index: 0,
        uuid: "GPU-8a56a4bc-1111-2222-3333-444455556666",
        name: "NVIDIA GeForce RTX 4080",
        memoryMiB: 16376,
        freeMiB: 16075,
        computeCapability: "8.9",
        driver: "570.86.15",
      },
      expect.objectContaining({ index: 1, memoryMiB: 81920, name: "NVIDIA A100-SXM4-80GB" }),
    ]);
  });

  test("has unlimited memory if it is shared with the CPU", () => {
    const [gpu] = parseGpus("0, GPU-1, [N/A], [N/A], 12.1, 580.95.05, NVIDIA GB10\n");
    expect(gpu?.memoryMiB).toBe(Number.POSITIVE_INFINITY);
  });

  test("reports MIG mode, and an error in place of the memory", () => {
    const text =
      "0, GPU-1, [Unknown Error], [Unknown Error], 8.0, 580.95.05, Disabled, NVIDIA A100\n1, GPU-2, 81920, 1, 8.0, 580.95.05, Enabled, NVIDIA A100\n2, GPU-3, 16376, 1, 8.9, 580.95.05, [N/A], NVIDIA GeForce RTX 4080\n";
    const [lost, mig, plain] = parseGpus(text);
    expect(lost).toMatchObject({ name: "NVIDIA A100", failure: "[Unknown Error]" });
    expect(mig).toMatchObject({ name: "NVIDIA A100", mig: "enabled" });
    expect(plain).toEqual({
      ...{
        index: 2,
        uuid: "GPU-3",
        name: "NVIDIA GeForce RTX 4080",
        memoryMiB: 16_376,
        freeMiB: 1,
      },
      ...{ computeCapability: "8.9", driver: "580.95.05" },
    });
  });

  test("with 'No devices were found' has no GPU", () => {
    expect(parseGpus("No devices were found\n")).toEqual([]);
  });
});

test("parses the free space from df with a long device name", () => {
  const head = "Filesystem     1024-blocks     Used Available Capacity Mounted on";
  expect(parseFreeMiB(`${head}\n/dev/vda1 263174212 90000000 45056000 60% /\n`)).toBe(44_000);
  expect(parseFreeMiB("df: /nowhere: No such file or directory\n")).toBeUndefined();
});

describe("docker info", () => {
  const info = {
    ServerVersion: "28.3.0",
    OSType: "linux",
    Architecture: "x86_64",
    DockerRootDir: "/var/lib/docker",
    Runtimes: { runc: {}, nvidia: {} },
    DiscoveredDevices: [
      { Source: "cdi", ID: "nvidia.com/gpu=0" },
      { Source: "other", ID: "x" },
    ],
  };

  test("is parsed to version, platform, folder, runtimes and CDI devices", () => {
    expect(parseEngineInfo(JSON.stringify(info))).toEqual({
      version: "28.3.0",
      osType: "linux",
      architecture: "x86_64",
      rootDir: "/var/lib/docker",
      runtimes: ["nvidia", "runc"],
      cdiDevices: ["nvidia.com/gpu=0"],
    });
  });

  test("without an engine is undefined", () => {
    expect(parseEngineInfo(JSON.stringify({ ...info, ServerVersion: "" }))).toBeUndefined();
    expect(parseEngineInfo("")).toBeUndefined();
  });
});

test("parses all names of an image", () => {
  const digest = `sha256:${"0".repeat(64)}`;
  expect(parseImages(`a/b\t1.0\t<none>\na/b\t<none>\t${digest}\n<none>\t<none>\t<none>\n`)).toEqual(
    ["a/b:1.0", `a/b@${digest}`],
  );
});
