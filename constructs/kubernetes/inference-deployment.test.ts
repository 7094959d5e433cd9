import { expect, test } from "vitest";
import { defaultModel, modelCatalogue } from "../../contract/models/index.ts";
import { servedModels } from "../../contract/server/model-list.ts";
import { KindCluster } from "../kind/kind-cluster.ts";
import { KindImage } from "../kind/kind-image.ts";
import type { TerraformStack } from "../terraform/cdktf.ts";
import { findings, synth } from "../test-synth.ts";
import { InferenceDeployment, type InferenceDeploymentProps } from "./inference-deployment.ts";
import { InferenceNamespace } from "./inference-namespace.ts";

interface DeploymentOptions extends Partial<Omit<InferenceDeploymentProps, "image">> {
  readonly image?: string;
}

function deployment(
  stack: TerraformStack,
  { image = "clipstack/embed:k8s-cpu", ...props }: DeploymentOptions = {},
) {
  const cluster = new KindCluster(stack, "cluster", {
    name: "clipstack",
    portMappings: [{ nodePort: 30092, hostPort: 8092 }],
    kubeconfig: "~/.kube/config",
  });
  const namespace = new InferenceNamespace(stack, "namespace", {
    name: "clipstack",
    cluster,
    deployWith: "kubernetes",
    quota: {
      requests: { cpuMillicores: 1750, memoryMiB: 7168 },
      limits: { cpuMillicores: 7000, memoryMiB: 10_752 },
      pods: 10,
    },
    limitRange: {
      defaultRequests: { cpuMillicores: 100, memoryMiB: 128 },
      defaultLimits: { cpuMillicores: 500, memoryMiB: 512 },
      max: { cpuMillicores: 2000, memoryMiB: 4096 },
    },
  });
  return new InferenceDeployment(stack, "inference", {
    cluster,
    namespace,
    image: new KindImage(stack, "image", {
      cluster,
      source: { source: "local", name: image },
    }),
    nodePort: 30092,
    resources: {
      requests: { cpuMillicores: 250, memoryMiB: 1024 },
      limits: { cpuMillicores: 1000, memoryMiB: 1536 },
    },
    autoscaler: { minReplicas: 2, maxReplicas: 6, cpuPercent: 60, scaleDownWindowSeconds: 180 },
    budget: { maxUnavailable: 1 },
    ...props,
  });
}

function synthDeployment(props: DeploymentOptions = {}) {
  let inference: InferenceDeployment | undefined;
  const result = synth((stack) => {
    inference = deployment(stack, props);
  });
  if (inference === undefined) throw new Error("not built");
  const { spec } = result.only("kubernetes_deployment_v1");
  const pod = spec.template.spec;
  return { ...result, inference, spec, pod, container: pod.container[0] };
}

test("allows egress to the ports of the hosts of image URLs", () => {
  const imageUrlHosts = ["images.example", "http://10.0.0.7:9000", "https://cdn.example"];
  const { only } = synthDeployment({ server: { imageUrlHosts } });
  expect(only("kubernetes_network_policy_v1").spec.egress.slice(1)).toEqual(
    ["443", "9000"].map((port) => ({ ports: [{ port, protocol: "TCP" }] })),
  );
});

test("is deployed once the minimum number of pods is ready, after every change", () => {
  const { only, at, address } = synthDeployment();
  const gate = at("test/inference/ready/ready");
  const deployed = address("test/inference/deployment");
  expect(gate.lifecycle.replace_triggered_by).toEqual([deployed]);
  // replace_triggered_by covers updates, but not a Deployment that is recreated after a deletion outside Terraform
  expect(gate.triggers_replace).toEqual({ [deployed]: `\${${deployed}.id}` });
  expect(gate.depends_on).toContain(address("test/inference/autoscaler"));
  expect(gate.provisioner[0]["local-exec"].command).toMatch(
    /wait-rollout clipstack-embed --context kind-clipstack --namespace clipstack --replicas 2 --timeout 300$/,
  );
  // the provider's own wait does not report the cause
  expect(only("kubernetes_deployment_v1").wait_for_rollout).toBe(false);
});

test("replaces the pods when the image changes under the same name", () => {
  const { spec, at, address } = synthDeployment();
  const [found] = Object.keys(synthDeployment().json.data.docker_image);
  const id = `\${data.docker_image.${found}.id}`;
  expect(spec.template.metadata.annotations).toMatchObject({ "clipstack/image-id": id });
  expect(at("test/image/loaded").triggers_replace).toEqual({
    cluster: `\${${address("test/cluster/cluster")}.id}`,
    image: "clipstack/embed:k8s-cpu",
    "clipstack/image-id": id,
  });
});

test("serves every model of the props, the first by default", () => {
  const own = { ...defaultModel, name: "own-model" };
  const models = [modelCatalogue.get("dinov2-small")!, own];
  const { container, inference, only } = synthDeployment({ models });
  expect(container.volume_mount).toContainEqual({
    name: "models",
    mount_path: "/etc/clipstack/models",
    read_only: true,
  });
  const { metadata, data } = only("kubernetes_config_map_v1");
  expect(metadata.name).toBe("clipstack-embed-models");
  expect(servedModels.parse(data["models.json"]).map(({ name }) => name)).toEqual([
    "dinov2-small",
    "own-model",
  ]);
  expect(inference.models).toEqual(models);
  expect(inference.service).toMatchObject({ models: ["dinov2-small", "own-model"] });
});

test("rejects a memory limit below the weights of the models", () => {
  const models = ["openclip-vit-l14", "siglip2-base-224"].map((name) => modelCatalogue.get(name)!);
  expect(findings((stack) => deployment(stack, { models }))).toEqual([
    "test/inference: resources.limits.memoryMiB must be more than 3064 MiB, the weights of the models, got 1536 MiB",
  ]);
});

test("uses a namespace that rejects privileged pods", () => {
  const { only, address } = synthDeployment();
  const namespace = only("kubernetes_namespace_v1");
  expect(namespace.metadata).toEqual({
    name: "clipstack",
    labels: { "pod-security.kubernetes.io/enforce": "restricted" },
  });
  expect(namespace.depends_on).toEqual([address("test/cluster/cluster")]);
});

test("starts after its image is loaded into the cluster", () => {
  const { only, address } = synthDeployment();
  expect(only("kubernetes_deployment_v1").depends_on).toEqual([address("test/image/loaded")]);
});

test("outputs its endpoints and its addresses in the state", () => {
  const { inference, address } = synthDeployment();
  expect(inference.service).toEqual({
    name: "inference",
    kind: "embed",
    backend: "onnxruntime",
    models: ["openclip-vit-b32"],
    modelKind: "fp32",
    workload: "clipstack-embed",
    resources: {
      deployment: address("test/inference/deployment"),
      service: address("test/inference/service"),
      cluster: address("test/cluster/cluster"),
    },
    endpoints: [
      { protocol: "embed-http", url: "http://127.0.0.1:8092", name: "embed-http" },
      { protocol: "metrics", url: "http://127.0.0.1:8092" },
    ],
  });
});

test("reports all findings at once", () => {
  expect(
    findings((stack) =>
      deployment(stack, {
        image: "clipstack/embed:latest",
        nodePort: 8092,
        autoscaler: {
          minReplicas: 9,
          maxReplicas: 8,
          cpuPercent: 60,
          scaleDownWindowSeconds: 180,
        },
        budget: { maxUnavailable: 0 },
        resources: {
          requests: { cpuMillicores: 250, memoryMiB: 1024 },
          limits: { cpuMillicores: 3000, memoryMiB: 1536 },
        },
      }),
    ),
  ).toEqual([
    "test/image: image must name a version, like 'name:1.2' or better 'name@sha256:…', got 'clipstack/embed:latest'",
    "test/inference: autoscaler.minReplicas must not exceed autoscaler.maxReplicas (8), got 9",
    "test/inference: budget.maxUnavailable must be at least 1, or no node can be drained, got 0",
    "test/inference: autoscaler.maxReplicas must be at most 1 to fit quota.limits.cpuMillicores 7000 (3000 per pod, and a rolling update adds 1 pod), got 8",
    "test/inference: resources.limits.cpuMillicores must be at most limitRange.max.cpuMillicores (2000), got 3000",
    "test/inference: nodePort must be 30000 to 32767, got 8092",
    "test/inference: nodePort must be one that kind maps (cluster.portMappings: 30092), got 8092",
  ]);
});
