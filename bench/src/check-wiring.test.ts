import { mkdirSync, mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { parseArtefact } from "./artefact.ts";
import { checkWiring } from "./check-wiring.ts";
import type { RunningInstance } from "./embedded.ts";
import type { EmbeddedPlan } from "./embedded-plan.ts";
import { openService } from "./service-under-test.ts";
import { dockerDocument } from "./test-artefact.ts";

/** The result for a Triton that is started with a variant, over a repository that has one named `cpu`. */
function wiringOf(variant: string) {
  const repository = mkdtempSync(join(tmpdir(), "clipstack-wiring-"));
  const configs = join(repository, "openclip_vit_b32", "configs");
  mkdirSync(configs, { recursive: true });
  writeFileSync(join(configs, "cpu.pbtxt"), "");
  const { workloads } = parseArtefact(JSON.stringify(dockerDocument()), "cdk.tf.json");
  const workload = workloads.find((it) => it.service.name === "triton-onnx");
  if (workload === undefined) throw new Error("no Triton");
  const args = [
    "tritonserver",
    `--model-repository=${repository}`,
    `--model-config-name=${variant}`,
  ];
  // of a running process only what it was started with is asked for
  const running = { instance: { workload, role: "triton", args } } as unknown as RunningInstance;
  const plan: EmbeddedPlan = {
    instances: [],
    proxies: [],
    faults: [],
    notes: [],
    targets: [],
    hostPorts: [],
  };
  return checkWiring(openService("test", workload, [running], []), plan);
}

test("passes a variant that the model repository has", () => {
  expect(wiringOf("cpu").map(({ outcome }) => outcome)).toEqual(["pass"]);
});

test("fails on a variant that the model repository does not have", () => {
  const results = wiringOf("nope");
  expect(results.map(({ outcome, message }) => [outcome, message])).toEqual([
    ["fail", "--model-config-name=nope: openclip_vit_b32 has no configs/nope.pbtxt"],
  ]);
});
