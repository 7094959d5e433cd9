import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { parseSettings } from "../settings/settings.ts";
import { clusterImageNotes } from "./cluster-images.ts";

const notes = (yaml: string) => clusterImageNotes("k8s", parseSettings("kubernetes", "test", yaml));
const siglip = "models: [siglip2-base-224]\n";
const images =
  "embed: { image: 'r.mine/embed:1' }\ntriton: { image: 'r.mine/triton:1', autoscaler: { metric: cpu } }\n";
const embed = (contents: string, models: string, target: string) =>
  `k8s: r.mine/embed:1 has ${contents}: MODELS=${models} docker buildx bake ${target} --push`;

test("a gateway to Triton images with the weights has the tokenizers of its models", () => {
  expect(notes(`${siglip}${images}`)).toEqual([
    embed(
      "the gateway and the tokenizers",
      "siglip2-base-224",
      "gateway --set gateway.tags=r.mine/embed:1",
    ),
    "k8s: r.mine/triton:1 has Triton and the weights: MODELS=siglip2-base-224 WEIGHTS=image docker buildx bake triton --set triton.tags=r.mine/triton:1 --push",
  ]);
});

test.each([
  ["without tokenizer files", "models: [openclip-vit-b32]\n", "openclip-vit-b32"],
  [
    "with the tokenizers on a volume",
    `${siglip}createNamespace: false\nmodel: { weights: pvc, claim: weights }\n`,
    "siglip2-base-224",
  ],
])("a gateway %s has none", (_, settings, models) => {
  const [first, second] = notes(`${settings}${images}`);
  expect(first).toBe(
    embed("the embed server without weights", models, "embed --set embed.tags=r.mine/embed:1"),
  );
  expect(second?.includes("WEIGHTS=image")).toBe(models === "openclip-vit-b32");
});

test("an embed image that executes models has the weights", () => {
  const weights = "the embed server and the weights";
  const target = "embed-weights --set embed-weights.tags=r.mine/embed:1";
  const emulator = images.replace("{ image: 'r.mine/triton:1',", "{ server: emulator,");
  expect(notes(`accelerator: cpu\n${siglip}${emulator}`)).toEqual([
    embed(weights, "siglip2-base-224", target),
  ]);
  const alone =
    "embed: { image: 'r.mine/embed:1', backend: onnxruntime }\ntriton: { enabled: false }";
  expect(notes(`accelerator: cpu\n${siglip}${alone}`)).toEqual([
    embed(weights, "siglip2-base-224", target),
  ]);
  expect(notes(`${siglip}${alone}`)[0]).toContain(
    "bake embed-weights --set embed-weights.contexts.clipstack/embed:cpu=target:embed-gpu --set embed-weights.tags=r.mine/embed:1 --push",
  );
});

test("images that exist already are left out", () => {
  const digest = `r.mine/embed@sha256:${"a".repeat(64)}`;
  const url = "url: https://models.example/m";
  expect(
    notes(
      `model: { weights: init, ${url}, sha256: ${"a".repeat(64)} }\nembed: { image: '${digest}' }\ntriton: { image: 'nvcr.io/nvidia/tritonserver:26.07-py3' }`,
    ),
  ).toEqual([]);
});

test("names targets of the bake file", () => {
  const bake = readFileSync(new URL("../../docker-bake.hcl", import.meta.url), "utf8");
  for (const target of ["gateway", "embed", "embed-gpu", "embed-weights", "triton"]) {
    expect(bake).toContain(`target "${target}" {`);
  }
});
