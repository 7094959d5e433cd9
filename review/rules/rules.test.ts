import { readdirSync, readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import ruleIds from "../../contract/rule-ids.json" with { type: "json" };
import { rulePacks } from "../../contract/rule-packs.ts";
import { shippedEnvironments } from "../../stacks/settings/environment-files.ts";
import { changeOfPlan } from "../input/plan-json.ts";
import { plannedChange } from "../test-plans.ts";
import { rulePage } from "../test-rule-pages.ts";
import { changeOf, withPlanBlocks } from "../test-stacks.ts";
import { findingsOfChange, waiverIds } from "./findings.ts";
import { otherPacks, packsOfRules, ruleSections, rules } from "./rules.ts";

const described = ruleSections.flatMap(({ title: pack, rules }) =>
  rules.map((rule) => [rule.id, { rule, pack, page: rulePage(rule.id) }] as const),
);

describe.each(described)("%s", (_, { rule, pack, page }) => {
  const { example, waiver } = page;

  test("has the severity, the pack and the fix of its page", () => {
    expect(page.summary).toBe(`**${rule.severity}** · ${pack} · ${page.title}`);
    expect(page.fix).toBe(`${rule.fix.charAt(0).toUpperCase()}${rule.fix.slice(1)}.`);
  });

  test("reports the message of its page for the failing example", () => {
    const [first] = rule.find(changeOf(example, "failing"));
    expect(first?.message).toBe(example.message);
  });

  test("passes its passing example", () => {
    expect(rule.find(changeOf(example, "passing"))).toEqual([]);
  });

  test("finds the same in the format of a plan", () => {
    const failing = changeOf(example, "failing");
    const passing = changeOf(example, "passing");
    expect(rule.find(withPlanBlocks(failing))).toEqual(rule.find(failing));
    expect(rule.find(withPlanBlocks(passing))).toEqual([]);
  });

  test("is waived by the waiver of its page", () => {
    expect(waiver.rule).toBe(rule.id);
    const options = { waivers: [waiver], today: "2026-12-01" };
    const found = findingsOfChange(changeOf(example, "failing"), options);
    expect(found.filter(({ waived }) => waived !== undefined)).not.toEqual([]);
    expect(found.filter(({ rule }) => rule === "waiver-unused")).toEqual([]);
  });

  test("has one-line messages and fixes", () => {
    for (const { message, fix } of rule.find(changeOf(example, "failing"))) {
      expect(message).toMatch(/^[^\n]{8,400}$/);
      expect(fix).toMatch(/^[^\n]{8,400}$/);
    }
  });
});

test("a renamed construct with a moved block passes", () => {
  const rename = rules.find(({ id }) => id === "renamed-resource");
  const { example } = rulePage("renamed-resource");
  const [from = "", to = ""] =
    rename
      ?.find(changeOf(example, "failing"))[0]
      ?.fix.match(/docker_volume\.[\w-]+/g)
      ?.map(String) ?? [];
  expect(from).not.toBe(to);
  const moved = { path: ["moved"], failing: [{ from, to }], passing: undefined };
  const edits = [...example.edits, moved];
  expect(rename?.find(changeOf({ stack: "single-gpu", edits }, "failing"))).toEqual([]);
});

const typed = (spec: object) => ({ metadata: [{ name: "db" }], spec: [spec] });
const created = (address: string, after: object) => ({ address, actions: ["create"], after });
const says = (id: string, ...resources: Parameters<typeof plannedChange>[0]) =>
  rules
    .find((rule) => rule.id === id)
    ?.find(plannedChange(resources))
    .map(({ message }) => message);

const budget = created(
  "kubernetes_pod_disruption_budget_v1.db",
  typed({ selector: [{ match_labels: { app: "db" } }] }),
);

test("a PodDisruptionBudget can select a StatefulSet", () => {
  const labels = { app: "db" };
  const pods = typed({ template: [{ metadata: [{ labels }] }] });
  expect(says("budget-selects", created("kubernetes_stateful_set_v1.db", pods), budget)).toEqual(
    [],
  );
});

test("a PodDisruptionBudget can select pods of a release", () => {
  const other = created("kubernetes_deployment_v1.a", typed({ template: [{}] }));
  const release = created("helm_release.db", { name: "db", chart: "postgresql" });
  expect(says("budget-selects", budget, other)).toHaveLength(1);
  expect(says("budget-selects", budget, other, release)).toEqual([]);
});

/** Pods of this project, in a namespace with a quota. */
const ownPods = (replicas: number, strategy: object, ...resources: readonly object[]) => [
  created(
    "kubernetes_deployment_v1.db",
    typed({
      replicas: String(replicas),
      strategy: [{ type: "RollingUpdate", rolling_update: [strategy] }],
      template: [
        {
          metadata: [{ labels: { "app.kubernetes.io/name": "clipstack" } }],
          spec: [{ container: resources.map((it) => ({ resources: [it] })) }],
        },
      ],
    }),
  ),
  created("kubernetes_resource_quota_v1.q", typed({ hard: { "requests.cpu": "4" } })),
];
test.each<readonly [string, ReturnType<typeof ownPods>, readonly RegExp[]]>([
  ["what fits", ownPods(3, { max_surge: "1" }, { requests: [{ cpu: "1" }] }), []],
  [
    "a surge in percent",
    ownPods(3, { max_surge: "100%" }, { requests: [{ cpu: "1" }] }),
    [/at least 6000/],
  ],
  ["the surge that is usual", ownPods(4, {}, { requests: [{ cpu: "1" }] }), [/at least 5000/]],
  [
    "a second container",
    ownPods(3, { max_surge: "0" }, { requests: [{ cpu: "1" }] }, { requests: [{ cpu: "2" }] }),
    [/at least 9000/],
  ],
  [
    "limits without requests",
    ownPods(3, { max_surge: "0" }, { limits: [{ cpu: "2" }] }),
    [/at least 6000/],
  ],
])("a quota must admit %s", (_, resources, expected) => {
  const found = says("quota-admits-pods", ...resources)?.filter((it) => /cpu/i.test(it)) ?? [];
  expect(found).toHaveLength(expected.length);
  for (const [index, form] of expected.entries()) expect(found[index]).toMatch(form);
});

test.each([
  ["terraform_data", { input: "a" }],
  ["docker_container", { name: "a", must_run: false, attach: true }],
])("a renamed deployment step passes: %s", (type, values) => {
  const goes = { address: `${type}.old`, actions: ["delete"], before: values };
  expect(says("renamed-resource", goes, created(`${type}.fresh`, values))).toEqual([]);
  const volume = { address: "docker_volume.old", actions: ["delete"], before: { name: "v" } };
  const fresh = created("docker_volume.fresh", { name: "v" });
  expect(says("renamed-resource", volume, fresh)).toHaveLength(1);
});

test("no finding contains a secret", () => {
  const all = described.flatMap(([, { rule, page }]) =>
    rule.find(changeOf(page.example, "failing")),
  );
  expect(JSON.stringify(described.map(([, { page }]) => page))).toContain("planted-0000000000");
  expect(JSON.stringify(all)).not.toContain("planted-0000000000");
});

test.each(shippedEnvironments)("finds only notes in the shipped environment %s", (stack) => {
  const change = changeOf({ stack, edits: [] }, "passing");
  const found = rules
    .filter(({ severity }) => severity !== "note")
    .flatMap((rule) => rule.find(change).map(({ message }) => `${rule.id}: ${message}`));
  expect(found).toEqual([]);
});

test.each([
  ["single-gpu", "accelerator: cpu"],
  ["single-gpu", "embed: { backend: triton, expose: all-interfaces, allowPlaintext: true }"],
  [
    "single-gpu",
    "embed: { expose: all-interfaces, tls: { acme: { domain: gpu.example.com, email: ops@example.com } } }",
  ],
  ["single-gpu", "tritonOnnx: { modelControl: explicit, server: emulator }"],
  ["single-gpu", "tritonTrt: { instancesPerGpu: 4, cudaGraphs: true }"],
  ["single-gpu", "tritonOnnx: { preferredBatchSizes: [4, 16] }"],
  [
    "single-gpu",
    "weights: host-path\nhost: { docker: 'ssh://ops@gpu-1', gpu: b200 }\nmodelRepository: /srv/models",
  ],
  ["single-gpu", "state: { backend: s3, bucket: states, region: eu-central-1 }"],
  ["multi-gpu-4x", "topology: per-gpu\nperGpu: { backend: tensorrt }"],
  ["multi-gpu-4x", "accelerator: cpu"],
  ["kind-local", "deployWith: helm"],
  ["kind-local", "budget: { minAvailable: 1 }"],
  ["k8s-gpu", "accelerator: cpu"],
  ["k8s-gpu", "triton: { autoscaler: { minReplicas: 2, maxReplicas: 2 } }"],
  [
    "k8s-gpu",
    "createNamespace: false\nembed: { service: NodePort, keySecret: embed-key, tls: { secret: embed-tls } }",
  ],
  [
    "k8s-gpu",
    "createNamespace: false\nembed: { service: LoadBalancer, keySecret: embed-key, allowPlaintext: true }",
  ],
] as const)("finds nothing but notes in %s with the settings %j", (stack, settings) => {
  const change = changeOf({ stack, settings, edits: [] }, "passing");
  const found = rules
    .filter(({ severity }) => severity !== "note")
    .flatMap((rule) => rule.find(change).map(({ message }) => `${rule.id}: ${message}`));
  expect(found).toEqual([]);
});

test("finds a Triton server that other hosts reach through the proxy with TLS", () => {
  const settings = `embed: { expose: all-interfaces, tls: { acme: { domain: gpu.example.com, email: ops@example.com } } }
tritonOnnx: { expose: all-interfaces, allowUnauthenticated: true }`;
  const change = changeOf({ stack: "single-gpu", settings, edits: [] }, "passing");
  const found = rules
    .filter(({ severity }) => severity !== "note")
    .flatMap((rule) => rule.find(change).map(({ message }) => `${rule.id}: ${message}`));
  expect(found).toEqual([
    "triton-exposed: Triton has no authentication and is reachable from other hosts at https://gpu.example.com:9010, https://gpu.example.com:9011",
  ]);
});

test.each([
  ["create", []],
  ["kind-local-create", []],
  ["nothing-changed", []],
  ["queue-delay-changed", []],
  ["gpu-swapped", ["volume-lost"]],
  ["image-changed", ["volume-lost"]],
  ["port-exposed", ["endpoint-changed"]],
  ["stack-destroyed", ["environment-lost"]],
])("finds exactly the expected violations in the plan %s", (plan, expected) => {
  const file = `review/input/plans/${plan}.plan.json`;
  const stack = plan.startsWith("kind-local") ? "kind-local" : "single-gpu";
  const change = changeOfPlan({ fileName: file, text: readFileSync(file, "utf8"), stack });
  const found = rules
    .filter(({ severity }) => severity !== "note")
    .flatMap((rule) => rule.find(change).map(() => rule.id));
  expect(found).toEqual(expected);
});

test("the packs of single rules name rules, each once, and differ from the packs of their section", () => {
  const listed = Object.entries(otherPacks).flatMap(([packs, ids]) =>
    ids.split(" ").map((id) => [id, packs] as const),
  );
  expect(new Set(listed.map(([id]) => id)).size).toBe(listed.length);
  for (const [id, packs] of listed) {
    const section = ruleSections.find((it) => it.rules.some((rule) => rule.id === id));
    expect(section?.packs.join(" "), id).toMatch(/^./);
    expect(section?.packs.join(" "), id).not.toBe(packs);
    expect(rulePacks).toEqual(expect.arrayContaining(packs.split(" ")));
  }
});

test("every rule has a page and a row in the overview, and every page a rule", () => {
  const pages = readdirSync("docs/rules").map((file) => file.replace(/\.md$/, ""));
  expect(pages.sort()).toEqual(["README", ...ruleIds, ...waiverIds].sort());
  const overview = readFileSync("docs/rules/README.md", "utf8");
  const sections = ruleSections.map(({ title, rules }) => {
    const rows = rules.map(
      ({ id, severity }) =>
        `| [${id}](${id}.md) | ${severity} | ${packsOfRules.get(id)?.join(", ")} | ${rulePage(id).title} |`,
    );
    return [
      `## ${title}`,
      "",
      "| rule | severity | packs | requirement |",
      "| --- | --- | --- | --- |",
      ...rows,
      "",
    ];
  });
  expect(overview).toContain(sections.flat().join("\n"));
  expect(overview).toContain(`checks ${rules.length} rules`);
  for (const severity of ["error", "warning", "note"]) {
    const count = rules.filter((rule) => rule.severity === severity).length;
    expect(overview).toContain(`| ${severity} | ${count} |`);
  }
});
