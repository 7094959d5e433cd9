import { describe, expect, test } from "vitest";
import { defaultModels } from "../../contract/models/index.ts";
import { embedImage } from "../../stacks/shared/image-builds.ts";
import { expression } from "../terraform/expression.ts";
import { findings, hostIn, synth } from "../test-synth.ts";
import type { GpuHost } from "./gpu-host.ts";
import type { GpuHostProps } from "./host-plan.ts";
import { hostRequirements } from "./host-requirements.ts";

test("configures the Docker provider, in a version that supports GPU devices", () => {
  const { json, address } = synth((stack) => hostIn(stack, { docker: "ssh://gpu@host-1" }));
  const inputOf = (path: string) => expression(`${address(path)}.input.docker`);
  expect(json.provider.docker).toEqual([
    { host: inputOf("test/host/check/doctor") },
    { alias: "services", host: inputOf("test/host/prepared") },
  ]);
  expect(json.terraform.required_providers.docker).toEqual({
    source: "kreuzwerker/docker",
    version: "~> 4.5",
  });
});

test("pulls from registries with the credentials of the Docker configuration", () => {
  const { json } = synth((stack) => hostIn(stack, { registries: ["nvcr.io", "mine:5000"] }));
  const [images, services] = json.provider.docker;
  expect(images.registry_auth).toEqual([{ address: "nvcr.io" }, { address: "mine:5000" }]);
  expect(services).not.toHaveProperty("registry_auth");
});

test("makes its resources depend on the host check", () => {
  const { at, address } = synth((stack) => hostIn(stack, { docker: "ssh://gpu@host-1" }));
  expect(at("test/host/check/doctor").input).toEqual({ docker: "ssh://gpu@host-1" });
  expect(at("test/host/prepared").input).toEqual({
    docker: expression(`${address("test/host/check/doctor")}.input.docker`),
  });
});

describe("requirements of the host", () => {
  const required = (props: Partial<GpuHostProps>, build: (host: GpuHost) => void) => {
    const { at } = synth((stack) => build(hostIn(stack, props)));
    return hostRequirements.parse(at("test/host/check/doctor").triggers_replace);
  };
  const use = {
    service: "triton",
    backend: "onnxruntime",
    instances: 1,
    models: defaultModels,
  } as const;

  test("lists what its services use", () => {
    const requirements = required({}, (host) => {
      host.require({
        ports: [
          { service: "triton", prop: "ports.http", port: 8010, expose: "all-interfaces" },
          { service: "triton", prop: "ports.metrics", port: 8012, expose: "loopback" },
        ],
        gpus: { ids: ["GPU-1", "GPU-2"], use },
        tritonImage: "nvcr.io/nvidia/tritonserver:26.07-py3",
      });
      host.image("triton", { source: "pull", name: "nvcr.io/nvidia/tritonserver:26.07-py3" });
      host.require({
        files: [{ path: "a.onnx", on: "here", what: "the weights" }],
        disk: [{ what: "weights", miB: 1 }],
      });
    });
    expect(requirements).toEqual({
      schema: 1,
      environment: "test",
      docker: "unix:///var/run/docker.sock",
      gpu: {
        name: "rtx-4080",
        label: "NVIDIA GeForce RTX 4080",
        count: 4,
        vramMiB: 16_376,
        computeCapability: "8.9",
        dataCentre: false,
        uses: [{ service: "triton", gpus: ["GPU-1", "GPU-2"], miB: 1_104 }],
        drivers: [{ image: "nvcr.io/nvidia/tritonserver:26.07-py3", cuda: 13, branch: 580 }],
      },
      ports: [
        { service: "triton", setting: "ports.http", port: 8010, address: "0.0.0.0" },
        { service: "triton", setting: "ports.metrics", port: 8012, address: "127.0.0.1" },
      ],
      disk: [
        {
          what: "nvcr.io/nvidia/tritonserver:26.07-py3",
          miB: 20_480,
          image: "nvcr.io/nvidia/tritonserver:26.07-py3",
        },
        { what: "weights", miB: 1 },
      ],
      files: [{ path: "a.onnx", on: "here", what: "the weights" }],
    });
  });

  test("has no GPU entry without GPU use", () => {
    expect(required({}, () => {})).not.toHaveProperty("gpu");
    expect(
      required({ accelerator: "cpu" }, (host) => host.require({ gpus: { ids: [0], use } })),
    ).not.toHaveProperty("gpu");
  });

  test("includes disk space for a built image", () => {
    const { disk } = required({}, (host) => {
      const source = embedImage("embed-cpu", { source: "build" }, undefined);
      host.image("embed-cpu", source);
      host.image("embed-cpu", source);
    });
    expect(disk).toEqual([{ what: "embed-cpu image", miB: 2_048 }]);
  });
});

test("creates one network for its services", () => {
  const network = synth((stack) => hostIn(stack)).only("docker_network");
  expect(network.name).toBe("test-network");
});

test("reads the facts of its GPU from the catalogue", () => {
  let vramMiB = 0;
  synth((stack) => {
    vramMiB = hostIn(stack, { gpu: "t4" }).gpu.vramMiB;
  });
  expect(vramMiB).toBe(15_360);
});

test("accepts the facts of another GPU, and names each wrong one", () => {
  const facts = { name: "Card", memory: 12_282, architecture: "7.5", price: 0.35 } as const;
  synth((stack) => {
    expect(hostIn(stack, { gpu: facts }).gpu).toMatchObject({ name: "Card", vramMiB: 12_282 });
  });
  const gpu = { ...facts, memory: 0.5, price: Number.NaN };
  expect(findings((stack) => hostIn(stack, { gpu }))).toEqual([
    "test/host: gpu.memory must be a whole number, 2048 to 4194304, got 0.5",
    "test/host: gpu.price must be a number, got null",
  ]);
});

test("uses the loopback address for clients unless the port is exposed on another machine", () => {
  synth((stack) => {
    const remote = hostIn(stack, { docker: "ssh://gpu@gpu-host.example:2222" });
    expect(remote.clientAddress("all-interfaces")).toBe("gpu-host.example");
    expect(remote.clientAddress("loopback")).toBe("127.0.0.1");
  });
  synth((stack) => {
    expect(hostIn(stack).clientAddress("all-interfaces")).toBe("127.0.0.1");
  });
});

test("lets Terraform resolve a relative path", () => {
  synth((stack) => {
    const host = hostIn(stack);
    // biome-ignore lint/suspicious/noTemplateCurlyInString: an expression of Terraform
    expect(host.path("models")).toBe('${abspath("${path.root}/../../../models")}');
    expect(host.path("/srv/models")).toBe("/srv/models");
  });
});

describe("30 instances of a model", () => {
  const use = {
    service: "triton-onnx",
    backend: "onnxruntime",
    instances: 30,
    models: defaultModels,
  } as const;
  const found = (props: Partial<GpuHostProps>, ids: readonly number[]) =>
    findings((stack) => hostIn(stack, props).require({ gpus: { ids, use } }, stack));

  test("do not fit a GPU", () => {
    expect(found({}, [1])).toEqual([
      "test/host: gpu must have room for the models: GPU 1 has 16376 MiB, 14738 usable, and they need 18272 (triton-onnx 18272): serve fewer models or towers, disable a service, or use a GPU with more memory",
    ]);
  });

  test("use no GPU memory when the accelerator is cpu", () => {
    expect(found({ accelerator: "cpu" }, [9])).toEqual([]);
  });
});
