import { describe, expect, test } from "vitest";
import { findingsOf } from "../../constructs/checks/findings.ts";
import type { ChartValues } from "../../constructs/kubernetes/chart-values.ts";
import { Testing } from "../../constructs/terraform/cdktf.ts";
import { KubernetesStack } from "../../stacks/kubernetes.ts";
import { parseSettings } from "../../stacks/settings/settings.ts";
import { noHelm, template } from "./test-helm.ts";

/** The chart accepts everything that the checks of the stack accept. */

const sha256 = "0123456789abcdef".repeat(4);
const fetched = `model: { weights: init, url: https://models.example/model.onnx, sha256: ${sha256} }`;
const cached = "engineCache: { enabled: true, storageClass: nfs }";

const accepted: readonly (readonly [string, string])[] = [
  ["as they are", ""],
  ["on CPU", "accelerator: cpu\ntriton: { server: emulator, autoscaler: { metric: cpu } }"],
  [
    "with an embed server on each GPU",
    "embed: { backend: onnxruntime, autoscaler: { maxReplicas: 4 } }\ntriton: { enabled: false }",
  ],
  [
    "with four GPUs per pod and one spare",
    "nodePool: { nodes: 3, gpusPerNode: 4 }\nquota: { gpus: 12 }\ntriton: { gpusPerPod: 4, spareGpu: true, autoscaler: { maxReplicas: 2 } }",
  ],
  [
    "with TensorRT and a cache",
    `${fetched}\ntriton: { backend: tensorrt, instancesPerGpu: 2, ${cached} }`,
  ],
  ["with TensorRT and none", "triton: { backend: tensorrt }"],
  ["with NVIDIA's image", `${fetched}\ntriton: { image: 'nvcr.io/nvidia/tritonserver:26.07-py3' }`],
  [
    "with the Prometheus adapter",
    "scraping: annotations\ntriton: { autoscaler: { source: prometheus-adapter } }",
  ],
  [
    "with objects that exist in the namespace",
    "createNamespace: false\nimagePullSecret: registry\nembed: { service: LoadBalancer, keySecret: key, keysSecret: clients, tls: { secret: cert } }\nmodel: { weights: pvc, claim: weights, folder: vit }",
  ],
  [
    "with several models and TensorRT",
    "models: [openclip-vit-b32, dinov2-small]\nnodePool: { gpu: a100-sxm4-80gb }\ntriton: { backend: tensorrt }",
  ],
  [
    "with the downloaded weights of several models",
    `models: [{ name: openclip-vit-b32, modalities: [image] }, { name: siglip2-base-224, modalities: [text] }]
model:
  weights: init
  towers:
    openclip-vit-b32:image: { url: https://models.example/clip.onnx, sha256: ${sha256} }
    siglip2-base-224:text:
      url: https://models.example/siglip.onnx
      sha256: ${sha256}
      tokenizer: { url: https://models.example/tokenizer.model, sha256: ${sha256} }`,
  ],
  [
    "with several models on a volume",
    `models: [openclip-vit-b32, dinov2-small]
createNamespace: false
model: { weights: pvc, claim: weights, towers: { dinov2-small:image: { sha256: ${sha256} } } }`,
  ],
  ["with verified weights in the image", `model: { weights: image, sha256: ${sha256} }`],
  [
    "with verified weights of one tower in the image",
    `models: [openclip-vit-b32, dinov2-small]
model: { weights: image, towers: { dinov2-small:image: { sha256: ${sha256} } } }`,
  ],
  ["with a fixed number of pods", "triton: { autoscaler: { minReplicas: 3, maxReplicas: 3 } }"],
];

function valuesOf(yaml: string): ChartValues {
  const stack = new KubernetesStack(
    Testing.app(),
    "k8s-gpu",
    parseSettings("kubernetes", "test", yaml),
  );
  expect(findingsOf(stack)).toEqual([]);
  const { resource } = JSON.parse(Testing.synth(stack, true));
  const [release] = Object.values(resource.helm_release) as { values: [string] }[];
  return JSON.parse(release!.values[0]);
}

describe.skipIf(noHelm !== "")(`the chart of k8s-gpu${noHelm && ` (skipped: ${noHelm})`}`, () => {
  test.each(accepted)("accepts the settings %s", (_, yaml) => {
    expect(() => template(valuesOf(yaml))).not.toThrow();
  });
});
