import { expect, test } from "vitest";
import { chartValues } from "./chart-values.ts";
import {
  chartImage,
  chartLimitRange,
  chartQuota,
  chartResources,
  chartValuesForKind,
  type KindChartProps,
} from "./chart-values-for.ts";

const digest = `sha256:${"a".repeat(64)}`;

test.each([
  ["clipstack/embed:k8s-cpu", { repository: "clipstack/embed", tag: "k8s-cpu" }],
  ["registry:5000/embed:1.2", { repository: "registry:5000/embed", tag: "1.2" }],
  ["registry:5000/embed", { repository: "registry:5000/embed", tag: "latest" }],
  [`ghcr.io/a/embed@${digest}`, { repository: "ghcr.io/a/embed", digest }],
  // a digest takes precedence over a tag
  [`ghcr.io/a/embed:1.2@${digest}`, { repository: "ghcr.io/a/embed", digest }],
  // biome-ignore lint/suspicious/noTemplateCurlyInString: an expression of Terraform
  ["embed:k8s-cpu-${local.hash}", { repository: "embed", tag: "k8s-cpu-${local.hash}" }],
])("parses the image %s", (name, image) => {
  expect(chartImage(name)).toEqual(image);
});

const quantities = (cpuMillicores: number, memoryMiB: number) => ({ cpuMillicores, memoryMiB });

test("renders quantities in the shortest form, which Kubernetes stores", () => {
  expect(
    chartResources({ requests: quantities(250, 1024), limits: quantities(2000, 1536) }),
  ).toEqual({
    requests: { cpu: "250m", memory: "1Gi" },
    limits: { cpu: "2", memory: "1536Mi" },
  });
});

test("has GPUs in the quota only if there are any", () => {
  const quota = { requests: quantities(1000, 1024), limits: quantities(2000, 2048), pods: 3 };
  const cpu = {
    "requests.cpu": "1",
    "requests.memory": "1Gi",
    "limits.cpu": "2",
    "limits.memory": "2Gi",
    pods: "3",
  };
  expect(chartQuota(quota).hard).toEqual(cpu);
  expect(chartQuota(quota, 4).hard).toEqual({ ...cpu, "requests.nvidia.com/gpu": "4" });
});

const range = {
  defaultRequests: quantities(100, 128),
  defaultLimits: quantities(500, 512),
  max: quantities(2000, 4096),
};

test("renders the defaults and maximum of the LimitRange", () => {
  expect(chartLimitRange(range)).toEqual({
    enabled: true,
    defaultRequest: { cpu: "100m", memory: "128Mi" },
    default: { cpu: "500m", memory: "512Mi" },
    max: { cpu: "2", memory: "4Gi" },
  });
});

const kind: KindChartProps = {
  image: "clipstack/embed:k8s-cpu",
  nodePort: 30_092,
  resources: { requests: quantities(250, 1024), limits: quantities(1000, 1536) },
  autoscaler: { minReplicas: 2, maxReplicas: 6, cpuPercent: 60, scaleDownWindowSeconds: 180 },
  budget: { maxUnavailable: 1 },
  quota: { requests: quantities(1750, 7168), limits: quantities(7000, 10752), pods: 10 },
  limitRange: range,
};

test("renders valid chart values for kind", () => {
  const values = chartValues.parse(chartValuesForKind(kind));
  expect(values.embed).toMatchObject({
    imagePullSeconds: 0,
    service: { type: "NodePort", nodePort: 30_092 },
    auth: { allowAnonymous: true },
    autoscaling: kind.autoscaler,
    budget: { maxUnavailable: 1 },
  });
  expect(values.quota.enabled && values.limitRange.enabled).toBe(true);
});

test("keeps exactly the configured property of a PDB", () => {
  const { embed } = chartValuesForKind({ ...kind, budget: { minAvailable: 1 } });
  expect(embed?.budget).toEqual({ enabled: true, minAvailable: 1 });
});
