import { expect, test } from "vitest";
import { parse } from "yaml";
import { findings, synth } from "../test-synth.ts";
import { KindCluster, type KindClusterProps } from "./kind-cluster.ts";

const required: KindClusterProps = {
  name: "clipstack",
  portMappings: [{ nodePort: 30092, hostPort: 8092 }],
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

test("uses kind's default node image unless another is set", () => {
  expect(synthCluster().create.environment.KIND_FLAGS).toBe("");
  expect(synthCluster({ nodeImage: "node:1" }).create.environment.KIND_FLAGS).toBe(
    "--image=node:1",
  );
});

test("deletes the cluster with the values in the state", () => {
  const { destroy, cluster } = synthCluster();
  expect(destroy.when).toBe("destroy");
  expect(destroy.command).toContain("kind delete cluster");
  // biome-ignore lint/suspicious/noTemplateCurlyInString: an expression of Terraform
  expect(destroy.environment.NAME).toBe("${self.input.name}");
  expect(cluster.input.name).toBe("clipstack");
});

// biome-ignore-start lint/suspicious/noTemplateCurlyInString: expressions of Terraform
test.each([
  [
    "name",
    { name: "other" },
    "cannot change: it was created with '${self.output.name}', got 'other'",
  ],
  ["nodeImage", { nodeImage: "node:1" }, "got 'node:1'"],
  ["portMappings", { portMappings: [{ nodePort: 30092, hostPort: 9092 }] }, "got '30092 to 9092'"],
  // biome-ignore-end lint/suspicious/noTemplateCurlyInString: expressions of Terraform
] as const)("rejects a changed %s of an existing cluster", (key, props, words) => {
  const { lifecycle, triggers_replace: replaced } = synthCluster(props).cluster;
  const condition = lifecycle.postcondition.find((it: { condition: string }) =>
    it.condition.startsWith(`\${self.output.${key} == `),
  );
  expect(condition.error_message).toContain(`cluster.${key} of an existing cluster cannot change`);
  expect(condition.error_message).toContain(words);
  // the state keeps the original values
  expect(lifecycle.ignore_changes).toEqual(["input"]);
  expect(replaced).toBeUndefined();
});

test("rejects an existing cluster of the same name", () => {
  expect(synthCluster().create.command).toMatch(/^if kind get clusters .* exit 1; fi; printf/);
});

test("explains how to recover after the cluster was deleted by other means", () => {
  const conditions = synthCluster().cluster.lifecycle.postcondition;
  const { condition, error_message: message } = conditions.at(-1);
  // unknown, so not evaluated, until the cluster exists
  expect(condition).toContain("self.output.kubeconfig");
  expect(message).toMatch(
    /^The kind cluster of this deployment no longer exists: .* \(terraform\.test\.tfstate/,
  );
});

test("checks this machine before anything is created", () => {
  const { at, address } = synthCluster({ nodeImage: "node:1" });
  expect(at("test/cluster/cluster").depends_on).toEqual([address("test/cluster/check/doctor")]);
  // only one check, because the objects in the cluster could not be deleted while their provider depends on another one
  expect(at("test/cluster/check/doctor").lifecycle).toEqual({
    ignore_changes: ["triggers_replace"],
  });
  expect(at("test/cluster/check/doctor").triggers_replace).toMatchObject({
    environment: "test",
    kind: { cluster: "clipstack", nodeImage: "node:1", images: [] },
    ports: [
      {
        service: "cluster",
        setting: "portMappings.0.hostPort",
        port: 8092,
        address: "127.0.0.1",
      },
    ],
  });
});

test("configures the providers from the cluster's output, which is unknown until it exists", () => {
  const { json, address } = synthCluster();
  const cluster = address("test/cluster/cluster");
  const access = {
    config_path: `\${${cluster}.output.kubeconfig}`,
    config_context: `\${${cluster}.output.context}`,
  };
  expect(json.provider.kubernetes).toEqual([access]);
  // also without a chart, because a previously installed one is removed through this provider
  expect(json.provider.helm).toEqual([{ kubernetes: access }]);
});

test("rejects two NodePorts with the same host port", () => {
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
    "test/cluster: portMappings.1.hostPort must be free on the host, got 8092, which cluster (portMappings.0.hostPort) uses",
  ]);
});
