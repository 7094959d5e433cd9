import { mkdirSync, mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { parseArtefact } from "../../artefact/artefact.ts";
import type { RunningInstance } from "../../artefact/simulation.ts";
import type { SimulationPlan } from "../../artefact/simulation-types.ts";
import {
  dockerDocument,
  type TestDocument,
  volumesDocument,
} from "../../artefact/test-artefact.ts";
import { deployedModelConfig } from "../../contract/deployed-model-config.ts";
import { defaultModel, defaultModels } from "../../contract/models/index.ts";
import { openService } from "../../target/service/target-service.ts";
import { checkWiring } from "./wiring.ts";

/** Result for a Triton server with this configuration name and a repository with the configuration `deployed`. */
function wiringOf(configName: string, document: TestDocument = dockerDocument()) {
  const repository = mkdtempSync(join(tmpdir(), "clipstack-wiring-"));
  const configs = join(repository, "openclip_vit_b32", "configs");
  mkdirSync(configs, { recursive: true });
  writeFileSync(join(configs, "deployed.pbtxt"), "");
  const { workloads } = parseArtefact(JSON.stringify(document), "cdk.tf.json");
  const workload = workloads.find((it) => it.service.name === "triton-onnx");
  if (workload === undefined) throw new Error("no Triton server");
  const args = [
    "tritonserver",
    `--model-repository=${repository}`,
    `--model-config-name=${configName}`,
  ];
  // only the start arguments of a running process are read
  const running = { instance: { workload, role: "triton", args } } as unknown as RunningInstance;
  const plan: SimulationPlan = {
    instances: [],
    proxies: [],
    faults: [],
    notes: [],
    targets: [],
    hostPorts: [],
  };
  return checkWiring(openService("test", workload, defaultModels, [running], []), plan);
}

test("passes a configuration that the model repository has", () => {
  expect(wiringOf("deployed").map(({ outcome }) => outcome)).toEqual(["pass"]);
});

test("fails on a configuration that the model repository does not have", () => {
  const results = wiringOf("nope");
  expect(results.map(({ outcome, message }) => [outcome, message])).toEqual([
    ["fail", "--model-config-name=nope: openclip_vit_b32 has no configs/nope.pbtxt"],
  ]);
});

const configured = (change: (text: string) => string) => {
  const { text } = deployedModelConfig({ spec: defaultModel, modelKind: "fp32" }, 0);
  return wiringOf("deployed", volumesDocument(change(text))).map(({ message }) => message);
};

test("passes a configuration of the artefact, expressions of Terraform included", () => {
  expect(configured((text) => `# \${substr(local.sha256, 0, 12)}\n${text}`)).toEqual([
    "publishes 8010 → 8000, 8011 → 8001, 8012 → 8002",
  ]);
});

test("fails on a configuration of another model", () => {
  expect(configured((text) => text.replace("openclip_vit_b32", "openclip_vit_b32_trt"))).toEqual([
    "deployed.pbtxt: name must be openclip_vit_b32, got openclip_vit_b32_trt",
  ]);
});

test("fails on an invalid configuration that Triton would accept silently", () => {
  expect(configured((text) => text.replace("count: 1", "count: 0"))).toEqual([
    "deployed.pbtxt: openclip_vit_b32: instance_group[0].count must be an integer of at least 1, got 0",
  ]);
});

test("fails on a configuration that cannot be read", () => {
  expect(configured((text) => text.replace("max_batch_size", "max_batch_sise"))).toEqual([
    "deployed.pbtxt:6: inference.ModelConfig: unknown field 'max_batch_sise': max_batch_sise: 32",
  ]);
});
