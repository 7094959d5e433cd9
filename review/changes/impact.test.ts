import { expect, test } from "vitest";
import { defaultModel } from "../../contract/models/index.ts";
import type { StackChange } from "../input/change.ts";
import { type PlannedResource, plannedChange } from "../test-plans.ts";
import { impactOf } from "./impact.ts";
import { comparisonOf } from "./impact-kinds.ts";

const environment = {
  schema: 4,
  name: "test",
  where: "kind",
  accelerator: "cpu",
  models: [defaultModel],
  services: [
    {
      name: "embed",
      kind: "embed",
      backend: "onnxruntime",
      models: [defaultModel.name],
      modelKind: "fp32",
      resources: {
        deployment: "kubernetes_deployment_v1.d",
        service: "kubernetes_service_v1.s",
        cluster: "terraform_data.k",
      },
      workload: "d",
      endpoints: [{ protocol: "embed-http", url: "http://127.0.0.1:1" }],
    },
  ],
};

/** The consequence of the first of some resources. */
function of(first: PlannedResource, ...others: readonly PlannedResource[]) {
  const change: StackChange = {
    ...plannedChange([first, ...others]),
    environmentBefore: environment,
    environmentAfter: environment,
  };
  const resource = change.resources.find(({ address }) => address === first.address)!;
  return impactOf(resource, comparisonOf(change));
}

const labels = { app: "d" };
const deployment = (image: string, strategy: object = {}): Readonly<Record<string, unknown>> => ({
  metadata: [{ name: "d" }],
  spec: [
    {
      strategy: [{ rolling_update: [strategy] }],
      template: [{ metadata: [{ labels }], spec: [{ container: [{ image }] }] }],
    },
  ],
});
const updated = (strategy: object) => ({
  address: "kubernetes_deployment_v1.d",
  before: deployment("a", strategy),
  after: deployment("b", strategy),
});
const unchanged = (address: string, values: object) => ({
  address,
  actions: ["no-op"],
  before: values,
  after: values,
});
const autoscaler = (min: number) =>
  unchanged("kubernetes_horizontal_pod_autoscaler_v2.h", {
    spec: [{ min_replicas: min, max_replicas: 6, scale_target_ref: [{ name: "d" }] }],
  });
const budget = (spec: object) =>
  unchanged("kubernetes_pod_disruption_budget_v1.b", {
    metadata: [{ name: "d-budget" }],
    spec: [{ selector: [{ match_labels: labels }], ...spec }],
  });

test("a rolling update without unavailable pods has no outage", () => {
  expect(of(updated({ max_surge: "1", max_unavailable: "0" }), autoscaler(2))).toEqual({
    text: "Rolling update with max surge 1 and max unavailable 0.",
    unavailable: [],
    dataLost: false,
  });
});

test("reports an update that leaves fewer pods than the PodDisruptionBudget requires", () => {
  const { text, unavailable } = of(
    updated({ max_surge: "0", max_unavailable: "1" }),
    autoscaler(2),
    budget({ min_available: "2" }),
  )!;
  expect(text).toContain(
    "With 2 pods, 1 remain ready, fewer than the 2 required by its PodDisruptionBudget.",
  );
  expect(unavailable).toEqual([]);
});

test("an update of the only pod is an outage", () => {
  const { text, unavailable } = of(
    updated({ max_surge: "0", max_unavailable: "1" }),
    autoscaler(1),
  )!;
  expect(text).toContain("With 1 pod, none remains ready.");
  expect(unavailable).toEqual(["embed"]);
});

test("an unchanged pod template restarts no pod", () => {
  const [was, is] = [1, 2].map((replicas) => ({
    ...deployment("a"),
    metadata: [{ name: "d", labels: { replicas } }],
  }));
  expect(of({ address: "kubernetes_deployment_v1.d", before: was, after: is })?.text).toBe(
    "No pod is restarted.",
  );
});

test.each<readonly [string, PlannedResource, readonly string[], boolean, RegExp]>([
  [
    "a kind cluster",
    { address: "terraform_data.k", actions: ["delete", "create"], before: {}, after: {} },
    ["embed"],
    true,
    /^The kind cluster is deleted and recreated/,
  ],
  [
    "a namespace",
    {
      address: "kubernetes_namespace_v1.n",
      actions: ["delete"],
      before: { metadata: [{ name: "x" }] },
    },
    ["embed"],
    true,
    /^Everything in namespace x is deleted/,
  ],
  [
    "a Service",
    { address: "kubernetes_service_v1.s", actions: ["delete", "create"], before: {}, after: {} },
    ["embed"],
    false,
    /its address may change/,
  ],
  [
    "a claim",
    { address: "kubernetes_persistent_volume_claim_v1.c", actions: ["delete"], before: {} },
    [],
    true,
    /is lost/,
  ],
  [
    "a volume",
    { address: "docker_volume.v", actions: ["delete"], before: { name: "v" } },
    [],
    true,
    /^Data on the volume is lost/,
  ],
])("reports the impact of removing %s", (_, resource, unavailable, dataLost, text) => {
  const impact = of(resource)!;
  expect(impact).toMatchObject({ unavailable, dataLost });
  expect(impact.text).toMatch(text);
});

test("the only Triton of a release without a spare GPU is unavailable during an update", () => {
  const release = (tag: string, minReplicas: number) => ({
    name: "clipstack",
    values: [
      JSON.stringify({
        triton: {
          gpus: 1,
          spareGpu: false,
          image: { tag },
          autoscaling: { enabled: true, minReplicas },
        },
      }),
    ],
  });
  const text = (min: number) =>
    of({ address: "helm_release.r", before: release("1", min), after: release("2", min) })?.text;
  expect(text(1)).toContain("it is unavailable while that pod is replaced");
  expect(text(2)).not.toContain("unavailable");
});

test("a release with only a new replica count restarts no pod", () => {
  const release = (more: object) => ({
    name: "clipstack",
    values: [JSON.stringify({ triton: { gpus: 1, spareGpu: false, ...more } })],
  });
  const { text, unavailable } = of({
    address: "helm_release.r",
    before: release({ autoscaling: { enabled: true, minReplicas: 2 } }),
    after: release({ replicas: 1, autoscaling: { enabled: false } }),
  })!;
  expect([text, unavailable]).toEqual(["No pod is restarted.", []]);
});

test.each([
  [
    "another chart",
    { chart: "x" },
    { text: /^The chart or its repository changes/, interrupts: true },
  ],
  [
    "another repository",
    { repository: "https://a.example" },
    { text: /^The chart or its repository changes/, interrupts: true },
  ],
  [
    "other files of the chart",
    { description: "chart 0b1c" },
    { text: /^Files of its chart change/, interrupts: true },
  ],
  [
    "recreate_pods",
    { recreate_pods: true },
    { text: /all its pods at once/, unavailable: ["embed"] },
  ],
  [
    "force_update",
    { force_update: true },
    { text: /deletes and recreates the objects that differ/, interrupts: true },
  ],
  [
    "no replica",
    { values: ['{"embed":{"replicas":0}}'] },
    { unavailable: ["embed"], permanent: true },
  ],
  [
    "no policy",
    { values: ['{"embed":{"replicas":2},"networkPolicy":{"enabled":false}}'] },
    { degrades: "access" },
  ],
])("reports the impact of a release with %s", (_, more, expected) => {
  const values = { name: "r", chart: "./helm/clipstack", values: ['{"embed":{"replicas":2}}'] };
  const change = plannedChange([
    { address: "helm_release.r", before: values, after: { ...values, ...more } },
  ]);
  const [service] = environment.services;
  const own = { ...service, resources: { release: "helm_release.r" } };
  const deployed = { ...environment, services: [own] };
  const { text, ...rest } = expected as { readonly text?: RegExp };
  const moments = { ...change, environmentBefore: deployed, environmentAfter: deployed };
  const found = impactOf(change.resources[0]!, comparisonOf(moments));
  expect(found).toMatchObject(rest);
  expect(found?.text).toMatch(text ?? /./);
});
