import { expect, test } from "vitest";
import { expression } from "./expression.ts";
import { findings, hostIn, synth } from "./test-synth.ts";

test("talks to the Docker endpoint with a provider that knows GPU devices", () => {
  const { json, address } = synth((stack) => hostIn(stack, { docker: "ssh://gpu@host-1" }));
  const waiting = expression(`${address("test/host/prepared")}.input.docker`);
  expect(json.provider.docker).toEqual([
    { host: "ssh://gpu@host-1" },
    { alias: "services", host: waiting },
  ]);
  expect(json.terraform.required_providers.docker).toEqual({
    source: "kreuzwerker/docker",
    version: "~> 4.5",
  });
});

test("makes one network for its services", () => {
  const network = synth((stack) => hostIn(stack)).only("docker_network");
  expect(network.name).toBe("test-network");
});

test("knows the facts of its GPU from the catalogue", () => {
  let vramMiB = 0;
  synth((stack) => {
    vramMiB = hostIn(stack, { gpu: "t4" }).gpu.vramMiB;
  });
  expect(vramMiB).toBe(15_360);
});

test("is reached on the loopback interface unless the port is exposed on another machine", () => {
  synth((stack) => {
    const remote = hostIn(stack, { docker: "ssh://gpu@gpu-host.example:2222" });
    expect(remote.clientAddress("all-interfaces")).toBe("gpu-host.example");
    expect(remote.clientAddress("loopback")).toBe("127.0.0.1");
  });
  synth((stack) => {
    expect(hostIn(stack).clientAddress("all-interfaces")).toBe("127.0.0.1");
  });
});

test("leaves it to Terraform to find a relative path, and keeps an absolute one", () => {
  synth((stack) => {
    const host = hostIn(stack);
    // biome-ignore lint/suspicious/noTemplateCurlyInString: an expression of Terraform
    expect(host.path("models")).toBe('${abspath("${path.root}/../../../models")}');
    expect(host.path("/srv/models")).toBe("/srv/models");
  });
});

test("fails when the models of a GPU do not fit", () => {
  expect(
    findings((stack) => {
      const host = hostIn(stack);
      host.run(stack, [1], { service: "triton-onnx", backend: "onnx", instances: 30 });
    }),
  ).toEqual([
    "test/host: gpu must have room for the models: GPU 1 has 16376 MiB, 14738 usable, and they need 18302 (triton-onnx 18302)",
  ]);
});

test("counts no GPU memory when the accelerator is cpu", () => {
  expect(
    findings((stack) => {
      const host = hostIn(stack, { accelerator: "cpu" });
      host.run(stack, [9], { service: "triton-onnx", backend: "onnx", instances: 30 });
    }),
  ).toEqual([]);
});
