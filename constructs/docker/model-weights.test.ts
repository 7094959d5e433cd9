import { expect, test } from "vitest";
import { expression } from "../expression.ts";
import { hostIn, synth } from "../test-synth.ts";
import { ModelWeights, type ModelWeightsProps } from "./model-weights.ts";

function synthWeights(props: Partial<ModelWeightsProps> = {}) {
  let weights: ModelWeights | undefined;
  const result = synth((stack) => {
    const host = hostIn(stack);
    const tools = host.image("embed-cpu", { source: "pull", name: "embed:1" });
    const required = {
      host,
      tools,
      source: "volume",
      modelRepository: "model_repository",
    } as const;
    weights = new ModelWeights(stack, "weights", { ...required, ...props });
  });
  if (weights === undefined) throw new Error("not built");
  return { ...result, weights };
}

test("copies the file of the deploying machine to a volume and verifies it there", () => {
  const { at, address, only } = synthWeights();
  const check = at("test/weights/check/container");
  expect(check.command.slice(0, 3)).toEqual(["check-weights", "--folder", "/weights"]);
  expect(check.upload[0]).toMatchObject({
    file: "/weights/model.onnx",
    source: expect.stringContaining("/model_repository/openclip_vit_b32/1/model.onnx"),
    source_hash: check.command[4],
  });
  expect(check.network_mode).toBe("none");
  expect(only("docker_volume").name).toContain("test-weights-");
  expect(at("test/host/prepared").depends_on).toContain(address("test/weights/check/container"));
});

test("keeps the weights out of the state: a path and a checksum, no content", () => {
  const [model] = synthWeights().at("test/weights/check/container").upload;
  expect(Object.keys(model).sort()).toEqual(["file", "source", "source_hash"]);
});

test("explains how to get missing weights", () => {
  const [precondition] = synthWeights().only("docker_volume").lifecycle.precondition;
  expect(precondition.error_message).toBe(
    "There are no weights at model_repository/openclip_vit_b32/1/model.onnx: 'npx clipstack model pull' downloads them, 'npx clipstack model generate' generates random ones.",
  );
});

test.each(["model_repository", "../models", "/srv/models"])(
  "checks the weights of %s with a condition that is not constant, which Terraform rejects",
  (modelRepository) => {
    const { only, at } = synthWeights({ modelRepository });
    const [precondition] = only("docker_volume").lifecycle.precondition;
    expect(precondition.condition).toMatch(/^\$\{local\.\w+ != "missing"\}$/);
    const folder = modelRepository.startsWith("/")
      ? modelRepository
      : `${expression("path.root")}/../../../${modelRepository}`;
    expect(at("test/weights/check/container").upload[0].source).toBe(
      `${folder}/openclip_vit_b32/1/model.onnx`,
    );
  },
);

test("mounts a folder of the host with host-path", () => {
  const { weights, json } = synthWeights({ source: "host-path", modelRepository: "/srv/models" });
  expect(weights.mounts("openclip_vit_b32_trt")).toEqual([
    {
      hostPath: "/srv/models/openclip_vit_b32/1",
      containerPath: "/models/openclip_vit_b32_trt/1",
      readOnly: true,
    },
  ]);
  expect(json.resource).not.toHaveProperty("docker_volume");
});

test("derives the version of host-path weights from their path", () => {
  const version = (modelRepository: string) =>
    synthWeights({ source: "host-path", modelRepository }).weights.version;
  expect(version("/srv/a")).toMatch(/^[0-9a-f]{12}$/);
  expect(version("/srv/a")).not.toBe(version("/srv/b"));
});

test("mounts nothing if the images contain the weights", () => {
  expect(synthWeights({ source: "image" }).weights.mounts("openclip_vit_b32")).toEqual([]);
});
