import { expect, test } from "vitest";
import { findingsOf } from "../constructs/checks/findings.ts";
import { Testing } from "../constructs/terraform/cdktf.ts";
import { BulkStack } from "./bulk.ts";
import { parseSettings } from "./settings/settings.ts";

const stackOf = (yaml: string) =>
  new BulkStack(Testing.app(), "nightly", parseSettings("bulk", "test", yaml));
const findings = (yaml: string) =>
  findingsOf(stackOf(yaml)).map((line) => line.replace("nightly/job: ", ""));

function valuesOf(yaml: string) {
  const { resource } = JSON.parse(Testing.synth(stackOf(yaml)));
  const [release] = Object.values(resource.helm_release) as { values: string[] }[];
  return JSON.parse(release!.values[0]!);
}

test("installs the chart with a job and without servers", () => {
  const { embed, triton, bulk } = valuesOf("job: { schedule: 0 3 * * *, workers: 8 }");
  expect([embed.enabled, triton.enabled]).toEqual([false, false]);
  expect(bulk).toMatchObject({
    enabled: true,
    accelerator: "cpu",
    schedule: "0 3 * * *",
    workers: 8,
    job: "s3://vectors/job",
  });
});

test("on GPUs, the pods run on the nodes of the pool and on spot nodes", () => {
  const { bulk } = valuesOf(
    [
      "accelerator: gpu",
      `model: { weights: image, sha256: ${"a".repeat(64)} }`,
      "nodePool: { selector: { pool: gpu } }",
      "job: { tolerations: [{ key: spot, operator: Exists }] }",
    ].join("\n"),
  );
  expect(bulk).toMatchObject({
    accelerator: "gpu",
    runtimeClassName: "nvidia",
    nodeSelector: { pool: "gpu" },
    tolerations: [{ key: "nvidia.com/gpu" }, { key: "spot" }],
  });
});

test.each([
  [
    "accelerator: gpu\njob: { workers: 5 }",
    [
      "job.workers must be at most the GPUs of nodePool (4), got 5",
      "model.sha256 must be set when accelerator is gpu, because rows name the fingerprint of the model, got nothing",
    ],
  ],
  [
    "job: { credentialsSecret: bucket }",
    [
      "createNamespace must be false when job.credentialsSecret names an existing object of the namespace ('bucket'), got true",
    ],
  ],
])("rejects %j", (yaml, expected) => {
  expect(findings(yaml)).toEqual(expected);
});
