import { describe, expect, test } from "vitest";
import type { ClusterRequirements } from "../../constructs/kubernetes/cluster-requirements.ts";
import type { ClusterFacts, ClusterNode } from "./cluster-facts.ts";
import { judgeCluster } from "./cluster-findings.ts";

const toleration = { key: "nvidia.com/gpu", operator: "Exists", effect: "NoSchedule" } as const;
const gpu: NonNullable<ClusterRequirements["gpu"]> = {
  label: "NVIDIA L4",
  vramMiB: 23_034,
  nodes: 2,
  gpusPerNode: 1,
  gpus: 2,
  gpusAtLeast: 2,
  runtimeClass: "nvidia",
  selector: {},
  tolerations: [toleration],
};
const needs: ClusterRequirements = {
  schema: 1,
  environment: "k8s-gpu",
  kubeconfig: "~/.kube/config",
  context: "gpu",
  namespace: "clipstack",
  createNamespace: true,
  gpu,
  apis: [
    {
      groupVersion: "keda.sh/v1alpha1",
      setting: "triton.autoscaler.source keda",
      program: "KEDA",
    },
  ],
  objects: [],
};
const node = (name: string, changes: Partial<ClusterNode> = {}): ClusterNode => ({
  name,
  ready: true,
  gpus: 1,
  labels: {},
  taints: [{ key: "nvidia.com/gpu", effect: "NoSchedule" }],
  ...changes,
});
const facts: ClusterFacts = {
  version: "v1.33.13",
  nodes: [node("a"), node("b"), node("control", { gpus: 0 })],
  runtimeClass: true,
  apis: ["v1", "keda.sh/v1alpha1"],
  namespace: false,
  objects: [],
  claims: {},
  gpuQuotas: [],
  forbidden: [],
  unanswered: [],
};

function problems(
  changes: Partial<ClusterFacts>,
  others: Partial<ClusterRequirements> = {},
): readonly string[] {
  return judgeCluster({ ...needs, ...others }, { ...facts, ...changes }).problems.map(
    ({ message }) => message,
  );
}
const notes = (changes: Partial<ClusterFacts>, others: Partial<ClusterRequirements> = {}) =>
  judgeCluster({ ...needs, ...others }, { ...facts, ...changes }).notes;

test("reports no problems on a complete cluster", () => {
  expect(judgeCluster(needs, facts)).toEqual({ problems: [], notes: [] });
});

test("fails on an old Kubernetes", () => {
  expect(problems({ version: "v1.26.9-gke.1" })).toEqual([
    "Kubernetes must be 1.27 or newer, got v1.26.9-gke.1",
  ]);
  expect(problems({ version: "v1.27.0" })).toEqual([]);
});

test("fails on an API that is not served", () => {
  expect(problems({ apis: ["v1", "keda.sh/v2"] })).toEqual([
    "the cluster must serve keda.sh/v1alpha1 for triton.autoscaler.source keda",
  ]);
});

test("fails on a missing RuntimeClass, but not on an unreadable one", () => {
  expect(problems({ runtimeClass: false })).toEqual([
    "the RuntimeClass 'nvidia' (nodePool.runtimeClass) must exist",
  ]);
  expect(problems({ runtimeClass: undefined })).toEqual([]);
});

test("fails on a cluster without GPUs", () => {
  expect(problems({ nodes: [node("a", { gpus: 0 })] })).toEqual([
    "nodePool must have 2 ready nodes with 1 GPUs, got 0 (no node offers nvidia.com/gpu); the minimum number of pods needs 2 GPUs",
  ]);
});

test.each([
  ["is not ready", { ready: false }, "b has 1 and is not ready"],
  [
    "has a taint that is not accepted",
    { taints: [{ key: "spot", effect: "NoSchedule" }] },
    "b has 1 and a taint that nodePool.tolerations does not tolerate",
  ],
  [
    "has a taint with another effect",
    { taints: [{ key: "nvidia.com/gpu", effect: "NoExecute" }] },
    "b has 1 and a taint that nodePool.tolerations does not tolerate",
  ],
])("leaves out a node that %s", (_, changes, why) => {
  expect(problems({ nodes: [node("a"), node("b", changes)] })).toEqual([
    `nodePool must have 2 ready nodes with 1 GPUs, got 1 (a has 1; ${why}); the minimum number of pods needs 2 GPUs`,
  ]);
});

test("leaves out a node without the labels of the pool", () => {
  const selector = { pool: "gpu" };
  const labels = { pool: "gpu" };
  expect(
    problems({ nodes: [node("a", { labels }), node("b")] }, { gpu: { ...gpu, selector } }),
  ).toEqual([
    "nodePool must have 2 ready nodes with 1 GPUs, got 1 (a has 1; b has 1 without the labels of nodePool.selector); the minimum number of pods needs 2 GPUs",
  ]);
});

test("accepts a taint without effect on scheduling, and a toleration of all effects", () => {
  const preferred = node("b", { taints: [{ key: "spot", effect: "PreferNoSchedule" }] });
  expect(problems({ nodes: [node("a"), preferred] })).toEqual([]);
  const every = { key: "spot", operator: "Equal", value: "yes" } as const;
  const spot = node("b", { taints: [{ key: "spot", value: "yes", effect: "NoExecute" }] });
  expect(
    problems({ nodes: [node("a"), spot] }, { gpu: { ...gpu, tolerations: [toleration, every] } }),
  ).toEqual([]);
});

test("notes that pods beyond the minimum stay pending with fewer nodes than declared", () => {
  const few = { gpu: { ...gpu, gpusAtLeast: 1 } };
  expect(problems({ nodes: [node("a")] }, few)).toEqual([]);
  expect(notes({ nodes: [node("a")] }, few)).toEqual([
    "nodePool must have 2 ready nodes with 1 GPUs, got 1 (a has 1); further pods stay pending",
  ]);
});

test("fails on GPUs with less memory than the declared model", () => {
  const small = node("b", { labels: { "nvidia.com/gpu.memory": "15360" } });
  expect(problems({ nodes: [node("a"), small] })).toEqual([
    "the GPUs of b must have the 23034 MiB of NVIDIA L4 (nodePool.gpu), got 15360",
  ]);
});

test("fails on another quota that admits fewer GPUs", () => {
  expect(problems({ gpuQuotas: [{ name: "team", hard: 1 }] })).toEqual([
    "the ResourceQuota 'team' must admit the 2 GPUs of all pods, got 1",
  ]);
  expect(problems({ gpuQuotas: [{ name: "team", hard: 2 }] })).toEqual([]);
});

test("notes that nodes could not be listed", () => {
  expect(problems({ nodes: undefined })).toEqual([]);
  expect(notes({ nodes: undefined })).toEqual([
    "GPUs were not checked: this context may not list nodes",
  ]);
});

test("fails on missing objects of a namespace", () => {
  const objects = [
    { kind: "secret", name: "key", setting: "embed.keySecret" },
    { kind: "persistentvolumeclaim", name: "weights", setting: "model.claim" },
  ] as const;
  const others = { createNamespace: false, objects: [...objects] };
  expect(problems({ namespace: true, objects: [false, true] }, others)).toEqual([
    "the secret 'key' (embed.keySecret) must exist in the namespace 'clipstack'",
  ]);
  expect(problems({ namespace: true, objects: [undefined, false] }, others)).toEqual([
    "the persistentvolumeclaim 'weights' (model.claim) must exist in the namespace 'clipstack'",
  ]);
  expect(problems({ namespace: false }, others)).toEqual([
    "the namespace 'clipstack' must exist, because createNamespace is false",
  ]);
});

test("notes an existing namespace with createNamespace", () => {
  expect(problems({ namespace: true })).toEqual([]);
  expect(notes({ namespace: true })).toHaveLength(1);
});

test("fails on resources that the user may not create", () => {
  expect(problems({ forbidden: ["deployments.apps", "namespaces"] })).toEqual([
    "the user of the context must be allowed to create deployments.apps, namespaces in 'clipstack'",
  ]);
});

test("notes facts that could not be read, without failing", () => {
  const objects = [{ kind: "secret", name: "key", setting: "embed.keySecret" }] as const;
  const others = { createNamespace: false, objects: [...objects] };
  const unknown = { namespace: undefined, objects: [undefined], unanswered: ["services"] };
  expect(problems(unknown, others)).toEqual([]);
  expect(notes(unknown, others)).toEqual([
    "the namespace 'clipstack' was not checked: this context may not read it",
    "the secret 'key' (embed.keySecret) was not checked: this context may not read it",
    "permission to create services in 'clipstack' was not checked: the access review failed",
  ]);
});

describe("a volume of weights", () => {
  const weights = (modes: readonly string[], mountedBy: { pods: number; nodes: number }) => {
    const claim = {
      kind: "persistentvolumeclaim",
      name: "weights",
      setting: "model.claim",
    } as const;
    return judgeCluster(
      { ...needs, createNamespace: false, objects: [{ ...claim, mountedBy }] },
      { ...facts, namespace: true, objects: [true], claims: { weights: modes } },
    );
  };

  test.each([["ReadWriteMany"], ["ReadOnlyMany"]])("may be %s for any pods", (mode) => {
    const verdict = weights(["ReadWriteOnce", mode], { pods: 9, nodes: 9 });
    expect(verdict).toEqual({ problems: [], notes: [] });
  });

  test("fails if only one node can mount it and the pods need several", () => {
    expect(weights(["ReadWriteOnce"], { pods: 4, nodes: 2 }).problems).toMatchObject([
      {
        message:
          "the persistentvolumeclaim 'weights' (model.claim) is ReadWriteOnce: only pods of one node can mount it, got 4 pods on 2 nodes",
      },
    ]);
  });

  test("is a note if only one node can mount it and the pods may be on one", () => {
    expect(weights(["ReadWriteOnce"], { pods: 4, nodes: 1 })).toEqual({
      problems: [],
      notes: [
        "the persistentvolumeclaim 'weights' (model.claim) is ReadWriteOnce: of its 4 pods, those on another node stay pending",
      ],
    });
    expect(weights(["ReadWriteOnce"], { pods: 1, nodes: 1 }).notes).toEqual([]);
  });

  test("fails if only one pod can mount it and there are more", () => {
    expect(weights(["ReadWriteOncePod"], { pods: 2, nodes: 1 }).problems).toMatchObject([
      {
        message:
          "the persistentvolumeclaim 'weights' (model.claim) is ReadWriteOncePod: only one pod can mount it, got up to 2",
      },
    ]);
    expect(weights(["ReadWriteOncePod"], { pods: 1, nodes: 1 })).toEqual({
      problems: [],
      notes: [],
    });
  });
});

describe("ServiceMonitors", () => {
  const everything = { matchLabels: {}, matchExpressions: [] };
  const release = { ...everything, matchLabels: { release: "kps" } };
  const kps = { namespace: "monitoring", name: "kps", monitors: release, namespaces: everything };
  const judge = (
    prometheuses: ClusterFacts["prometheuses"],
    labels: Readonly<Record<string, string>> = {},
    changes: Partial<ClusterFacts> = {},
  ) =>
    judgeCluster(
      { ...needs, serviceMonitor: { labels } },
      { ...facts, apis: [...facts.apis, "monitoring.coreos.com/v1"], prometheuses, ...changes },
    );
  const ignored = (why: string) => [
    `a Prometheus must read the ServiceMonitors of this environment, got ${why}`,
  ];
  const messages = (...args: Parameters<typeof judge>) =>
    judge(...args).problems.map(({ message }) => message);

  test("fail if no Prometheus selects their labels, as with kube-prometheus-stack", () => {
    expect(messages([kps])).toEqual(ignored("monitoring/kps selects release=kps"));
    expect(judge([kps], { release: "kps" })).toEqual({ problems: [], notes: [] });
    expect(messages([kps, { ...kps, monitors: everything }])).toEqual([]);
    expect(messages([{ ...kps, monitors: undefined }])).toEqual(
      ignored("monitoring/kps selects none"),
    );
  });

  test.each([
    ["In", ["kps", "x"], { release: "kps" }, {}],
    ["NotIn", ["kps"], {}, { release: "kps" }],
    ["Exists", [], { release: "y" }, {}],
    ["DoesNotExist", [], {}, { release: "y" }],
  ] as const)("are selected by an expression with %s", (operator, values, good, bad) => {
    const monitors = {
      ...everything,
      matchExpressions: [{ key: "release", operator, values: [...values] }],
    };
    expect(messages([{ ...kps, monitors }], good)).toEqual([]);
    expect(messages([{ ...kps, monitors }], bad)).toHaveLength(1);
  });

  test("fail if Prometheus does not select their namespace", () => {
    const labels = { release: "kps" };
    const elsewhere = ignored("monitoring/kps does not select the namespace 'clipstack'");
    expect(messages([{ ...kps, namespaces: undefined }], labels)).toEqual(elsewhere);
    expect(messages([{ ...kps, namespace: "clipstack", namespaces: undefined }], labels)).toEqual(
      [],
    );
    const team = [{ ...kps, namespaces: { ...everything, matchLabels: { team: "ml" } } }];
    expect(messages(team, labels)).toEqual(elsewhere);
    const there = { namespace: true, namespaceLabels: { team: "ml" } };
    expect(messages(team, labels, there)).toEqual([]);
    // not readable
    expect(messages(team, labels, { namespace: undefined })).toEqual([]);
  });

  test("are a note without a Prometheus object", () => {
    expect(judge(undefined)).toEqual({
      problems: [],
      notes: ["ServiceMonitors were not checked: this context may not list Prometheus objects"],
    });
    expect(judge([])).toEqual({
      problems: [],
      notes: [
        "the cluster has no Prometheus object: another program must read the ServiceMonitors of this environment",
      ],
    });
  });
});

test("checks no GPUs if none are needed", () => {
  expect(problems({ nodes: undefined, runtimeClass: undefined }, { gpu: undefined })).toEqual([]);
});
