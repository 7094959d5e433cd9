import { expect, test } from "vitest";
import { parse } from "yaml";
import { KindCluster, type KindClusterProps } from "./kind-cluster.ts";
import { findings, synth } from "./test-synth.ts";

const required: KindClusterProps = {
  name: "clipstack",
  portMappings: [{ nodePort: 30092, hostPort: 8092 }],
  images: ["clipstack/embed:k8s-cpu"],
  kubeconfig: "~/.kube/config",
};

function synthCluster(props: Partial<KindClusterProps> = {}) {
  const result = synth((stack) => new KindCluster(stack, "cluster", { ...required, ...props }));
  const [create, destroy] = result
    .at("test/cluster/cluster")
    .provisioner.map((it: Record<string, unknown>) => it["local-exec"]);
  return { ...result, cluster: result.at("test/cluster/cluster"), create, destroy };
}

test("maps the NodePorts to the loopback interface of this machine", () => {
  expect(parse(synthCluster().create.environment.KIND_CONFIG)).toEqual({
    kind: "Cluster",
    apiVersion: "kind.x-k8s.io/v1alpha4",
    nodes: [
      {
        role: "control-plane",
        extraPortMappings: [
          { containerPort: 30092, hostPort: 8092, listenAddress: "127.0.0.1", protocol: "TCP" },
        ],
      },
    ],
  });
});

test("creates the cluster and waits for it", () => {
  const { create } = synthCluster();
  expect(create.command).toContain("kind create cluster");
  expect(create.command).toContain("--wait 180s");
  expect(create.environment.NAME).toBe("clipstack");
});

test("takes kind's own node image unless another is given", () => {
  expect(synthCluster().create.environment.KIND_FLAGS).toBe("");
  expect(synthCluster({ nodeImage: "node:1" }).create.environment.KIND_FLAGS).toBe(
    "--image=node:1",
  );
});

test("deletes the cluster with what the state knows of it", () => {
  const { destroy, cluster } = synthCluster();
  expect(destroy.when).toBe("destroy");
  expect(destroy.command).toContain("kind delete cluster");
  // biome-ignore lint/suspicious/noTemplateCurlyInString: an expression of Terraform
  expect(destroy.environment.NAME).toBe("${self.input.name}");
  expect(cluster.input.name).toBe("clipstack");
});

test.each([
  ["name", { name: "other" }],
  ["node image", { nodeImage: "node:1" }],
  ["port mappings", { portMappings: [{ nodePort: 30092, hostPort: 9092 }] }],
] as const)("is created anew when its %s changes", (_, props) => {
  const before = synthCluster().cluster.triggers_replace;
  expect(synthCluster(props).cluster.triggers_replace).not.toEqual(before);
  expect(synthCluster({ images: ["other:1"] }).cluster.triggers_replace).toEqual(before);
});

test("copies the images into the nodes, and again into a new cluster", () => {
  const { at, address } = synthCluster();
  const images = at("test/cluster/images");
  const load = images.provisioner[0]["local-exec"];
  expect(load.command).toContain("kind load docker-image");
  expect(load.environment).toEqual({ NAME: "clipstack", IMAGES: "clipstack/embed:k8s-cpu" });
  expect(images.triggers_replace.cluster).toBe(`\${${address("test/cluster/cluster")}.id}`);
});

test("configures the provider from the cluster's output, which is unknown until it exists", () => {
  const { json, address } = synthCluster();
  const cluster = address("test/cluster/cluster");
  expect(json.provider.kubernetes).toEqual([
    {
      config_path: `\${${cluster}.output.kubeconfig}`,
      config_context: `\${${cluster}.output.context}`,
    },
  ]);
});

test("fails when two NodePorts want one port of this machine", () => {
  expect(
    findings(
      (stack) =>
        new KindCluster(stack, "cluster", {
          ...required,
          portMappings: [
            { nodePort: 30092, hostPort: 8092 },
            { nodePort: 30093, hostPort: 8092 },
          ],
        }),
    ),
  ).toEqual([
    "test/cluster: portMappings.1.hostPort must be free on the host, got 8092, which cluster (portMappings.0.hostPort) has",
  ]);
});
