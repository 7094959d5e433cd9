import { expect, test } from "vitest";
import { kindImage } from "../../stacks/shared/image-builds.ts";
import { expression } from "../terraform/expression.ts";
import { findings, synth } from "../test-synth.ts";
import { KindCluster } from "./kind-cluster.ts";
import { KindImage, type KindImageSource } from "./kind-image.ts";

const build = (source: KindImageSource) => {
  let image: KindImage | undefined;
  const result = synth((stack) => {
    const cluster = new KindCluster(stack, "cluster", {
      name: "clipstack",
      portMappings: [{ nodePort: 30092, hostPort: 8092 }],
      kubeconfig: "~/.kube/config",
    });
    image = new KindImage(stack, "image", { cluster, source });
  });
  if (image === undefined) throw new Error("not built");
  const loaded = result.at("test/image/loaded");
  return { ...result, image, loaded, requirements: result.at("test/cluster/check/doctor") };
};

test("builds the image with its weights, named by its content, after the cluster exists", () => {
  const { image, at, address, requirements } = build(kindImage({ source: "build" }));
  expect(image.name).toMatch(/^clipstack\/embed:k8s-cpu-\$\{local\.[\w-]+\}$/);
  expect(at("test/image/image/weights-image")).toMatchObject({
    name: image.name,
    build: { dockerfile: "image/Dockerfile.weights" },
  });
  expect(at("test/image/image/image").depends_on).toEqual([address("test/cluster/cluster")]);
  expect(requirements.triggers_replace.files).toEqual([
    {
      path: "model_repository/openclip_vit_b32/1/model.onnx",
      on: "here",
      what: "the file with the weights",
    },
  ]);
});

test("loads the built image into the nodes, and again into another cluster", () => {
  const { image, loaded, address } = build(kindImage({ source: "build" }));
  expect(loaded.provisioner[0]["local-exec"]).toMatchObject({
    command: 'kind load docker-image --name "$NAME" "$IMAGE"',
    environment: { NAME: "clipstack", IMAGE: image.name },
  });
  expect(loaded.triggers_replace).toEqual({
    cluster: expression(`${address("test/cluster/cluster")}.id`),
    image: image.name,
  });
  expect(loaded.depends_on).toEqual([address("test/image/image/weights-image")]);
});

test("uses an existing image without a build or pull", () => {
  const { image, json, loaded, requirements } = build({ source: "local", name: "mine:1" });
  expect(image.name).toBe("mine:1");
  expect(json.resource).not.toHaveProperty("docker_image");
  const [found] = Object.keys(json.data.docker_image);
  // the image can change under the same name
  expect(loaded.triggers_replace["clipstack/image-id"]).toBe(
    expression(`data.docker_image.${found}.id`),
  );
  expect(requirements.triggers_replace.kind.images).toEqual(["mine:1"]);
});

test("rejects an image without a version", () => {
  const of = (name: string) =>
    findings((stack) => {
      const cluster = new KindCluster(stack, "cluster", {
        name: "clipstack",
        portMappings: [{ nodePort: 30092, hostPort: 8092 }],
        kubeconfig: "~/.kube/config",
      });
      new KindImage(stack, "image", { cluster, source: { source: "local", name } });
    });
  expect(of("mine")).toEqual([
    "test/image: image must name a version, like 'name:1.2' or better 'name@sha256:…', got 'mine'",
  ]);
});
