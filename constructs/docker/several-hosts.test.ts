import { Construct } from "constructs";
import { expect, test } from "vitest";
import { EnvironmentOutput } from "../stack/environment-output.ts";
import type { TerraformStack } from "../terraform/cdktf.ts";
import { synth } from "../test-synth.ts";
import { EmbedServer } from "./embed-server.ts";
import { GpuHost } from "./gpu-host.ts";
import { ModelWeights } from "./model-weights.ts";
import { TritonServer } from "./triton-server.ts";

/** Host with its services under one construct. The ids below it are the same on every host. */
class Site extends Construct {
  constructor(scope: Construct, id: string) {
    super(scope, id);
    const host = new GpuHost(this, "host", { docker: "ssh://gpu@gpu", gpu: "l4", count: 1 });
    const tools = host.image("embed-cpu", { source: "pull", name: "embed:1" });
    const weights = new ModelWeights(this, "weights", {
      host,
      tools,
      source: "volume",
      modelRepository: "model_repository",
    });
    const triton = new TritonServer(this, "triton", {
      host,
      tools,
      weights,
      server: { kind: "tritonserver", image: { source: "pull", name: "triton:1" } },
      backend: "tensorrt",
      ports: { http: 8010, grpc: 8011, metrics: 8012 },
      gpus: [0],
    });
    const embed = new EmbedServer(this, "embed", {
      host,
      image: tools,
      backend: { kind: "triton", upstreams: [triton] },
      expose: "all-interfaces",
      allowPlaintext: true,
    });
    new EnvironmentOutput(this, "environment", {
      where: host,
      services: [embed, triton],
      output: `environment_${id}`,
    });
  }
}

const twoHosts = () =>
  synth((stack: TerraformStack) => {
    new Site(stack, "a");
    new Site(stack, "b");
  });

test("names containers, networks and volumes of two hosts in one stack differently", () => {
  const { all } = twoHosts();
  for (const type of ["docker_container", "docker_network", "docker_volume"]) {
    const names = all(type).map(({ name }) => name.replace(/\$\{.*\}$/, ""));
    expect(names.length, type).toBeGreaterThan(1);
    expect(new Set(names).size, type).toBe(names.length);
  }
});

test("configures one default Docker provider and aliases for the others", () => {
  const aliases = twoHosts().json.provider.docker.map(({ alias }: { alias?: string }) => alias);
  expect(aliases).toEqual([undefined, "services", "b-host", "b-host-services"]);
});

test("manages the objects of the second host through its own provider", () => {
  const { at } = twoHosts();
  expect(at("test/a/host/network")).not.toHaveProperty("provider");
  for (const path of [
    "host/network",
    "host/embed-cpu-image/image",
    "weights/volume",
    "weights/check/container",
    "triton/configuration/volume",
    "triton/engine-cache/volume",
  ]) {
    expect(at(`test/b/${path}`).provider, path).toBe("docker.b-host");
  }
  expect(at("test/b/triton/container").provider).toBe("docker.b-host-services");
});

test("has an output and an API key for each host", () => {
  const { json } = twoHosts();
  expect(Object.keys(json.output)).toEqual(["environment_a", "environment_b"]);
  expect(Object.keys(json.variable)).toEqual(["a_embed_api_key", "b_embed_api_key"]);
});
