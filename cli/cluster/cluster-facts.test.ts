import { afterEach, expect, test } from "vitest";
import type { ClusterRequirements } from "../../constructs/kubernetes/cluster-requirements.ts";
import {
  type ApiAnswer,
  type ApiRequest,
  type TestCluster,
  testCluster,
} from "../../verify/cluster/test-cluster-server.ts";
import { readClusterFacts } from "./cluster-facts.ts";

let cluster: TestCluster | undefined;
afterEach(() => cluster?.close());

const requirements: Omit<ClusterRequirements, "kubeconfig"> = {
  schema: 1,
  environment: "k8s-gpu",
  context: "mine",
  namespace: "clipstack",
  createNamespace: false,
  apis: [],
  objects: [
    { kind: "secret", name: "key", setting: "embed.keySecret" },
    { kind: "persistentvolumeclaim", name: "weights", setting: "model.claim" },
  ],
  serviceMonitor: { labels: {} },
};
const forbidden = { rejected: 403, message: "you may not" };
const reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/** Reads the facts of a cluster that responds to these paths and forbids all others. */
async function facts(
  answers: Readonly<Record<string, (request: ApiRequest) => ApiAnswer | undefined>>,
  needs: Partial<ClusterRequirements> = {},
) {
  cluster = await testCluster((request) => {
    const own = answers[request.path];
    if (own !== undefined) return own(request);
    if (request.path === "/version") return { gitVersion: "v1.33.13" };
    if (request.path === "/apis") {
      return {
        groups: [{ versions: [{ groupVersion: "apps/v1" }, { groupVersion: "apps/v1beta1" }] }],
      };
    }
    return forbidden;
  });
  return readClusterFacts({ ...requirements, kubeconfig: cluster.kubeconfig, ...needs });
}

const namespace = "/api/v1/namespaces/clipstack";
const secret = `${namespace}/secrets/key`;
const claim = `${namespace}/persistentvolumeclaims/weights`;
const nothing = () => undefined;

test("omits facts that the user may not read, instead of reporting them as missing", async () => {
  const seen = await facts({});
  expect(seen).not.toHaveProperty("namespace");
  expect(seen).not.toHaveProperty("prometheuses");
  expect(seen).toMatchObject({
    version: "v1.33.13",
    apis: ["v1", "apps/v1", "apps/v1beta1"],
    ...{ objects: [undefined, undefined], claims: {}, forbidden: [] },
  });
  expect(seen.unanswered).toContain("deployments.apps");
});

test("distinguishes a denied permission from a failed access review", async () => {
  const seen = await facts({
    [reviews]: ({ body }) => {
      const { resource, group, namespace, verb } = body.spec.resourceAttributes;
      if (resource === "deployments") return "closed";
      const allowed = !(verb === "create" && ["services", "networkpolicies"].includes(resource));
      return { status: { allowed: allowed && namespace === "clipstack" }, group };
    },
  });
  expect(seen.forbidden).toEqual(["services", "networkpolicies.networking.k8s.io"]);
  expect(seen.unanswered).toEqual(["deployments.apps"]);
  expect(
    cluster?.requests.find(
      ({ body }) => body?.spec?.resourceAttributes?.resource === "networkpolicies",
    )?.body.spec.resourceAttributes.group,
  ).toBe("networking.k8s.io");
});

test("detects a missing namespace and its missing objects", async () => {
  const seen = await facts({ [namespace]: nothing, [secret]: nothing, [claim]: nothing });
  expect(seen).toMatchObject({ namespace: false, objects: [false, false], claims: {} });
});

test("reads the access modes of a claim, the labels of the namespace and the selectors of Prometheus", async () => {
  const prometheus = (name: string, of: string, spec: object) => ({
    metadata: { name, namespace: of },
    spec,
  });
  const seen = await facts({
    [namespace]: () => ({ metadata: { name: "clipstack", labels: { team: "ml" } } }),
    [secret]: () => ({ metadata: { name: "key" } }),
    [claim]: () => ({ metadata: { name: "weights" }, spec: { accessModes: ["ReadWriteOnce"] } }),
    "/apis/monitoring.coreos.com/v1/prometheuses": () => ({
      items: [
        prometheus("kps", "monitoring", {
          serviceMonitorSelector: { matchLabels: { release: "kps" } },
          serviceMonitorNamespaceSelector: {},
        }),
        prometheus("none", "default", {}),
      ],
    }),
  });
  expect(seen).toMatchObject({
    namespace: true,
    namespaceLabels: { team: "ml" },
    objects: [true, true],
    claims: { weights: ["ReadWriteOnce"] },
    prometheuses: [
      {
        namespace: "monitoring",
        name: "kps",
        monitors: { matchLabels: { release: "kps" } },
        namespaces: {},
      },
      { namespace: "default", name: "none" },
    ],
  });
});

test("reads nodes with their GPUs, and other GPU quotas", async () => {
  const quota = (name: string, labels = {}) => ({
    metadata: { name, labels },
    spec: { hard: { "requests.nvidia.com/gpu": "4" } },
  });
  const gpu = { label: "A10", vramMiB: 24_576, nodes: 1, gpusPerNode: 1, gpus: 1, gpusAtLeast: 1 };
  const seen = await facts(
    {
      "/api/v1/nodes": () => ({
        items: [
          {
            metadata: { name: "a", labels: { pool: "gpu" } },
            spec: { taints: [{ key: "nvidia.com/gpu", effect: "NoSchedule" }] },
            status: {
              allocatable: { "nvidia.com/gpu": "2" },
              conditions: [{ type: "Ready", status: "True" }],
            },
          },
          { metadata: { name: "b" }, spec: { unschedulable: true }, status: {} },
        ],
      }),
      [`${namespace}/resourcequotas`]: () => ({
        items: [quota("team"), quota("own", { "app.kubernetes.io/name": "clipstack" })],
      }),
    },
    { gpu: { ...gpu, selector: {}, tolerations: [] } as unknown as ClusterRequirements["gpu"] },
  );
  expect(seen.nodes).toMatchObject([
    {
      name: "a",
      ready: true,
      gpus: 2,
      labels: { pool: "gpu" },
      taints: [{ effect: "NoSchedule" }],
    },
    { name: "b", ready: false, gpus: 0, labels: {}, taints: [] },
  ]);
  expect(seen.gpuQuotas).toEqual([{ name: "team", hard: 4 }]);
});
