import { expect, test } from "vitest";
import { changeOfDocuments } from "../input/document-change.ts";
import { parseDocument } from "../input/synthesized-document.ts";
import { markdownComment } from "../report/comment-markdown.ts";
import { reviewOf } from "../review.ts";
import { findingsOfChange } from "../rules/findings.ts";
import { type PlannedResource, plannedChange, savedChange } from "../test-plans.ts";
import { synthesizedText } from "../test-stacks.ts";
import type { Review } from "./stack-review.ts";

/** `spec` of a pod whose container has a limit of this resource. */
const pod = (name: string) => ({
  spec: [{ container: [{ resources: [{ limits: { [name]: "1" } }] }] }],
});

/** Resource of another provider, as Terraform writes it. */
const aws = (type: string, change: Partial<PlannedResource> = {}) => ({
  address: `${type}.a`,
  provider_name: "registry.example/hashicorp/aws",
  mode: "managed",
  type,
  name: "a",
  change: {
    actions: change.actions ?? ["update"],
    before: change.before ?? null,
    after: change.after ?? null,
  },
});

const openedRule = aws("aws_security_group_rule", {
  before: { cidr_blocks: ["10.0.0.0/8"], from_port: 22, to_port: 22 },
  after: { cidr_blocks: ["0.0.0.0/0"], from_port: 0, to_port: 65_535 },
});

/** Review of a real plan in which nothing changes, with further resources. */
function reviewWith(...resources: readonly object[]): Review {
  const more = plannedChange([], { resource_changes: resources });
  const saved = savedChange("nothing-changed");
  return reviewOf([{ ...saved, resources: [...saved.resources, ...more.resources] }]);
}

test("reports an opened security group as unexamined for exposure, and not as safe", () => {
  const review = reviewWith(openedRule);
  expect(review.verdict).toEqual({
    level: "attention",
    reasons: [
      "single-gpu: 1 resource of hashicorp/aws changes but was not examined: aws_security_group_rule.",
    ],
  });
  const text = markdownComment(review);
  expect(text).toContain("None of the 20 resources examined publishes a port beyond loopback");
  for (const topic of ["exposure", "capacity and cost"]) {
    expect(text).toContain(
      `1 resource of hashicorp/aws was not examined for ${topic}: aws_security_group_rule.`,
    );
  }
  expect(text).toContain("<br>Not examined.");
});

test.each(["create", "update", "delete,create", "delete"])(
  "%s of an unexamined type is not safe",
  (actions) => {
    const one = aws("aws_lb", { actions: actions.split(","), before: {}, after: {} });
    expect(reviewWith(one).verdict.level).toBe("attention");
  },
);

test("unchanged unexamined resources appear in the statements but not in the verdict", () => {
  const kept = (type: string) => aws(type, { actions: ["no-op"], before: {}, after: {} });
  const review = reviewWith(kept("aws_vpc"), kept("aws_lb"), kept("aws_instance"));
  expect(review.verdict).toEqual({ level: "safe", reasons: [] });
  expect(markdownComment(review)).toContain(
    "3 resources of hashicorp/aws were not examined for exposure: aws_instance, aws_lb, aws_vpc.",
  );
});

test("reports that nothing was examined in a plan with only unexamined types", () => {
  const text = markdownComment(reviewOf([plannedChange([], { resource_changes: [openedRule] })]));
  expect(text).toContain("No resource was examined for exposure.");
});

const created = (type: string, after: object, more: object = {}) => ({
  ...aws(type, { actions: ["create"], after }),
  ...more,
});

test.each<readonly [string, object]>([
  [
    "of example/kubernetes",
    created(
      "kubernetes_mutating_webhook_configuration_v1",
      {},
      { provider_name: "registry.example/example/kubernetes" },
    ),
  ],
  ["of hashicorp/aws", created("kubernetes_manifest", { manifest: { kind: "ClusterIssuer" } })],
  [
    "with an unknown chart or unreadable values",
    created("helm_release", { chart: "ingress-nginx", values: [] }),
  ],
  [
    "with an unknown chart or unreadable values",
    created("helm_release", {
      chart: "./helm/clipstack",
      values: ["{}"],
      set: [{ name: "embed.service.type", value: "LoadBalancer" }],
    }),
  ],
  [
    "with ports or privileges known only after the apply",
    {
      ...created("docker_container", {}),
      change: {
        actions: ["create"],
        before: null,
        after: { image: "a" },
        after_unknown: { privileged: true },
      },
    },
  ],
  ...(
    [
      ["group_add", "docker_container", { group_add: ["docker"] }],
      ["network_mode", "docker_container", { network_mode: "container:vpn" }],
      ["privileged.a", "docker_container", { privileged: { a: 1 } }],
      ["env", "docker_container", { env: ["LD_PRELOAD=/tmp/a.so"] }],
      ["command", "docker_container", { must_run: false, attach: true, command: ["sh"] }],
      ["spec.external_name", "kubernetes_service_v1", { spec: [{ external_name: "a.example" }] }],
      [
        "spec.host_aliases.ip",
        "kubernetes_pod_v1",
        { spec: [{ host_aliases: [{ ip: "10.0.0.1" }] }] },
      ],
      [
        "spec.pod_failure_policy.rule",
        "kubernetes_job_v1",
        { spec: [{ pod_failure_policy: { rule: 1 } }] },
      ],
      ["reclaim_policy", "kubernetes_storage_class_v1", { reclaim_policy: "Delete" }],
      ["spec.gateway_class_name", "kubernetes_gateway", { spec: [{ gateway_class_name: "a" }] }],
      ["repository", "helm_release", { chart: "clipstack", values: ["{}"], repository: "oci://a" }],
    ] as const
  ).map(
    ([attribute, type, values]) =>
      [`with values that the review does not know (${attribute})`, created(type, values)] as const,
  ),
  ...[
    created("docker_container", { gpus: "all" }),
    created("docker_container", { runtime: "nvidia" }),
    created("docker_container", { env: ["NVIDIA_VISIBLE_DEVICES=0,1"] }),
    created("docker_container", { devices: [{ host_path: "/dev/nvidia0" }] }),
    created("kubernetes_pod_v1", pod("nvidia.com/gpu")),
    created("kubernetes_job_v1", { spec: [{ template: [pod("nvidia.com/mig-1g.5gb")] }] }),
    created("kubernetes_deployment", { spec: [{ template: [pod("nvidia.com/gpu.shared")] }] }),
    created("kubernetes_cron_job_v1", {
      spec: [{ job_template: [{ spec: [{ template: [pod("amd.com/gpu")] }] }] }],
    }),
  ].map((resource) => ["with GPUs outside the environment's services", resource] as const),
])("a new resource %s is not safe", (which, resource) => {
  const { verdict } = reviewWith(resource);
  expect(verdict.level).toBe("attention");
  expect(verdict.reasons.join()).toContain(`1 resource ${which} changes but was not examined`);
});

test("a container that only reads the metrics of GPUs is examined", () => {
  const labels = [{ label: "clipstack.reads-gpu-metrics", value: "true" }];
  const { verdict } = reviewWith(created("docker_container", { gpus: "device=0", labels }));
  expect(verdict.reasons.join()).not.toContain("not examined");
});

test.each([
  ["null_resource", ["create"], "safe", undefined],
  ["terraform_data", ["create"], "safe", undefined],
  ["null_resource", ["create"], "attention", "curl planted | sh"],
  [
    "terraform_data",
    ["delete", "create"],
    "attention",
    "node x/clipstack.mjs doctor; curl planted",
  ],
  ["terraform_data", ["create"], "safe", "node cli/clipstack.mjs doctor single-gpu"],
  ["terraform_data", ["create"], "safe", "npx --no-install clipstack doctor single-gpu"],
  ["terraform_data", ["create"], "attention", "npx clipstack doctor single-gpu"],
] as const)("%s with %j is %s, with the program %s", (type, actions, level, command) => {
  const address = `${type}.a[0]`;
  const provisioners = [
    { type: "local-exec", expressions: { command: { constant_value: command } } },
  ];
  const change = plannedChange([{ address, actions, before: {}, after: {} }], {
    configuration: {
      root_module: {
        resources: [{ address: `${type}.a`, ...(command === undefined ? {} : { provisioners }) }],
      },
    },
  });
  const review = reviewOf([change]);
  expect(review.verdict.level).toBe(level);
  expect(markdownComment(review)).not.toContain("planted");
  if (level === "attention") expect(review.stacks[0]?.changes[0]?.isStep).toBe(false);
});

test("needs attention for a data source only if it runs a program during the apply", () => {
  const data = (type: string) => ({
    ...aws(type, { actions: ["read"], after: {} }),
    address: `data.${type}.a`,
    mode: "data",
  });
  expect(reviewWith(data("external")).verdict.level).toBe("attention");
  expect(reviewWith(data("aws_ami")).verdict.level).toBe("safe");
});

test("reports a drifted security group as unexamined for exposure, and not as safe", () => {
  const change = plannedChange([], {
    resource_drift: [openedRule],
    resource_changes: [{ ...openedRule, change: { ...openedRule.change, actions: ["no-op"] } }],
  });
  const review = reviewOf([change]);
  expect(review.verdict.level).toBe("attention");
  expect(markdownComment(review)).toContain(
    "1 resource of hashicorp/aws was not examined for exposure",
  );
});

test("needs attention for a targeted plan", () => {
  expect(reviewOf([plannedChange([], { complete: false })]).verdict).toEqual({
    level: "attention",
    reasons: ["test: The plan is incomplete: a second plan and apply is required."],
  });
});

test("a manifest is examined as the typed resource of its kind", () => {
  const manifest = (replicas: number) => ({
    manifest: { kind: "Deployment", metadata: { name: "d" }, spec: { replicas, template: {} } },
  });
  const change = plannedChange([
    { address: "kubernetes_manifest.d", before: manifest(3), after: manifest(0) },
  ]);
  expect(reviewOf([change]).verdict.reasons).toEqual(["test: d becomes permanently unavailable."]);
});

const read = (document: unknown) => parseDocument(JSON.stringify(document), "cdk.tf.json");
const stacks = ["single-gpu", "multi-gpu-4x", "kind-local", "k8s-gpu"] as const;

test.each(stacks)("everything in %s is examined", (name) => {
  const change = changeOfDocuments(name, undefined, read(JSON.parse(synthesizedText(name))));
  const {
    stacks: [stack],
  } = reviewOf([change]);
  expect(stack?.coverage.unexamined).toEqual([]);
  expect(stack?.coverage.resources).toBeGreaterThan(5);
});

test("needs attention for a changed module, and lists an unchanged one as unexamined", () => {
  const tree = (version: string) =>
    read({
      terraform: { required_providers: { aws: { source: "hashicorp/aws" } } },
      module: { vpc: { source: "../vpc", version } },
      resource: { aws_vpc: { v: {} } },
    });
  const changed = reviewOf([changeOfDocuments("s", tree("1"), tree("2"))]);
  expect(changed.verdict.reasons).toEqual([
    "s: 1 resource in a module changes but was not examined: module.vpc.",
  ]);
  const same = markdownComment(reviewOf([changeOfDocuments("s", tree("1"), tree("1"))]));
  expect(same).toContain("Safe, except for files that were not compared");
  expect(same).toContain("1 resource of hashicorp/aws was not examined for exposure: aws_vpc.");
});

test("does not report rules as passed for resources that they do not cover", () => {
  const saved = savedChange("nothing-changed");
  const more = plannedChange([], { resource_changes: [openedRule] });
  const change = { ...saved, resources: [...saved.resources, ...more.resources] };
  const findings = findingsOfChange(change, { waivers: [], today: "2026-11-30" });
  expect(markdownComment(reviewOf([change], { findings }))).toContain(
    "1 resource of hashicorp/aws is covered only by the rules of pack core: aws_security_group_rule.",
  );
});

test.each(["kubernetes_config_map_v1.a", "kubernetes_secret.a"])(
  "another configuration of pods is not judged: %s",
  (address) => {
    const [before, after] = ["a", "b"].map((text) => ({ data: { "app.conf": text } }));
    const level = (...actions: readonly string[]) =>
      reviewOf([
        plannedChange([{ address, actions, after, ...(actions[0] === "update" && { before }) }]),
      ]).verdict;
    expect(level("create").level).toBe("safe");
    expect(level("update").reasons.join()).toContain("does not know (data.app.conf) changes");
  },
);

test("an attribute that is not set has a default, which is unknown when a resource is created", () => {
  const unknown = (after_unknown: object, before?: object) =>
    reviewOf([
      plannedChange([
        {
          address: "docker_container.a",
          actions: [before === undefined ? "create" : "update"],
          before,
          after: { name: "a" },
          more: { after_unknown },
        },
      ]),
    ]).verdict.level;
  expect(unknown({ labels: true, log_driver: true })).toBe("safe");
  expect(unknown({ security_opts: true })).toBe("attention");
  expect(unknown({ labels: true }, { name: "a" })).toBe("attention");
});
