import { expect, test } from "vitest";
import { environment, environmentOutput } from "../../contract/environment.ts";
import { EmbedServer } from "../docker/embed-server.ts";
import type { GpuHostProps } from "../docker/host-plan.ts";
import { dependenciesIn, findings, hostIn, synth } from "../test-synth.ts";
import { EnvironmentOutput } from "./environment-output.ts";

function synthOutput(host: Partial<GpuHostProps> = {}) {
  const { json } = synth((stack) => {
    const where = hostIn(stack, host);
    const { tools, weights } = dependenciesIn(stack, where);
    const embed = new EmbedServer(stack, "embed", {
      host: where,
      image: tools,
      backend: { kind: "onnxruntime", weights, gpus: [0] },
      port: 8002,
      expose: "loopback",
    });
    new EnvironmentOutput(stack, "environment", { where, services: [embed] });
  });
  return environment.parse(json.output[environmentOutput].value);
}

test("is one JSON value with the name that clipstack reads", () => {
  expect(synthOutput()).toMatchObject({
    schema: 4,
    models: [{ name: "openclip-vit-b32" }],
    name: "test",
    where: "unix:///var/run/docker.sock",
    accelerator: "gpu",
    services: [{ name: "embed" }],
  });
});

test("contains the price of all GPUs with its date", () => {
  expect(synthOutput({ count: 4 }).gpu).toEqual({
    name: "rtx-4080",
    count: 4,
    vramMiB: 16_376,
    usdPerHour: 8,
    priceDate: "2026-11",
  });
});

test("has no GPU if the accelerator is cpu", () => {
  const output = synthOutput({ accelerator: "cpu" });
  expect(output.accelerator).toBe("cpu");
  expect(output).not.toHaveProperty("gpu");
});

test("rejects an output without services", () => {
  const [finding] = findings((stack) => {
    new EnvironmentOutput(stack, "environment", { where: hostIn(stack), services: [] });
  });
  expect(finding).toMatch(/^test\/environment: services: /);
});
