import { describe, expect, test } from "vitest";
import type { Example } from "../test-rule-pages.ts";
import { changeOf, synthesizedText, withPlanBlocks } from "../test-stacks.ts";
import { rules } from "./rules.ts";

/** Case of a rule in addition to the example of its page. */
interface Case extends Omit<Example, "message"> {
  readonly rule: string;
  readonly situation: string;
  /** First message for the failing edits; `undefined` if they must pass too. */
  readonly message: string | undefined;
}

const onHost = (construct: string, ...path: readonly (string | number)[]) =>
  ["resource", "docker_container", construct, ...path] as const;
const embedPod = (...path: readonly (string | number)[]) =>
  [
    ...["resource", "kubernetes_deployment_v1", "embed/deployment"],
    ...["spec", "template", "spec", "container", 0, ...path],
  ] as const;

const deployment = (...path: readonly (string | number)[]) =>
  ["resource", "kubernetes_deployment_v1", "embed/deployment", "spec", ...path] as const;

const secondContainer = [...embedPod().slice(0, -1), 1] as const;
const initContainers = [...embedPod().slice(0, -2), "init_container"] as const;
const half = { cpu: "500m", memory: "768Mi" } as const;
const allGpus = "NVIDIA_VISIBLE_DEVICES=all";
const int8 = { name: "MODEL_PRECISION", value: "int8" } as const;
const chartValues = ["resource", "helm_release", "inference/chart/release", "values", 0] as const;

/** Edits that move a resource to another address. */
function renamed(type: string, construct: string): Example["edits"] {
  const stack =
    type === "terraform_data" && construct.startsWith("cluster") ? "kind-local" : "single-gpu";
  const { resource } = JSON.parse(synthesizedText(stack)) as {
    readonly resource: Record<string, Record<string, { "//": { metadata: { path: string } } }>>;
  };
  const body = Object.values(resource[type] ?? {}).find(
    (it) => it["//"].metadata.path === `${stack}/${construct}`,
  );
  return [
    { path: ["resource", type, construct], failing: undefined },
    { path: ["resource", type, "renamed"], failing: body, passing: undefined },
  ];
}

const cases: readonly Case[] = [
  {
    rule: "probe-independent",
    situation: "a liveness command that calls another workload",
    stack: "kind-local",
    message: "liveness_probe must probe its own container, got host 'clipstack-triton'",
    edits: [
      {
        path: embedPod("liveness_probe"),
        failing: {
          exec: { command: ["curl", "-f", "http://clipstack-triton:8000/v2/health/live"] },
        },
        passing: { exec: { command: ["curl", "-f", "http://127.0.0.1:8002/healthz"] } },
      },
    ],
  },
  {
    rule: "probe-independent",
    situation: "a startup probe with another host",
    stack: "kind-local",
    message: "startup_probe must probe its own container, got host 'clipstack-triton'",
    edits: [
      {
        path: embedPod("startup_probe", "http_get", "host"),
        failing: "clipstack-triton",
        passing: "127.0.0.1",
      },
    ],
  },
  {
    rule: "probe-independent",
    situation: "a server that waits for its own model to load",
    stack: "kind-local",
    message: undefined,
    edits: [
      {
        path: embedPod("startup_probe", "http_get", "path"),
        failing: "/readyz",
        passing: "/healthz",
      },
    ],
  },
  {
    rule: "health-check-readiness",
    situation: "a command with a possible secret",
    stack: "single-gpu",
    message:
      "healthcheck.test should request /readyz, got 'CMD curl -H (not shown) http://127.0.0.1:8002/healthz'",
    edits: [
      {
        path: onHost("embed/container", "healthcheck", "test"),
        failing: ["CMD", "curl", "-H", "X-Thing: Zk7-hunter2", "http://127.0.0.1:8002/healthz"],
        passing: ["CMD", "curl", "-H", "X-Thing: Zk7-hunter2", "http://127.0.0.1:8002/readyz"],
      },
    ],
  },
  {
    rule: "container-privilege-escalation",
    situation: "an inline seccomp profile",
    stack: "single-gpu",
    message:
      "security_opts should have no-new-privileges:true, got seccomp=(not shown), apparmor=unconfined",
    edits: [
      {
        path: onHost("embed/container", "security_opts"),
        failing: ['seccomp={"names":["Zk7-hunter2"]}', "apparmor=unconfined"],
        passing: ["no-new-privileges:true"],
      },
    ],
  },
  {
    rule: "container-restart",
    situation: "a container without a restart policy",
    stack: "single-gpu",
    message: "restart should be unless-stopped or always, got nothing",
    edits: [{ path: onHost("embed/container", "restart"), failing: undefined }],
  },
  {
    rule: "container-restart",
    situation: "a policy that does not survive a reboot",
    stack: "single-gpu",
    message: "restart should be unless-stopped or always, got 'on-failure'",
    edits: [
      { path: onHost("embed/container", "restart"), failing: "on-failure", passing: "always" },
    ],
  },
  {
    rule: "container-restart",
    situation: "a container that may exit while nothing waits for it",
    stack: "single-gpu",
    message: "restart should be unless-stopped or always, got 'no'",
    edits: [
      { path: onHost("embed/container", "must_run"), failing: false },
      { path: onHost("embed/container", "restart"), failing: "no" },
    ],
  },
  {
    rule: "container-restart",
    situation: "a policy that only Terraform knows",
    stack: "single-gpu",
    message: undefined,
    edits: [{ path: onHost("embed/container", "restart"), failing: `\${var.policy}` }],
  },
  {
    rule: "container-read-only",
    situation: "a value that only Terraform knows",
    stack: "single-gpu",
    message: undefined,
    edits: [{ path: onHost("embed/container", "read_only"), failing: `\${var.read_only}` }],
  },
  {
    rule: "container-restart",
    situation: "a one-shot container",
    stack: "single-gpu",
    message: undefined,
    edits: [
      { path: onHost("embed/container", "must_run"), failing: false },
      { path: onHost("embed/container", "attach"), failing: true },
      { path: onHost("embed/container", "restart"), failing: "no" },
    ],
  },
  {
    rule: "triton-strict-start",
    situation: "an option that is not a boolean",
    stack: "single-gpu",
    message: "--exit-on-error must be true, got '(not shown)'",
    edits: [
      {
        path: onHost("triton-onnx/container", "command", 9),
        failing: "--exit-on-error=Zk7-hunter2",
        passing: "--exit-on-error=true",
      },
    ],
  },
  {
    rule: "start-period",
    situation: "a health check without a start period",
    stack: "single-gpu",
    message: "healthcheck.start_period must be at least 420 s, the time to load the model, got 0 s",
    edits: [
      { path: onHost("triton-trt/container", "healthcheck", "start_period"), failing: undefined },
    ],
  },
  {
    rule: "start-period",
    situation: "a start period in milliseconds",
    stack: "single-gpu",
    message:
      "healthcheck.start_period must be at least 420 s, the time to load the model, got 0.5 s",
    edits: [
      {
        path: onHost("triton-trt/container", "healthcheck", "start_period"),
        failing: "500ms",
        passing: "1h0m0s500ms",
      },
    ],
  },
  {
    rule: "start-period",
    situation: "no health check, which another rule finds",
    stack: "single-gpu",
    message: undefined,
    edits: [{ path: onHost("triton-trt/container", "healthcheck"), failing: undefined }],
  },
  ...(
    [
      ["Triton's readiness route", "/v2/health/ready", "/v2/health/live"],
      ["the readiness route of a model", "/v2/models/openclip_vit_b32/ready", "/v2/health/live"],
      ["a readiness route with a query", "/readyz?verbose=Zk7-hunter2", "/healthz?verbose=1"],
    ] as const
  ).map(
    ([situation, failing, passing]): Case => ({
      rule: "liveness-independent",
      situation,
      stack: "kind-local",
      message: `the liveness probe must not test readiness, got '${failing.split("?")[0]}'`,
      edits: [{ path: embedPod("liveness_probe", "http_get", "path"), failing, passing }],
    }),
  ),
  {
    rule: "liveness-independent",
    situation: "a readiness route that the readiness probe does not use",
    stack: "kind-local",
    message: "the liveness probe must not test readiness, got '/readyz'",
    edits: [
      {
        path: embedPod("liveness_probe", "http_get", "path"),
        failing: "/readyz",
        passing: "/healthz",
      },
      { path: embedPod("readiness_probe", "http_get", "path"), failing: "/healthz" },
    ],
  },
  {
    rule: "liveness-independent",
    situation: "a command that requests readiness",
    stack: "kind-local",
    message:
      "the liveness probe must not test readiness, got 'curl -f http://127.0.0.1:8002/readyz'",
    edits: [
      {
        path: embedPod("liveness_probe"),
        failing: { exec: { command: ["curl", "-f", "http://127.0.0.1:8002/readyz"] } },
        passing: { exec: { command: ["curl", "-f", "http://127.0.0.1:8002/healthz"] } },
      },
    ],
  },
  {
    rule: "liveness-independent",
    situation: "the gRPC service of the readiness probe",
    stack: "kind-local",
    message: "the liveness probe must not test readiness, got 'gRPC at 8001'",
    edits: [
      {
        path: embedPod("liveness_probe"),
        failing: { grpc: { port: 8001 } },
        passing: { grpc: { port: 8001, service: "liveness" } },
      },
      {
        path: embedPod("readiness_probe"),
        failing: { grpc: { port: 8001 } },
        passing: { grpc: { port: 8001 } },
      },
    ],
  },
  {
    rule: "liveness-independent",
    situation: "the same TCP port in both probes",
    stack: "kind-local",
    message: undefined,
    edits: [
      { path: embedPod("liveness_probe"), failing: { tcp_socket: { port: 8002 } } },
      { path: embedPod("readiness_probe"), failing: { tcp_socket: { port: 8002 } } },
    ],
  },
  {
    rule: "environment-described",
    situation: "an unknown schema version",
    stack: "single-gpu",
    message:
      "the output environment cannot be read: rules about services and GPUs (endpoint-changed, cost-rise, model-fits-gpu and more) have no data",
    edits: [{ path: ["output", "environment", "value", "schema"], failing: 5, passing: 4 }],
  },
  {
    rule: "environment-described",
    situation: "an output environment of another project",
    stack: "single-gpu",
    message: undefined,
    edits: [{ path: ["output", "environment", "value"], failing: "prod", passing: "prod" }],
  },
  {
    rule: "environment-described",
    situation: "a destroyed stack",
    stack: "single-gpu",
    message: undefined,
    edits: [
      { path: ["resource"], failing: {} },
      { path: ["output", "environment"], failing: undefined },
    ],
  },
  {
    rule: "renamed-resource",
    situation: "a deployment step",
    stack: "single-gpu",
    message: undefined,
    edits: renamed("terraform_data", "embed/ready/healthy"),
  },
  {
    rule: "renamed-resource",
    situation: "a one-shot container",
    stack: "single-gpu",
    message: undefined,
    edits: renamed("docker_container", "weights/check/container"),
  },
  {
    rule: "renamed-resource",
    situation: "a kind cluster",
    stack: "kind-local",
    message:
      "is destroyed and terraform_data.renamed is created with the same name: the construct was renamed",
    edits: renamed("terraform_data", "cluster/cluster"),
  },
  {
    rule: "renamed-resource",
    situation: "a service",
    stack: "single-gpu",
    message:
      "is destroyed and docker_container.renamed is created with the same name: the construct was renamed",
    edits: renamed("docker_container", "embed/container"),
  },
  {
    rule: "memory-holds-model",
    situation: "a container on a host",
    stack: "single-gpu",
    message: "memory must be more than 336 MiB, the weights of the models, got 256 MiB",
    edits: [{ path: onHost("embed/container", "memory"), failing: 256, passing: 0 }],
  },
  {
    rule: "memory-holds-model",
    situation: "a gateway without a model",
    stack: "single-gpu",
    settings: "embed: { backend: triton }",
    message: undefined,
    edits: [{ path: onHost("embed/container", "memory"), failing: 256 }],
  },
  {
    rule: "memory-holds-model",
    situation: "a pod with int8 weights",
    stack: "kind-local",
    message:
      "limits.memory of clipstack-embed must be more than 84 MiB, the weights of the models, got 64Mi",
    edits: [
      { path: embedPod("env", 0), failing: int8, passing: int8 },
      {
        path: embedPod("resources"),
        failing: { requests: { cpu: "1", memory: "64Mi" }, limits: { memory: "64Mi" } },
        passing: { requests: { cpu: "1", memory: "256Mi" }, limits: { memory: "256Mi" } },
      },
    ],
  },
  {
    rule: "memory-holds-model",
    situation: "a Triton in the chart",
    stack: "k8s-gpu",
    message:
      "limits.memory of triton must be more than 336 MiB, the weights of the models, got 128Mi",
    edits: [
      {
        path: chartValues,
        failingText: '"memory": "128Mi"',
        passingText: '"memory": "8Gi"',
      },
    ],
  },
  {
    rule: "quota-admits-pods",
    situation: "limits without requests, which default to the limits",
    stack: "kind-local",
    message:
      "quota.requests.cpuMillicores must be at least 7000 (clipstack-embed 7 × 1000), got 1750",
    edits: [
      {
        path: embedPod("resources"),
        failing: { limits: { cpu: "1", memory: "1Gi" } },
        passing: { limits: { cpu: "250m", memory: "1Gi" } },
      },
    ],
  },
  {
    rule: "quota-admits-pods",
    situation: "a rollout with a surge of 100 %",
    stack: "kind-local",
    message: "quota.pods must be at least 12 (clipstack-embed 12 × 1), got 10",
    edits: [
      {
        path: deployment("strategy", "rolling_update", "max_surge"),
        failing: "100%",
        passing: "1%",
      },
    ],
  },
  {
    rule: "quota-admits-pods",
    situation: "a second container",
    stack: "kind-local",
    message:
      "quota.requests.cpuMillicores must be at least 8750 (clipstack-embed 7 × 1250), got 1750",
    edits: [
      {
        path: embedPod("resources"),
        failing: { requests: { cpu: "125m", memory: "512Mi" }, limits: half },
        passing: { requests: { cpu: "125m", memory: "512Mi" }, limits: half },
      },
      {
        path: secondContainer,
        failing: {
          name: "side",
          resources: { requests: { cpu: "1125m", memory: "512Mi" }, limits: half },
        },
        passing: {
          name: "side",
          resources: { requests: { cpu: "125m", memory: "512Mi" }, limits: half },
        },
      },
    ],
  },
  {
    rule: "quota-admits-pods",
    situation: "an init container with higher requests",
    stack: "kind-local",
    message: "quota.requests.memoryMiB must be at least 14336 (clipstack-embed 7 × 2048), got 7168",
    edits: [
      {
        path: initContainers,
        failing: [
          { name: "before", resources: { requests: { cpu: "250m", memory: "2Gi" }, limits: half } },
        ],
        passing: [
          { name: "before", resources: { requests: { cpu: "250m", memory: "1Gi" }, limits: half } },
        ],
      },
    ],
  },
  {
    rule: "image-version",
    situation: "a mutable tag",
    stack: "kind-local",
    message:
      "image must name a version, like 'name:1.2' or better 'name@sha256:…', got 'nginx:main'",
    edits: [{ path: embedPod("image"), failing: "nginx:main", passing: "nginx:main-3f2c1ab" }],
  },
  {
    rule: "stop-time",
    situation: "a grace period set in the environment",
    stack: "kind-local",
    message:
      "termination_grace_period_seconds must be at least 130 (pre_stop 5 + grace period 120 + 5), got 40",
    edits: [
      {
        path: embedPod("env", 7),
        failing: { name: "SHUTDOWN_GRACE_SECONDS", value: "120" },
        passing: { name: "SHUTDOWN_GRACE_SECONDS", value: "20" },
      },
    ],
  },
  {
    rule: "model-fits-gpu",
    situation: "a Triton with access to all GPUs",
    stack: "single-gpu",
    message:
      "gpu must have room for the models: GPU 0 has 1024 MiB, 921 usable, and they need 5184 (embed 1104 + triton-onnx 1104 + a reload of triton-onnx 592 + triton-trt 936 + a reload of triton-trt 424 + a TensorRT build 1024): serve fewer models or towers, disable a service, or use a GPU with more memory",
    edits: [
      { path: onHost("triton-onnx/container", "env", 2), failing: allGpus, passing: allGpus },
      {
        path: ["output", "environment", "value", "gpu", "vramMiB"],
        failing: 1_024,
        passing: 16_376,
      },
    ],
  },
  {
    rule: "gpu-unused",
    situation: "unused GPUs of a host",
    stack: "multi-gpu-4x",
    message: "3 of 4 GPUs (rtx-4080) are paid for but not used by any service",
    edits: ["triton-onnx/container", "triton-trt/container"].map((triton) => ({
      path: onHost(triton, "env", 2),
      failing: "NVIDIA_VISIBLE_DEVICES=0",
      passing: "NVIDIA_VISIBLE_DEVICES=all",
    })),
  },
  {
    rule: "model-config-valid",
    situation: "a model of the chart",
    stack: "k8s-gpu",
    message:
      "openclip_vit_b32: dynamic_batching.preferred_batch_size must be 1 to max_batch_size (32), got 64",
    edits: [
      {
        path: chartValues,
        failingText: "dynamic_batching { preferred_batch_size: [8, 64]",
        passingText: "dynamic_batching {",
      },
    ],
  },
  {
    rule: "model-config-valid",
    situation: "a precision that TensorRT 11 ignores",
    stack: "single-gpu",
    message:
      "openclip_vit_b32_trt: tensorrt parameter precision_mode must not be set from Triton 26.06 on: TensorRT 11 ignores it and takes the precision from the graph (default_model_filename: \"model.trt-fp16.onnx\" is in FP16), got 'FP16'",
    edits: [
      {
        path: onHost("triton-trt/configuration/apply/container", "upload", 0, "content"),
        failingText: 'parameters { key: "precision_mode", value: "FP16" } parameters { key: "max_w',
        passingText: 'parameters { key: "max_w',
      },
    ],
  },
  {
    rule: "gateway-upstream",
    situation: "a gateway in the chart without a Triton",
    stack: "k8s-gpu",
    message: "triton.enabled must be true when embed.backend is triton, got false",
    edits: [
      {
        path: chartValues,
        failingText: '"triton": {\n    "enabled": false',
        passingText: '"triton": {\n    "enabled": true',
      },
    ],
  },
  {
    rule: "gpu-unused",
    situation: "GPUs selected by the container runtime",
    stack: "multi-gpu-4x",
    message: undefined,
    edits: ["triton-onnx/container", "triton-trt/container"].map((triton) => ({
      path: onHost(triton, "env", 2),
      failing: "PLAIN=1",
    })),
  },
];

describe.each(cases.map(({ situation, ...one }) => [`${one.rule}: ${situation}`, one] as const))(
  "%s",
  (_, { message, rule: id, ...example }) => {
    const rule = rules.find((it) => it.id === id)!;

    test(message === undefined ? "passes" : "is a violation", () => {
      const change = changeOf(example, "failing");
      expect(rule.find(change).at(0)?.message).toBe(message);
      expect(rule.find(withPlanBlocks(change))).toEqual(rule.find(change));
    });

    test("passes with the permitted value", () => {
      const change = changeOf(example, "passing");
      expect(rule.find(change)).toEqual([]);
      expect(rule.find(withPlanBlocks(change))).toEqual([]);
    });
  },
);
