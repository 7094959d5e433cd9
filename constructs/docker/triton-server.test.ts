import { expect, test } from "vitest";
import { preprocessingSha256 } from "../../contract/fingerprint.ts";
import { defaultModel } from "../../contract/models/index.ts";
import {
  openTelemetryOf,
  parseTritonArgs,
  restrictControl,
  tritonCommandOf,
} from "../../contract/triton-flags.ts";
import { tritonLauncher } from "../../contract/triton-launcher.ts";
import { tritonImage } from "../../stacks/shared/image-builds.ts";
import type { GpuId } from "../checks/gpus.ts";
import type { TerraformStack } from "../terraform/cdktf.ts";
import { dependenciesIn, findings, hostIn, synth } from "../test-synth.ts";
import type { GpuHostProps } from "./host-plan.ts";
import type { TritonServerProps } from "./triton-plan.ts";
import { TritonServer } from "./triton-server.ts";

/** NVIDIA's server from an image. */
const nvidia = (name: string) =>
  ({ kind: "tritonserver", image: { source: "pull", name } }) as const;

function triton(
  stack: TerraformStack,
  props: Partial<TritonServerProps>,
  hostProps: Partial<GpuHostProps>,
): TritonServer {
  const host = hostIn(stack, hostProps);
  return new TritonServer(stack, "triton", {
    host,
    ...dependenciesIn(stack, host),
    server: nvidia("nvcr.io/nvidia/tritonserver:26.07-py3"),
    backend: "onnxruntime",
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

const flagsOf = ({ command }: { command: string[] }) =>
  parseTritonArgs(tritonCommandOf(command).slice(1));

test("runs tritonserver with NVIDIA's recommended production options", () => {
  const { container } = synthTriton();
  // explicit, even if the value is Triton's current default
  expect(container.command).toEqual([
    ...["python3", "-c", tritonLauncher],
    "tritonserver",
    "--model-repository=/models",
    "--model-config-name=deployed",
    "--http-max-input-size=134217728",
    "--model-control-mode=explicit",
    "--load-model=openclip_vit_b32",
    "--http-restricted-api=shared-memory,trace,logging:no:header=none",
    "--http-restricted-api=model-repository:no:header=$MODEL_CONTROL_KEY",
    "--grpc-restricted-protocol=shared-memory,trace,logging:no:header=none",
    "--grpc-restricted-protocol=model-repository:no:header=$MODEL_CONTROL_KEY",
    "--strict-readiness=true",
    "--exit-on-error=true",
    "--exit-timeout-secs=30",
    "--disable-auto-complete-config",
  ]);
  expect(() => flagsOf(container)).not.toThrow();
});

test("exports the traces of its clients to the collector of the host", () => {
  const { container } = synthTriton(
    {},
    { tracing: { endpoint: "http://otel:4318/", ratio: 0.01 } },
  );
  expect(openTelemetryOf(flagsOf(container))).toEqual({
    url: "http://otel:4318/v1/traces",
    service: "triton",
    rate: 0,
  });
});

test.each<[readonly GpuId[] | undefined, Partial<GpuHostProps>, string, number]>([
  [[2], { count: 4 }, "gpus: [0]", 1],
  [[1, 3], { count: 4 }, "gpus: [0, 1]", 2],
  [[0, 1, 2], { count: 4 }, "gpus: [0, 1, 2]", 3],
  [undefined, { count: 1 }, "gpus: [0]", 1],
  [undefined, { count: 8 }, "gpus: [0, 1, 2, 3, 4, 5, 6, 7]", 8],
  [undefined, { count: 16 }, `gpus: [${[...Array(16).keys()].join(", ")}]`, 16],
  [[0], { accelerator: "cpu" }, "kind: KIND_CPU", 1],
])("renders the configuration for GPUs %j of the host %j", (gpus, host, instances, count) => {
  const { server, at } = synthTriton({ gpus }, host);
  const [{ content }] = at("test/triton/configuration/apply/container").upload;
  expect(content).toContain(`    ${instances}\n`);
  expect(server.executionInstances).toBe(count);
});

test("requests one GPU as a device", () => {
  const { container } = synthTriton({ gpus: [2] });
  expect(container.gpus).toBe("device=2");
  expect(container).not.toHaveProperty("runtime");
  expect(container.env).toEqual([
    expect.stringMatching(/^MODEL_CONTROL_KEY=/),
    "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
    "NVIDIA_VISIBLE_DEVICES=2",
  ]);
});

test("requests no GPU if the accelerator is cpu", () => {
  const { container } = synthTriton({}, { accelerator: "cpu" });
  expect(container).not.toHaveProperty("gpus");
  expect(container).not.toHaveProperty("runtime");
  expect(container.env).toEqual([expect.stringMatching(/^MODEL_CONTROL_KEY=/)]);
});

test("has NVIDIA's recommended shared memory and ulimits", () => {
  const { container } = synthTriton();
  expect(container.shm_size).toBe(1024);
  expect(container.ulimit).toEqual([
    { name: "memlock", soft: -1, hard: -1 },
    { name: "stack", soft: 67_108_864, hard: 67_108_864 },
  ]);
});

test("keeps the limit on pinned memory without a GPU", () => {
  const limits = ({ container }: ReturnType<typeof synthTriton>) =>
    container.ulimit.map(({ name }: { name: string }) => name);
  expect(limits(synthTriton({}, { accelerator: "cpu" }))).toEqual(["stack"]);
  expect(limits(synthTriton({ server: { kind: "emulator" } }))).toEqual(["stack"]);
});

test("publishes Triton's three ports on the loopback interface", () => {
  expect(synthTriton().container.ports).toEqual([
    { internal: 8000, external: 8010, ip: "127.0.0.1" },
    { internal: 8001, external: 8011, ip: "127.0.0.1" },
    { internal: 8002, external: 8012, ip: "127.0.0.1" },
  ]);
});

test("keeps metrics on the loopback interface when it is exposed", () => {
  const { container } = synthTriton({
    expose: "all-interfaces",
    allowUnauthenticated: true,
    allowPlaintext: true,
  });
  expect(container.ports.map(({ ip }: { ip: string }) => ip)).toEqual([
    "0.0.0.0",
    "0.0.0.0",
    "127.0.0.1",
  ]);
});

test("mounts only the weights and configuration of its model, read-only", () => {
  const { container, only } = synthTriton();
  expect(container.volumes).toEqual([
    {
      host_path: "/srv/models/openclip_vit_b32/1",
      container_path: "/models/openclip_vit_b32/1",
      read_only: true,
    },
    {
      volume_name: expect.stringContaining("configuration_volume"),
      container_path: "/models/openclip_vit_b32/configs",
      read_only: true,
    },
  ]);
  expect(only("docker_volume").name).toBe("test-triton-config");
});

test("mounts the weights of the ONNX model for the TensorRT model", () => {
  const { container } = synthTriton({ backend: "tensorrt" });
  expect(container.volumes[0]).toEqual({
    host_path: "/srv/models/openclip_vit_b32/1",
    container_path: "/models/openclip_vit_b32_trt/1",
    read_only: true,
  });
});

test("caches TensorRT engines on a volume per compute capability and Triton version", () => {
  const { container, at } = synthTriton({ backend: "tensorrt" }, { gpu: "a100-sxm4-80gb" });
  const volume = at("test/triton/engine-cache/volume");
  expect(volume.name).toBe("test-triton-engines-sm80-26.07-py3");
  expect(container.volumes[2].container_path).toBe("/engine-cache");
  expect(container.volumes[2]).not.toHaveProperty("read_only");
});

test("names the volume by the digest of a pinned image", () => {
  const server = nvidia(`nvcr.io/nvidia/tritonserver@sha256:${"ab".repeat(32)}`);
  const { at } = synthTriton({ backend: "tensorrt", server });
  const volume = at("test/triton/engine-cache/volume");
  expect(volume.name).toBe("test-triton-engines-sm89-abababababab");
});

test("makes Triton's user the owner of the volume before Triton starts", () => {
  const { at, address } = synthTriton({ backend: "tensorrt" });
  expect(at("test/triton/engine-cache/owner/container")).toMatchObject({
    entrypoint: ["chown"],
    command: ["1000:1000", "/engine-cache"],
    user: "0:0",
    capabilities: { add: ["CAP_CHOWN"], drop: ["ALL"] },
    network_mode: "none",
    must_run: false,
    attach: true,
  });
  expect(at("test/host/prepared").depends_on).toContain(
    address("test/triton/engine-cache/owner/container"),
  );
});

test("has no engine cache with ONNX Runtime or on the CPU", () => {
  const volumes = ({ all }: ReturnType<typeof synthTriton>) =>
    all("docker_volume").map(({ name }) => name);
  expect(volumes(synthTriton())).toEqual(["test-triton-config"]);
  const onCpu = synthTriton({ backend: "tensorrt" }, { accelerator: "cpu" });
  expect(volumes(onCpu)).toEqual(["test-triton-config"]);
});

test("checks Triton's readiness endpoint", () => {
  const { healthcheck } = synthTriton().container;
  expect(healthcheck.test).toEqual([
    "CMD",
    "curl",
    "-fsS",
    "http://127.0.0.1:8000/v2/health/ready",
  ]);
});

test("runs the emulator from the embed image with Triton's options", () => {
  const { container, server, address } = synthTriton({ server: { kind: "emulator" } });
  expect(container.image).toBe(`\${${address("test/host/embed-cpu-image/image")}.image_id}`);
  // it reads the key itself
  expect(container.command).toEqual(tritonCommandOf(synthTriton().container.command));
  expect(container.ports).toEqual(synthTriton().container.ports);
  expect(container.healthcheck.test.slice(0, 2)).toEqual(["CMD", "node"]);
  expect(container.init).toBe(true);
  expect(server.service.server).toBe("emulator");
});

test("applies the configured model configuration before Triton starts", () => {
  const { at, address } = synthTriton({
    modelControl: "none",
    maxQueueDelayMicroseconds: 2_000,
    instancesPerGpu: 2,
  });
  const apply = at("test/triton/configuration/apply/container");
  expect(apply.command).toEqual([
    "apply-config",
    ...["--folder", "/configs"],
    ...["--file", "/model-config.pbtxt"],
    ...["--name", "deployed"],
    ...["--model", "openclip_vit_b32"],
    ...["--weights", "/weights/model.onnx"],
    ...["--preprocessing", preprocessingSha256(defaultModel, "image")],
  ]);
  expect(apply.volumes).toContainEqual(
    expect.objectContaining({ container_path: "/weights", read_only: true }),
  );
  expect(apply.upload).toEqual([
    { file: "/model-config.pbtxt", content: expect.stringContaining("count: 2") },
  ]);
  expect(apply.upload[0].content).toContain("max_queue_delay_microseconds: 2000");
  expect(at("test/host/prepared").depends_on).toContain(
    address("test/triton/configuration/apply/container"),
  );
});

test("without model control, replaces only the container when its configuration changes", () => {
  const started = (props: Partial<TritonServerProps>) =>
    synthTriton({ ...props, modelControl: "none" }).container;
  const label = (props: Partial<TritonServerProps>) =>
    started(props).labels.find(
      (it: { label: string }) => it.label === "clipstack.model-configuration",
    )?.value;
  expect(label({})).toMatch(/^[0-9a-f]{12}$/);
  expect(label({ maxQueueDelayMicroseconds: 2_000 })).not.toBe(label({}));
  const { image, command } = started({ maxQueueDelayMicroseconds: 2_000 });
  expect({ image, command }).toEqual({ image: started({}).image, command: started({}).command });
});

test("applies the configuration after the weights are on their volume, for their fingerprint", () => {
  const { at, address } = synth((stack) => {
    const host = hostIn(stack);
    const dependencies = dependenciesIn(stack, host, "volume");
    new TritonServer(stack, "triton", {
      host,
      ...dependencies,
      server: nvidia("nvcr.io/nvidia/tritonserver:26.07-py3"),
      backend: "onnxruntime",
      ports: { http: 8010, grpc: 8011, metrics: 8012 },
    });
  });
  const apply = at("test/triton/configuration/apply/container");
  expect(apply.depends_on).toEqual([address("test/weights/check/container")]);
  expect(apply.volumes[1]).toEqual({
    volume_name: `\${${address("test/weights/volume")}.name}`,
    container_path: "/weights",
    read_only: true,
  });
});

test("with model control, loads a changed configuration without replacing the container", () => {
  const explicit = (delay: number) => synthTriton({ maxQueueDelayMicroseconds: delay });
  expect(explicit(2_000).container).toEqual(explicit(5_000).container);
  expect(flagsOf(explicit(2_000).container)).toMatchObject({
    "model-control-mode": "explicit",
    "load-model": ["openclip_vit_b32"],
  });
  const apply = explicit(2_000).at("test/triton/configuration/apply/container");
  expect(apply.command.slice(9, 15)).toEqual([
    ...["--server", "http://test-triton:8000"],
    ...["--generation", expect.stringContaining("tritonserver:26.07-py3")],
    ...["--timeout-seconds", "120"],
  ]);
  expect(apply.networks_advanced).toHaveLength(1);
  expect(apply.env).toEqual([expect.stringMatching(/^MODEL_CONTROL_KEY=\$\{sensitive\(/)]);
});

test("passes the key of the model control API in the environment, which only Triton's user can read", () => {
  const { container } = synthTriton();
  expect(container.env).toContainEqual(
    expect.stringMatching(
      /^MODEL_CONTROL_KEY=\$\{sensitive\(terraform_data\.host_model-control-key_\w+\.output\.key\)\}$/,
    ),
  );
});

test("requires no key with open or without model control", () => {
  for (const [modelControl, restriction] of [
    ["open", "open"],
    ["none", "closed"],
  ] as const) {
    const { container, json, at } = synthTriton({ modelControl });
    expect(container.command[0]).toBe("tritonserver");
    expect(flagsOf(container)).toMatchObject(restrictControl(restriction));
    expect(at("test/triton/configuration/apply/container").env).toBeUndefined();
    expect(JSON.stringify(json)).not.toContain("model-control-key");
  }
});

test("keeps the key of the model control API, because a new one would replace every Triton server", () => {
  const key = synthTriton().at("test/host/model-control-key");
  expect(key.input).toEqual({ key: `\${uuid()}` });
  expect(key.lifecycle.ignore_changes).toEqual(["input"]);
});

test("a Triton server that is replaced does not reload its configuration", () => {
  const generation = (props: Partial<TritonServerProps>) =>
    synthTriton({ modelControl: "explicit", ...props }).at(
      "test/triton/configuration/apply/container",
    ).command[12];
  expect(generation({ maxQueueDelayMicroseconds: 2_000 })).toBe(generation({}));
  expect(generation({ gpus: [1] })).not.toBe(generation({}));
  expect(generation({ server: nvidia("tritonserver:26.08-py3") })).not.toBe(generation({}));
});

test.each([
  ["26.05-py3", "weights-fp16", false],
  ["26.07-py3", "weights-fp16", true],
])("with TensorRT of %s, %s is the volume of the served file: %s", (tag, volume, isServed) => {
  const { at, all } = synth((stack) => {
    const host = hostIn(stack);
    new TritonServer(stack, "triton", {
      host,
      ...dependenciesIn(stack, host, "volume"),
      server: nvidia(`tritonserver:${tag}`),
      backend: "tensorrt",
      ports: { http: 8010, grpc: 8011, metrics: 8012 },
      gpus: [0],
      expose: "loopback",
    });
  });
  const { content } = at("test/triton/configuration/apply/container").upload[0];
  expect(content.includes('default_model_filename: "model.trt-fp16.onnx"')).toBe(isServed);
  expect(content.includes('key: "precision_mode", value: "FP16"')).toBe(!isServed);
  const mount = at("test/triton/container").volumes.find(
    ({ container_path: path }: { container_path: string }) =>
      path === "/models/openclip_vit_b32_trt/1",
  );
  expect(/fp16/.test(mount.volume_name)).toBe(isServed);
  const volumes = all("docker_volume").map(({ name }) => name);
  expect(volumes.some((name) => String(name).includes(volume))).toBe(isServed);
});

test("names TensorRT engines by the weights and the image", () => {
  const prefix = (props: Partial<TritonServerProps>) =>
    synthTriton({ backend: "tensorrt", ...props })
      .at("test/triton/configuration/apply/container")
      .upload[0].content.match(/trt_engine_cache_prefix", value: "([^"]*)"/)?.[1];
  // with host-path, the prefix contains a hash of the path
  const name = /^[0-9a-f]{12}_26\.07-py3_openclip_vit_b32_trt_fp16_b32$/;
  expect(prefix({})).toMatch(name);
  expect(prefix({ optimumBatchSize: 8 })).toBe(`${prefix({})}_o8`);
  const { at } = synth((stack) => {
    const host = hostIn(stack);
    new TritonServer(stack, "triton", {
      host,
      ...dependenciesIn(stack, host, "volume"),
      server: nvidia("tritonserver:26.07-py3"),
      backend: "tensorrt",
      ports: { http: 8010, grpc: 8011, metrics: 8012 },
      gpus: [0],
      expose: "loopback",
    });
  });
  expect(at("test/triton/configuration/apply/container").upload[0].content).toMatch(
    /trt_engine_cache_prefix", value: "\$\{substr\(local\.weights_fp16_sha256_\w+, 0, 12\)\}_26\.07-py3_openclip/,
  );
});

test("enables CUDA graphs with TensorRT and rejects them with ONNX Runtime, whose results can be wrong", () => {
  const { at } = synthTriton({ backend: "tensorrt", cudaGraphs: true });
  expect(at("test/triton/configuration/apply/container").upload[0].content).toContain(
    "trt_cuda_graph_enable",
  );
  expect(() => synthTriton({ backend: "onnxruntime", cudaGraphs: true })).toThrow(
    "cudaGraphs must be false if ONNX Runtime runs openclip_vit_b32: its CUDA graphs can return the result of an earlier request (microsoft/onnxruntime#20050), got true",
  );
});

test.each([
  ["onnxruntime", [0], "2m0s", 183],
  ["tensorrt", [0], "7m0s", 483],
  ["tensorrt", [0, 1, 2, 3], "22m0s", 1383],
] as const)(
  "waits for %s on %j for the time of cold engine builds",
  (backend, gpus, start, wait) => {
    const { container, at } = synthTriton({ backend, gpus });
    expect(container.healthcheck.start_period).toBe(start);
    const [{ "local-exec": gate }] = at("test/triton/ready/healthy").provisioner;
    expect(gate.command).toMatch(new RegExp(` wait-healthy test-triton --timeout ${wait}$`));
  },
);

test("rejects an override with a shorter stop timeout", () => {
  expect(
    findings((stack) => {
      triton(stack, {}, {}).container.stopTimeout = 10;
    }),
  ).toEqual([
    "test/triton/container: stopTimeout must be at least 35 (grace period 30 + 5), got 10",
  ]);
});

test("outputs its endpoints and its address in the state", () => {
  const { server, container, address } = synthTriton({ backend: "tensorrt" });
  expect(server.service).toEqual({
    name: "triton",
    kind: "triton",
    backend: "tensorrt",
    server: "tritonserver",
    models: ["openclip-vit-b32"],
    modelKind: "trt",
    resources: { container: address("test/triton/container") },
    endpoints: [
      { protocol: "oip-http", url: "http://127.0.0.1:8010", name: "trt-http" },
      { protocol: "oip-grpc", url: "127.0.0.1:8011", name: "trt-grpc" },
      { protocol: "metrics", url: "http://127.0.0.1:8012" },
    ],
  });
  expect(server.grpcTarget).toBe(`${container.name}:8001`);
});

test("uses the host name of the Docker endpoint if it is exposed", () => {
  const { server } = synthTriton(
    { expose: "all-interfaces", allowUnauthenticated: true, allowPlaintext: true },
    { docker: "ssh://gpu@gpu-1" },
  );
  expect(server.service.endpoints.map(({ url }) => url)).toEqual([
    "http://gpu-1:8010",
    "gpu-1:8011",
    "http://127.0.0.1:8012",
  ]);
});

test("keeps the image on the host and replaces the container when the image changes", () => {
  const { container, at, address } = synthTriton();
  expect(at("test/host/triton-image/image")).toMatchObject({
    name: "nvcr.io/nvidia/tritonserver:26.07-py3",
    keep_locally: true,
  });
  expect(container.image).toBe(`\${${address("test/host/triton-image/image")}.image_id}`);
});

test("rejects an exposed Triton, which has no authentication", () => {
  const expose = "all-interfaces";
  expect(findings((stack) => triton(stack, { expose }, {}))).toEqual([
    "test/triton: expose must be loopback: Triton has no authentication, so it is reached through the embed server as gateway, or with 'npx clipstack tunnel'; allowUnauthenticated: true exposes it anyway, got 'all-interfaces'",
    "test/triton: expose must be loopback, because requests would be sent in clear text; allowPlaintext: true exposes the port anyway, got 'all-interfaces'",
  ]);
  const allowed = { expose, allowUnauthenticated: true, allowPlaintext: true } as const;
  expect(findings((stack) => triton(stack, allowed, {}))).toEqual([]);
});

test("rejects a reload that does not fit the GPU", () => {
  const many = { instancesPerGpu: 13 } as const;
  expect(findings((stack) => triton(stack, { ...many, modelControl: "none" }, {}))).toEqual([]);
  expect(findings((stack) => triton(stack, many, {}))).toEqual([
    "test/host: gpu must have room for the models: GPU 0 has 16376 MiB, 14738 usable, and they need 15904 (triton 8208 + a reload of triton 7696): serve fewer models or towers, disable a service, or use a GPU with more memory",
  ]);
});

test("rejects a GPU that is newer than the image, but not without a GPU", () => {
  const image = "nvcr.io/nvidia/tritonserver:24.12-py3";
  const server = nvidia(image);
  expect(findings((stack) => triton(stack, { server }, { gpu: "b200" }))).toEqual([
    `test/triton: image must be 25.01 or newer for NVIDIA B200 SXM 180 GB (Blackwell), got '${image}'`,
  ]);
  const host = { gpu: "b200", accelerator: "cpu" } as const;
  expect(findings((stack) => triton(stack, { server }, host))).toEqual([]);
  const built = {
    kind: "tritonserver",
    image: tritonImage({ source: "build", buildArgs: { TRITON_IMAGE: image } }, undefined),
  } as const;
  expect(findings((stack) => triton(stack, { server: built }, { gpu: "b200" }))).toEqual([
    `test/triton: image.buildArgs.TRITON_IMAGE must be 25.01 or newer for NVIDIA B200 SXM 180 GB (Blackwell), got '${image}'`,
  ]);
});

test("reports all findings at once", () => {
  expect(
    findings((stack) => {
      triton(
        stack,
        {
          server: nvidia("tritonserver:latest"),
          gpus: [4],
          ports: { http: 1, grpc: 1, metrics: 2 },
        },
        {},
      );
    }),
  ).toEqual([
    "test/triton: image must name a version, like 'name:1.2' or better 'name@sha256:…', got 'tritonserver:latest'",
    "test/triton: gpus must be 0 to 3 (host.count is 4), got 4",
    "test/triton: ports.grpc must be free on the host, got 1, which triton (ports.http) uses",
  ]);
});

test("mounts a volume for further versions of each model, and serves the latest ones", () => {
  const { container, at } = synthTriton({ modelVersions: 2 });
  const volume = at("test/weights/versions");
  expect(volume.name).toMatch(/^test-weights-versions-[0-9a-f]{12}$/);
  expect(container.volumes.slice(0, 3)).toMatchObject([
    { container_path: "/models/openclip_vit_b32", read_only: false },
    { container_path: "/models/openclip_vit_b32.next", read_only: true },
    { container_path: "/models/openclip_vit_b32/1", read_only: true },
  ]);
  const apply = at("test/triton/configuration/apply/container");
  const [config] = apply.upload;
  // the fingerprint is that of the latest version
  expect(apply.command.slice(-2)).toEqual(["--versions", "/versions"]);
  expect(apply.volumes.at(-1)).toMatchObject({ container_path: "/versions", read_only: true });
  expect(config.content).toMatch(/version_policy \{\s+latest \{\s+num_versions: 2\s/);
});

test("rejects versions that Triton cannot load or that cached engines do not depend on", () => {
  expect(() => synthTriton({ modelVersions: 1, modelControl: "none" })).toThrow(
    "modelVersions must not be set when modelControl is none, because a running Triton then loads no version, got 1",
  );
  expect(() => synthTriton({ modelVersions: 1, backend: "tensorrt" })).toThrow(
    "modelVersions must not be set if TensorRT runs openclip_vit_b32_trt: its cached engines do not depend on the version, got 1",
  );
  expect(() => synthTriton({ modelVersions: 0 })).toThrow("modelVersions must be 1 to 8, got 0");
});
