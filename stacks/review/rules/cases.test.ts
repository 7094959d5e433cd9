import { describe, expect, test } from "vitest";
import { rules } from "../rules.ts";
import { changeOf, inFormOfPlan, synthesizedText } from "../test-stacks.ts";
import type { Example } from "./rule.ts";

/**
 * What a rule must find, and what it must leave alone, besides the one example of its page. `says` is undefined where both are
 * to pass: there the failing one is what looks wrong, and is not.
 */
interface Case extends Omit<Example, "says"> {
  readonly rule: string;
  readonly of: string;
  readonly says: string | undefined;
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

/** The same resource at another address. */
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
    { at: ["resource", type, construct], failing: undefined },
    { at: ["resource", type, "renamed"], failing: body, passing: undefined },
  ];
}

const cases: readonly Case[] = [
  {
    rule: "health-check-readiness",
    of: "words of a command that may be secret",
    stack: "single-gpu",
    says: "healthcheck.test should ask /readyz, got 'CMD curl -H (not shown) http://127.0.0.1:8002/healthz'",
    edits: [
      {
        at: onHost("embed/container", "healthcheck", "test"),
        failing: ["CMD", "curl", "-H", "X-Thing: Zk7-hunter2", "http://127.0.0.1:8002/healthz"],
        passing: ["CMD", "curl", "-H", "X-Thing: Zk7-hunter2", "http://127.0.0.1:8002/readyz"],
      },
    ],
  },
  {
    rule: "container-privilege-escalation",
    of: "a profile that is written out",
    stack: "single-gpu",
    says: "security_opts should have no-new-privileges:true, got seccomp=(not shown), apparmor=unconfined",
    edits: [
      {
        at: onHost("embed/container", "security_opts"),
        failing: ['seccomp={"names":["Zk7-hunter2"]}', "apparmor=unconfined"],
        passing: ["no-new-privileges:true"],
      },
    ],
  },
  {
    rule: "triton-strict-start",
    of: "a word that is no switch",
    stack: "single-gpu",
    says: "--exit-on-error must be true, got '(not shown)'",
    edits: [
      {
        at: onHost("triton-onnx/container", "command", 6),
        failing: "--exit-on-error=Zk7-hunter2",
        passing: "--exit-on-error=true",
      },
    ],
  },
  {
    rule: "start-period",
    of: "a health check without one",
    stack: "single-gpu",
    says: "healthcheck.start_period must be at least 420 s, the time to load the model, got 0 s",
    edits: [
      { at: onHost("triton-trt/container", "healthcheck", "start_period"), failing: undefined },
    ],
  },
  {
    rule: "start-period",
    of: "milliseconds",
    stack: "single-gpu",
    says: "healthcheck.start_period must be at least 420 s, the time to load the model, got 0.5 s",
    edits: [
      {
        at: onHost("triton-trt/container", "healthcheck", "start_period"),
        failing: "500ms",
        passing: "1h0m0s500ms",
      },
    ],
  },
  {
    rule: "start-period",
    of: "no health check at all, which is for another rule",
    stack: "single-gpu",
    says: undefined,
    edits: [{ at: onHost("triton-trt/container", "healthcheck"), failing: undefined }],
  },
  ...(
    [
      ["Triton's readiness", "/v2/health/ready", "/v2/health/live"],
      ["the readiness of a model", "/v2/models/openclip_vit_b32/ready", "/v2/health/live"],
      ["readiness with a query", "/readyz?verbose=Zk7-hunter2", "/healthz?verbose=1"],
    ] as const
  ).map(
    ([of, failing, passing]): Case => ({
      rule: "liveness-independent",
      of,
      stack: "kind-local",
      says: `the liveness probe must not ask the path of readiness, got '${failing.split("?")[0]}'`,
      edits: [{ at: embedPod("liveness_probe", "http_get", "path"), failing, passing }],
    }),
  ),
  {
    rule: "liveness-independent",
    of: "readiness, where the readiness probe asks something else",
    stack: "kind-local",
    says: "the liveness probe must not ask the path of readiness, got '/readyz'",
    edits: [
      {
        at: embedPod("liveness_probe", "http_get", "path"),
        failing: "/readyz",
        passing: "/healthz",
      },
      { at: embedPod("readiness_probe", "http_get", "path"), failing: "/healthz" },
    ],
  },
  {
    rule: "liveness-independent",
    of: "a command that asks for readiness",
    stack: "kind-local",
    says: "the liveness probe must not ask the command of readiness, got 'curl -f http://127.0.0.1:8002/readyz'",
    edits: [
      {
        at: embedPod("liveness_probe"),
        failing: { exec: { command: ["curl", "-f", "http://127.0.0.1:8002/readyz"] } },
        passing: { exec: { command: ["curl", "-f", "http://127.0.0.1:8002/healthz"] } },
      },
    ],
  },
  {
    rule: "liveness-independent",
    of: "the gRPC service of the readiness probe",
    stack: "kind-local",
    says: "the liveness probe must not ask the service of readiness, got 'gRPC at 8001'",
    edits: [
      {
        at: embedPod("liveness_probe"),
        failing: { grpc: { port: 8001 } },
        passing: { grpc: { port: 8001, service: "liveness" } },
      },
      {
        at: embedPod("readiness_probe"),
        failing: { grpc: { port: 8001 } },
        passing: { grpc: { port: 8001 } },
      },
    ],
  },
  {
    rule: "liveness-independent",
    of: "a port that is open, of both probes",
    stack: "kind-local",
    says: undefined,
    edits: [
      { at: embedPod("liveness_probe"), failing: { tcp_socket: { port: 8002 } } },
      { at: embedPod("readiness_probe"), failing: { tcp_socket: { port: 8002 } } },
    ],
  },
  {
    rule: "rollout-bounds",
    of: "percentages, and what Kubernetes takes where nothing is given",
    stack: "kind-local",
    says: "max_surge and max_unavailable must not both be 0",
    edits: [
      {
        at: deployment("strategy", "rolling_update"),
        failing: { max_surge: "0%", max_unavailable: "0" },
        passing: { max_surge: "0" },
      },
    ],
  },
  {
    rule: "environment-described",
    of: "a form that this version does not read",
    stack: "single-gpu",
    says: "the output environment cannot be read: rules about services and GPUs (endpoint-changed, cost-rise, model-fits-gpu and more) find nothing from now on",
    edits: [{ at: ["output", "environment", "value", "schema"], failing: 2, passing: 1 }],
  },
  {
    rule: "environment-described",
    of: "an output of another project",
    stack: "single-gpu",
    says: undefined,
    edits: [{ at: ["output", "environment", "value"], failing: "prod", passing: "prod" }],
  },
  {
    rule: "environment-described",
    of: "a stack that goes away as a whole",
    stack: "single-gpu",
    says: undefined,
    edits: [
      { at: ["resource"], failing: {} },
      { at: ["output", "environment"], failing: undefined },
    ],
  },
  {
    rule: "renamed-resource",
    of: "a step of the deployment",
    stack: "single-gpu",
    says: undefined,
    edits: renamed("terraform_data", "embed/ready/healthy"),
  },
  {
    rule: "renamed-resource",
    of: "a container that runs once",
    stack: "single-gpu",
    says: undefined,
    edits: renamed("docker_container", "weights/check/container"),
  },
  {
    rule: "renamed-resource",
    of: "a kind cluster",
    stack: "kind-local",
    says: "goes, and terraform_data.renamed comes with the same name: a renamed construct",
    edits: renamed("terraform_data", "cluster/cluster"),
  },
  {
    rule: "renamed-resource",
    of: "a service",
    stack: "single-gpu",
    says: "goes, and docker_container.renamed comes with the same name: a renamed construct",
    edits: renamed("docker_container", "embed/container"),
  },
];

describe.each(cases.map((one) => [`${one.rule}: ${one.of}`, one] as const))("%s", (_, one) => {
  const { says, rule: id, of: _of, ...example } = one;
  const rule = rules.find((it) => it.id === id)!;

  test(says === undefined ? "finds nothing" : "is found", () => {
    const change = changeOf(example, "failing");
    const expected = says === undefined ? [] : [says];
    expect(rule.find(change).map(({ what }) => what)).toEqual(expected);
    expect(rule.find(inFormOfPlan(change))).toEqual(rule.find(change));
  });

  test("is not found where it is right", () => {
    const change = changeOf(example, "passing");
    expect(rule.find(change)).toEqual([]);
    expect(rule.find(inFormOfPlan(change))).toEqual([]);
  });
});
