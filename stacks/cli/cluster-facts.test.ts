import { afterAll, beforeAll, expect, test } from "vitest";
import type { ClusterRequirements } from "../../constructs/cluster-requirements.ts";
import { readClusterFacts } from "./cluster-facts.ts";
import { pathWith, standIns } from "./test-programs.ts";

const programs = standIns();
const path = process.env.PATH;
beforeAll(() => {
  process.env.PATH = pathWith(programs.folder);
});
afterAll(() => {
  process.env.PATH = path;
  programs.remove();
});

const requirements: ClusterRequirements = {
  schema: 1,
  environment: "k8s-gpu",
  kubeconfig: "config",
  context: "gpu",
  namespace: "clipstack",
  createNamespace: false,
  apis: [],
  objects: [
    { kind: "secret", name: "key", setting: "embed.keySecret" },
    { kind: "persistentvolumeclaim", name: "weights", setting: "model.claim" },
  ],
  serviceMonitor: { labels: {} },
};

/** Facts of a cluster whose kubectl answers with the first of `answers` that its arguments have; to the rest it says no. */
function facts(answers: Readonly<Record<string, string>>) {
  const cases = Object.entries(answers).map(([words, script]) => `*"${words}"*) ${script};;`);
  programs.put(
    "kubectl",
    [
      'case "$*" in',
      ...cases,
      `*"get --raw /version"*) echo '{"gitVersion":"v1.33.13"}';;`,
      "*api-versions*) echo v1;;",
      '*) echo "Error from server (Forbidden): you may not" >&2; exit 1;;',
      "esac",
    ].join("\n"),
  );
  return readClusterFacts(requirements);
}
const says = (value: unknown) => `echo '${JSON.stringify(value)}'`;

test("knows nothing of what it may not look at, and does not say that it is not there", async () => {
  const seen = await facts({});
  expect(seen).not.toHaveProperty("namespace");
  expect(seen).not.toHaveProperty("prometheuses");
  expect(seen).toMatchObject({ objects: [undefined, undefined], claims: {}, forbidden: [] });
  expect(seen.unanswered).toContain("deployments.apps");
});

test("tells a permission that is refused from one that nobody answers for", async () => {
  const seen = await facts({
    "can-i create services": "echo no; exit 1",
    "can-i create secrets": "echo 'no - RBAC: role not found'; exit 1",
    "can-i create deployments.apps": "echo 'Unable to connect to the server' >&2; exit 1",
    "can-i create": "echo yes",
  });
  expect(seen.forbidden).toEqual(["services", "secrets"]);
  expect(seen.unanswered).toEqual(["deployments.apps"]);
});

test("sees that there is no namespace, and none of its objects", async () => {
  const seen = await facts({ "--ignore-not-found": ":" });
  expect(seen).toMatchObject({ namespace: false, objects: [false, false], claims: {} });
});

test("reads the access of a claim, the labels of the namespace and what Prometheus looks for", async () => {
  const seen = await facts({
    "get namespace clipstack": says({ metadata: { labels: { team: "ml" } } }),
    "get secret key": "echo secret/key",
    "get persistentvolumeclaim weights": says({ spec: { accessModes: ["ReadWriteOnce"] } }),
    "get prometheuses": says({
      items: [
        {
          metadata: { name: "kps", namespace: "monitoring" },
          spec: {
            serviceMonitorSelector: { matchLabels: { release: "kps" } },
            serviceMonitorNamespaceSelector: {},
          },
        },
        { metadata: { name: "none", namespace: "default" }, spec: {} },
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
        monitors: { matchLabels: { release: "kps" }, matchExpressions: [] },
        namespaces: { matchLabels: {}, matchExpressions: [] },
      },
      { namespace: "default", name: "none" },
    ],
  });
});
