import { expect, test } from "vitest";
import { modelConfigs } from "../inference-image/src/contract/model-config.ts";
import { parseTritonArgs } from "../inference-image/src/contract/triton-flags.ts";
import type { TerraformStack } from "./cdktf.ts";
import type { GpuHostProps } from "./gpu-host.ts";
import { findings, hostIn, synth } from "./test-synth.ts";
import { TritonServer, type TritonServerProps } from "./triton-server.ts";

function triton(
  stack: TerraformStack,
  props: Partial<TritonServerProps>,
  host: Partial<GpuHostProps>,
): TritonServer {
  return new TritonServer(stack, "triton", {
    host: hostIn(stack, host),
    image: "nvcr.io/nvidia/tritonserver:26.07-py3",
    backend: "onnx",
    modelRepository: "/srv/models",
    ports: { http: 8010, grpc: 8011, metrics: 8012 },
    gpus: [0],
    expose: "loopback",
    ...props,
  });
}

function synthTriton(props: Partial<TritonServerProps> = {}, host: Partial<GpuHostProps> = {}) {
  let server: TritonServer | undefined;
  const result = synth((stack) => {
    server = triton(stack, props, host);
  });
  if (server === undefined) throw new Error("not built");
  return { ...result, server, container: result.at("test/triton/container") };
}

const flagsOf = (container: { command: string[] }) => parseTritonArgs(container.command.slice(1));

test("runs tritonserver as NVIDIA advises for production", () => {
  const { container } = synthTriton();
  // spelled out, also where it is Triton's default today
  expect(container.command).toEqual([
    "tritonserver",
    "--model-repository=/models",
    "--model-config-name=single-gpu",
    "--http-max-input-size=134217728",
    "--model-control-mode=none",
    "--strict-readiness=true",
    "--exit-on-error=true",
    "--exit-timeout-secs=30",
    "--disable-auto-complete-config",
  ]);
  expect(() => flagsOf(container)).not.toThrow();
});

test.each([
  ["single-gpu", [2], "gpu"],
  ["multi-gpu-4x", [0, 1, 2, 3], "gpu"],
  ["cpu", [0], "cpu"],
] as const)(
  "chooses the model configuration %s for GPUs %j on %s",
  (variant, gpus, accelerator) => {
    const { container } = synthTriton({ gpus }, { accelerator });
    expect(flagsOf(container)["model-config-name"]).toBe(variant);
  },
);

test("asks for one GPU as a device", () => {
  const { container } = synthTriton({ gpus: [2] });
  expect(container.gpus).toBe("device=2");
  expect(container).not.toHaveProperty("runtime");
  expect(container.env).toEqual([
    "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
    "NVIDIA_VISIBLE_DEVICES=2",
  ]);
});

test("asks for several GPUs through NVIDIA's runtime", () => {
  const { container } = synthTriton({ gpus: [0, 1, 2, 3] });
  expect(container.runtime).toBe("nvidia");
  expect(container).not.toHaveProperty("gpus");
  expect(container.env).toContain("NVIDIA_VISIBLE_DEVICES=0,1,2,3");
});

test("asks for no GPU when the accelerator is cpu", () => {
  const { container } = synthTriton({}, { accelerator: "cpu" });
  expect(container).not.toHaveProperty("gpus");
  expect(container).not.toHaveProperty("runtime");
  expect(container.env ?? []).toEqual([]);
});

test("has the shared memory and the limits that NVIDIA advises", () => {
  const { container } = synthTriton();
  expect(container.shm_size).toBe(1024);
  expect(container.ulimit).toEqual([
    { name: "memlock", soft: -1, hard: -1 },
    { name: "stack", soft: 67_108_864, hard: 67_108_864 },
  ]);
});

test("keeps the limit on pinned memory where no GPU needs it", () => {
  const { container } = synthTriton({}, { accelerator: "cpu" });
  expect(container.ulimit.map(({ name }: { name: string }) => name)).toEqual(["stack"]);
});

test("has no privileges and no disk to write to", () => {
  const { container } = synthTriton();
  expect(container).toMatchObject({
    user: "1000:1000",
    read_only: true,
    capabilities: { drop: ["ALL"] },
    security_opts: ["no-new-privileges:true"],
    restart: "unless-stopped",
    log_driver: "json-file",
    log_opts: { "max-file": "3", "max-size": "10m" },
    tmpfs: { "/tmp": "rw,nosuid,nodev,size=256m" },
  });
  expect(container).not.toHaveProperty("privileged");
});

test("publishes Triton's three ports on the loopback interface", () => {
  expect(synthTriton().container.ports).toEqual([
    { internal: 8000, external: 8010, ip: "127.0.0.1" },
    { internal: 8001, external: 8011, ip: "127.0.0.1" },
    { internal: 8002, external: 8012, ip: "127.0.0.1" },
  ]);
});

test("keeps metrics on the loopback interface when it is exposed", () => {
  const { container } = synthTriton({ expose: "all-interfaces" });
  expect(container.ports.map(({ ip }: { ip: string }) => ip)).toEqual([
    "0.0.0.0",
    "0.0.0.0",
    "127.0.0.1",
  ]);
});

test("mounts the folder of its model, read-only, and no other", () => {
  expect(synthTriton().container.volumes).toEqual([
    {
      host_path: "/srv/models/openclip_vit_b32",
      container_path: "/models/openclip_vit_b32",
      read_only: true,
    },
  ]);
});

test("gives TensorRT the file of the ONNX model under its own name", () => {
  const { container } = synthTriton({ backend: "tensorrt" });
  expect(container.volumes.slice(0, 2)).toEqual([
    {
      host_path: "/srv/models/openclip_vit_b32_trt",
      container_path: "/models/openclip_vit_b32_trt",
      read_only: true,
    },
    {
      host_path: "/srv/models/openclip_vit_b32/1",
      container_path: "/models/openclip_vit_b32_trt/1",
      read_only: true,
    },
  ]);
});

test("keeps TensorRT engines on a volume, for one kind of GPU and one version of Triton", () => {
  const { container, only } = synthTriton({ backend: "tensorrt" }, { gpu: "a100-sxm4-80gb" });
  expect(only("docker_volume").name).toBe("test-triton-engines-sm80-26.07-py3");
  expect(container.volumes[2].container_path).toBe("/engine-cache");
  expect(container.volumes[2]).not.toHaveProperty("read_only");
});

test("names the volume by the digest of an image that has one", () => {
  const image = `nvcr.io/nvidia/tritonserver@sha256:${"ab".repeat(32)}`;
  const { only } = synthTriton({ backend: "tensorrt", image });
  expect(only("docker_volume").name).toBe("test-triton-engines-sm89-abababababab");
});

test("hands the volume to Triton's user before Triton starts", () => {
  const { container, at, address } = synthTriton({ backend: "tensorrt" });
  const owner = at("test/triton/engine-cache/owner");
  expect(owner).toMatchObject({
    entrypoint: ["chown"],
    command: ["1000:1000", "/engine-cache"],
    user: "0:0",
    capabilities: { add: ["CAP_CHOWN"], drop: ["ALL"] },
    network_mode: "none",
    read_only: true,
    must_run: false,
    attach: true,
  });
  expect(container.depends_on).toEqual([address("test/triton/engine-cache/owner")]);
});

test("needs no engine cache with ONNX Runtime, nor on CPU", () => {
  expect(synthTriton().all("docker_volume")).toEqual([]);
  const onCpu = synthTriton({ backend: "tensorrt" }, { accelerator: "cpu" });
  expect(onCpu.all("docker_volume")).toEqual([]);
});

test("asks Triton itself whether it is ready", () => {
  const { healthcheck, wait } = synthTriton().container;
  expect(healthcheck.test).toEqual([
    "CMD",
    "curl",
    "-fsS",
    "http://localhost:8000/v2/health/ready",
  ]);
  expect(wait).toBe(true);
});

test.each([
  ["onnx", [0], "2m0s", 150],
  ["tensorrt", [0], "7m0s", 450],
  ["tensorrt", [0, 1, 2, 3], "22m0s", 1350],
] as const)(
  "waits for %s on %j as long as cold engine builds take",
  (backend, gpus, start, wait) => {
    const { container } = synthTriton({ backend, gpus });
    expect(container.healthcheck.start_period).toBe(start);
    expect(container.wait_timeout).toBe(wait);
  },
);

test("is not killed before its own exit timeout is over", () => {
  const { container } = synthTriton();
  expect(container.stop_timeout).toBe(35);
  expect(container.destroy_grace_seconds).toBe(35);
});

test("fails when the container is changed so that it is killed too early", () => {
  expect(
    findings((stack) => {
      triton(stack, {}, {}).container.stopTimeout = 10;
    }),
  ).toEqual(["test/triton/container: stopTimeout must be at least 35 (30 of grace + 5), got 10"]);
});

test("counts execution instances over all GPUs", () => {
  expect(synthTriton({ gpus: [0, 1, 2, 3] }).server.executionInstances).toBe(4);
  expect(synthTriton().server.executionInstances).toBe(1);
  expect(synthTriton({}, { accelerator: "cpu" }).server.executionInstances).toBe(1);
});

test("says where it is reached, and where in the state it is", () => {
  const { server, container, address } = synthTriton({ backend: "tensorrt" });
  expect(server.service).toEqual({
    name: "triton",
    kind: "triton",
    backend: "tensorrt",
    model: "openclip_vit_b32_trt",
    resources: { container: address("test/triton/container") },
    endpoints: [
      { protocol: "oip-http", url: "http://127.0.0.1:8010", path: "trt-http" },
      { protocol: "oip-grpc", url: "127.0.0.1:8011", path: "trt-grpc" },
      { protocol: "metrics", url: "http://127.0.0.1:8012" },
    ],
  });
  expect(server.grpcTarget).toBe(`${container.name}:8001`);
});

test("is reached by the host's name when it is exposed there", () => {
  const { server } = synthTriton({ expose: "all-interfaces" }, { docker: "ssh://gpu@gpu-1" });
  expect(server.service.endpoints.map(({ url }) => url)).toEqual([
    "http://gpu-1:8010",
    "gpu-1:8011",
    "http://127.0.0.1:8012",
  ]);
});

test("keeps the image on the host and replaces the container when the image changes", () => {
  const { container, only, address } = synthTriton();
  expect(only("docker_image")).toMatchObject({
    name: "nvcr.io/nvidia/tritonserver:26.07-py3",
    keep_locally: true,
  });
  expect(container.image).toBe(`\${${address("test/triton/image")}.image_id}`);
});

test("fails on a model configuration that Triton would refuse", () => {
  const config: { max_batch_size: number } = modelConfigs.openclip_vit_b32["single-gpu"];
  const before = config.max_batch_size;
  try {
    config.max_batch_size = 16;
    const found = findings((stack) => triton(stack, {}, {}));
    expect(found.length).toBeGreaterThan(0);
    for (const line of found) expect(line).toMatch(/^test\/triton: openclip_vit_b32: .*(16|32)/);
    expect(found.join("\n")).toContain("preferred_batch_size");
  } finally {
    config.max_batch_size = before;
  }
});

test("fails on a GPU that is newer than the image, but not where no GPU is used", () => {
  const image = "nvcr.io/nvidia/tritonserver:24.12-py3";
  expect(findings((stack) => triton(stack, { image }, { gpu: "b200" }))).toEqual([
    `test/triton: image must be 25.01 or newer for NVIDIA B200 SXM 180 GB (Blackwell), got '${image}'`,
  ]);
  const host = { gpu: "b200", accelerator: "cpu" } as const;
  expect(findings((stack) => triton(stack, { image }, host))).toEqual([]);
});

test("fails with everything that is wrong at once", () => {
  expect(
    findings((stack) => {
      triton(
        stack,
        { image: "tritonserver:latest", gpus: [4], ports: { http: 1, grpc: 1, metrics: 2 } },
        {},
      );
    }),
  ).toEqual([
    "test/triton: image must name a version, like 'name:1.2' or better 'name@sha256:…', got 'tritonserver:latest'",
    "test/triton: gpus must be 0 to 3 (host.count is 4), got 4",
    "test/triton: ports.grpc must be free on the host, got 1, which triton (ports.http) has",
  ]);
});
