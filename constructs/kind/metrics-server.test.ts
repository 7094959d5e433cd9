import { expect, test } from "vitest";
import { findings, synth } from "../test-synth.ts";
import { KindCluster } from "./kind-cluster.ts";
import { MetricsServer } from "./metrics-server.ts";

const image = "registry.k8s.io/metrics-server/metrics-server:v0.7.2";
const server = (name = image) =>
  synth((stack) => {
    const cluster = new KindCluster(stack, "cluster", {
      name: "clipstack",
      portMappings: [{ nodePort: 30092, hostPort: 8092 }],
      kubeconfig: "~/.kube/config",
    });
    new MetricsServer(stack, "metrics-server", { cluster, image: name });
  });
const pod = () => server().only("kubernetes_deployment_v1").spec.template.spec;

test("serves the metrics API", () => {
  const { only, address } = server();
  expect(only("kubernetes_api_service_v1").metadata.name).toBe("v1beta1.metrics.k8s.io");
  expect(only("kubernetes_api_service_v1").spec.service).toEqual({
    name: `\${${address("test/metrics-server/service")}.metadata[0].name}`,
    namespace: `\${${address("test/metrics-server/service")}.metadata[0].namespace}`,
  });
  const [port] = only("kubernetes_service_v1").spec.port;
  const [container] = pod().container;
  expect(container.port).toEqual([
    { name: port.target_port, container_port: 10_250, protocol: "TCP" },
  ]);
  expect(container.args).toContain("--secure-port=10250");
});

test("may only read nodes, pods and node metrics", () => {
  const rules = server().at("test/metrics-server/role").rule;
  expect(rules).toEqual([
    { api_groups: [""], resources: ["nodes/metrics"], verbs: ["get"] },
    { api_groups: [""], resources: ["pods", "nodes"], verbs: ["get", "list", "watch"] },
  ]);
});

test("is deployed once its pod is ready", () => {
  const { at } = server();
  expect(at("test/metrics-server/ready/ready").provisioner[0]["local-exec"].command).toMatch(
    /wait-rollout metrics-server --context kind-clipstack --namespace kube-system --replicas 1 /,
  );
});

test("rejects an image without a version", () => {
  const found = findings((stack) => {
    const cluster = new KindCluster(stack, "cluster", {
      name: "clipstack",
      portMappings: [{ nodePort: 30092, hostPort: 8092 }],
      kubeconfig: "~/.kube/config",
    });
    new MetricsServer(stack, "metrics-server", { cluster, image: "metrics-server" });
  });
  expect(found).toHaveLength(1);
});
