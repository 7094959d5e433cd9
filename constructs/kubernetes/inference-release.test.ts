import { expect, test } from "vitest";
import { kindImage } from "../../stacks/shared/image-builds.ts";
import { KindCluster } from "../kind/kind-cluster.ts";
import { KindImage, type KindImageSource } from "../kind/kind-image.ts";
import type { TerraformStack } from "../terraform/cdktf.ts";
import { expression } from "../terraform/expression.ts";
import { findings, synth } from "../test-synth.ts";
import type { InferenceDeploymentProps } from "./inference-deployment.ts";
import { InferenceNamespace } from "./inference-namespace.ts";
import { InferenceRelease } from "./inference-release.ts";

interface ReleaseOptions extends Partial<Omit<InferenceDeploymentProps, "image">> {
  readonly source?: KindImageSource;
}

function release(
  stack: TerraformStack,
  { source = kindImage({ source: "build" }), ...props }: ReleaseOptions = {},
) {
  const cluster = new KindCluster(stack, "cluster", {
    name: "clipstack",
    portMappings: [{ nodePort: 30092, hostPort: 8092 }],
    kubeconfig: "~/.kube/config",
  });
  const small = { cpuMillicores: 100, memoryMiB: 128 };
  const namespace = new InferenceNamespace(stack, "namespace", {
    name: "inference",
    cluster,
    deployWith: "helm",
    quota: {
      requests: { cpuMillicores: 1750, memoryMiB: 7168 },
      limits: { cpuMillicores: 7000, memoryMiB: 10_752 },
      pods: 10,
    },
    limitRange: {
      defaultRequests: small,
      defaultLimits: small,
      max: { cpuMillicores: 2000, memoryMiB: 4096 },
    },
  });
  return new InferenceRelease(stack, "embed", {
    cluster,
    namespace,
    image: new KindImage(stack, "image", { cluster, source }),
    chart: "helm/clipstack",
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

function synthRelease(options: ReleaseOptions = {}) {
  let inference: InferenceRelease | undefined;
  const result = synth((stack) => {
    inference = release(stack, options);
  });
  if (inference === undefined) throw new Error("not built");
  const installed = result.only("helm_release");
  return { ...result, inference, installed, values: JSON.parse(installed.values[0]) };
}

test("installs the chart after the image is loaded, in its own namespace", () => {
  const { installed, address } = synthRelease();
  expect(installed).toMatchObject({
    name: "clipstack",
    namespace: expression(`${address("test/namespace/namespace")}.metadata[0].name`),
    depends_on: [address("test/image/loaded")],
  });
  // `ready` waits and reports the cause of a failure; Helm would delete the pods
  expect(installed).toMatchObject({ wait: false, atomic: false });
});

test("leaves the ResourceQuota and LimitRange to the chart", () => {
  const { json, values } = synthRelease();
  expect(json.resource).not.toHaveProperty("kubernetes_resource_quota_v1");
  expect(json.resource).not.toHaveProperty("kubernetes_limit_range_v1");
  expect(values.quota).toMatchObject({ enabled: true, hard: { pods: "10" } });
  expect(values.limitRange.enabled).toBe(true);
});

test("passes the name and Terraform tag of the built image to the chart", () => {
  const { repository, tag } = synthRelease().values.embed.image;
  expect(repository).toBe("clipstack/embed");
  expect(tag).toMatch(/^k8s-cpu-\$\{local\.[\w-]+\}$/);
});

test("replaces the pods when the image changes under the same name", () => {
  const { values } = synthRelease({ source: { source: "local", name: "mine:1" } });
  expect(values.embed.image).toMatchObject({ repository: "mine", tag: "1" });
  expect(values.embed.podAnnotations["clipstack/image-id"]).toMatch(
    /^\$\{data\.docker_image\..*\.id\}$/,
  );
});

test("is deployed once the pods of the chart are ready, after every upgrade", () => {
  const { at, address } = synthRelease();
  const gate = at("test/embed/ready/ready");
  expect(gate.lifecycle.replace_triggered_by).toEqual([address("test/embed/chart/release")]);
  expect(gate.provisioner[0]["local-exec"].command).toMatch(
    /wait-rollout clipstack-embed --context kind-clipstack --namespace inference --replicas 2 /,
  );
});

test("recreates the namespace when typed resources replace the chart", () => {
  const { at, address } = synthRelease();
  expect(at("test/namespace/deploy-with").triggers_replace).toEqual({ deployWith: "helm" });
  expect(at("test/namespace/namespace").lifecycle.replace_triggered_by).toEqual([
    address("test/namespace/deploy-with"),
  ]);
});

test("outputs its endpoints like the typed resources", () => {
  const { inference, address } = synthRelease();
  expect(inference.service).toMatchObject({
    name: "embed",
    workload: "clipstack-embed",
    resources: {
      release: address("test/embed/chart/release"),
      cluster: address("test/cluster/cluster"),
    },
    endpoints: [{ url: "http://127.0.0.1:8092" }, {}],
  });
});

test("has the checks of the typed resources", () => {
  const found = findings((stack) => release(stack, { nodePort: 30093 }));
  expect(found).toEqual([
    "test/embed: nodePort must be one that kind maps (cluster.portMappings: 30092), got 30093",
  ]);
});
