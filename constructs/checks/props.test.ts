import { describe, expect, test } from "vitest";
import { EmbedServer } from "../docker/embed-server.ts";
import { GpuHost } from "../docker/gpu-host.ts";
import { PytorchBaseline } from "../docker/pytorch-baseline.ts";
import { TritonServer } from "../docker/triton-server.ts";
import { KindCluster } from "../kind/kind-cluster.ts";
import { GpuCluster } from "../kubernetes/gpu-cluster.ts";
import { InferenceNamespace } from "../kubernetes/inference-namespace.ts";
import { type TerraformStack, TerraformVariable } from "../terraform/cdktf.ts";
import { dependenciesIn, findings, hostIn } from "../test-synth.ts";

type Props = Readonly<Record<string, unknown>>;

const hostProps = { docker: "ssh://me@gpu-host", gpu: "l4", count: 1 };
const tritonPorts = { http: 8010, grpc: 8011, metrics: 8012 };
const kindProps = {
  name: "x",
  kubeconfig: "~/.kube/config",
  portMappings: [{ nodePort: 30_092, hostPort: 8092 }],
};
const quantities = { cpuMillicores: 1_000, memoryMiB: 1_024 };
const resources = { requests: quantities, limits: quantities };

/** Creates a construct `c` with valid props, except for `props`. */
const constructs: Readonly<Record<string, (stack: TerraformStack, props: Props) => unknown>> = {
  GpuHost: (stack, props) => new GpuHost(stack, "c", { ...hostProps, ...props } as never),
  TritonServer: (stack, props) => {
    const host = hostIn(stack);
    const server = { kind: "emulator" };
    const backend = "onnxruntime";
    const given = { host, ...dependenciesIn(stack, host), server, backend, ports: tritonPorts };
    return new TritonServer(stack, "c", { ...given, ...props } as never);
  },
  EmbedServer: (stack, props) => {
    const host = hostIn(stack);
    const { tools: image, weights } = dependenciesIn(stack, host);
    const backend = { kind: "onnxruntime", weights, gpus: [0] };
    return new EmbedServer(stack, "c", { host, image, backend, ...props } as never);
  },
  PytorchBaseline: (stack, props) => {
    const host = hostIn(stack);
    const { tools: image, weights } = dependenciesIn(stack, host);
    return new PytorchBaseline(stack, "c", { host, image, weights, gpus: [0], ...props } as never);
  },
  KindCluster: (stack, props) => new KindCluster(stack, "c", { ...kindProps, ...props }),
  GpuCluster: (stack, { accelerator = "gpu", ...pool }) =>
    new GpuCluster(stack, "c", {
      kubeconfig: "~/.kube/config",
      context: "gpus",
      accelerator,
      pool: {
        ...{ gpu: "l4", nodes: 2, gpusPerNode: 1, runtimeClass: "none" },
        ...{ selector: {}, tolerations: [], ...pool },
      },
    } as never),
  InferenceNamespace: (stack, props) =>
    new InferenceNamespace(stack, "c", {
      name: "x",
      cluster: new KindCluster(stack, "kind", kindProps),
      quota: { pods: 2, ...resources },
      limitRange: { defaultRequests: quantities, defaultLimits: quantities, max: quantities },
      ...props,
    }),
};

const found = (name: string, props: (stack: TerraformStack) => Props) =>
  findings((stack) => constructs[name]!(stack, props(stack)));

test.each(Object.keys(constructs))("%s has no finding with valid props", (name) => {
  expect(found(name, () => ({}))).toEqual([]);
});

test.each([
  ["GpuHost", { count: 0 }, "count must be 1 to 16, got 0"],
  ["GpuHost", { count: Number.NaN }, "count must be a whole number, got NaN"],
  ["GpuHost", { count: "2" }, "count must be a whole number, 1 to 16, got '2'"],
  [
    "GpuHost",
    { docker: "gpu-host" },
    "docker must be 'ssh://[user@]host[:port]' or 'unix:///path', got 'gpu-host'",
  ],
  ["GpuHost", { docker: undefined }, "docker is required"],
  [
    "GpuHost",
    { gpu: "rtx4090" },
    /^gpu must be one of t4, .*, got 'rtx4090' \(did you mean 'rtx-4090'\?\)$/,
  ],
  ["GpuHost", { accelerator: "npm" }, "accelerator must be one of gpu, cpu, got 'npm'"],
  ["GpuHost", { cores: 0.5 }, "cores must be a whole number, got 0.5"],
  [
    "GpuHost",
    { migProfile: "small" },
    "migProfile must be a MIG profile like '1g.10gb', got 'small'",
  ],
  [
    "TritonServer",
    { ports: { ...tritonPorts, grpc: 80_110 } },
    "ports.grpc must be 1 to 65535, got 80110",
  ],
  ["TritonServer", { ports: undefined }, "ports is required"],
  ["TritonServer", { backend: "vllm" }, "backend must be one of onnxruntime, tensorrt, got 'vllm'"],
  ["TritonServer", { sharedMemoryMiB: -1 }, "sharedMemoryMiB must be a whole number, got -1"],
  [
    "TritonServer",
    { gpus: ["first"] },
    /^gpus\.0 must be an index or a UUID like .*, got 'first'$/,
  ],
  ["EmbedServer", { port: 0 }, "port must be 1 to 65535, got 0"],
  [
    "EmbedServer",
    { expose: "world" },
    "expose must be one of loopback, all-interfaces, got 'world'",
  ],
  ["EmbedServer", { memoryMiB: 1 }, "memoryMiB must be 256 to 4194304, got 1"],
  ["PytorchBaseline", { port: 70_000 }, "port must be 1 to 65535, got 70000"],
  [
    "KindCluster",
    { portMappings: [{ nodePort: 30_092, hostPort: 0 }] },
    "portMappings.0.hostPort must be 1 to 65535, got 0",
  ],
  ["GpuCluster", { nodes: 0 }, "pool.nodes must be 1 to 1000, got 0"],
  [
    "GpuCluster",
    { gpu: "a10g" },
    /^pool\.gpu must be one of .*, got 'a10g' \(did you mean 'a10'\?\)$/,
  ],
  [
    "InferenceNamespace",
    { quota: { pods: 1.5, ...resources } },
    "quota.pods must be a whole number, got 1.5",
  ],
])("%s with %o: path, property, rule and value, and nothing else", (name, props, expected) => {
  const lines = found(name, () => props);
  expect(lines).toHaveLength(1);
  const [line = ""] = lines;
  expect(line).toMatch(/^test\/c: /);
  const text = line.slice("test/c: ".length);
  if (typeof expected === "string") expect(text).toBe(expected);
  else expect(text).toMatch(expected);
});

describe("rejects a number token, which only Terraform resolves", () => {
  test.each([
    ["GpuHost", "count", (token: number) => ({ count: token })],
    ["GpuHost", "cores", (token: number) => ({ cores: token })],
    ["TritonServer", "ports.http", (http: number) => ({ ports: { ...tritonPorts, http } })],
    ["TritonServer", "gpus.0", (token: number) => ({ gpus: [token] })],
    ["TritonServer", "instancesPerGpu", (token: number) => ({ instancesPerGpu: token })],
    ["TritonServer", "memoryMiB", (token: number) => ({ memoryMiB: token })],
    ["TritonServer", "sharedMemoryMiB", (token: number) => ({ sharedMemoryMiB: token })],
    ["EmbedServer", "port", (token: number) => ({ port: token })],
    ["PytorchBaseline", "port", (token: number) => ({ port: token })],
    [
      "KindCluster",
      "portMappings.0.hostPort",
      (hostPort: number) => ({ portMappings: [{ nodePort: 30_092, hostPort }] }),
    ],
    ["GpuCluster", "pool.nodes", (token: number) => ({ nodes: token })],
    ["GpuCluster", "pool.gpusPerNode", (token: number) => ({ gpusPerNode: token })],
    ["InferenceNamespace", "quota.pods", (pods: number) => ({ quota: { pods, ...resources } })],
  ])("%s: %s", (name, path, props) => {
    const lines = found(name, (stack) =>
      props(new TerraformVariable(stack, "n", { type: "number" }).numberValue),
    );
    expect(lines).toEqual([
      `test/c: ${path} must be a whole number, got a token, which only Terraform resolves`,
    ]);
  });
});
