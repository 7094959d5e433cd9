import { describe, expect, test } from "vitest";
import { expression } from "../../constructs/terraform/expression.ts";
import { reviewOf } from "../review.ts";
import { findingsOfChange } from "../rules/findings.ts";
import { savedChange } from "../test-plans.ts";
import { synthesizedText } from "../test-stacks.ts";
import type { ResourceChange, StackChange } from "./change.ts";
import { changeOfDocuments, withDocument } from "./document-change.ts";
import { parseDocument } from "./synthesized-document.ts";

/** Settings of the saved plans, with one change. */
const settings = (
  more: { readonly gpu?: string; readonly delay?: number; readonly trt?: string } = {},
) => `
accelerator: gpu
host: { gpu: ${more.gpu ?? "rtx-4080"}, count: 1 }
network: clipstack-test-review
embed: { image: "registry.example/clipstack/embed:0.1.0-gpu" }
tritonOnnx: { image: "nvcr.io/nvidia/tritonserver:26.07-py3", maxQueueDelayMicroseconds: ${more.delay ?? 5000} }
tritonTrt: { image: "nvcr.io/nvidia/tritonserver:${more.trt ?? "26.07-py3"}", maxQueueDelayMicroseconds: ${more.delay ?? 5000} }
`;

const document = (yaml: string) =>
  parseDocument(synthesizedText("single-gpu", yaml), "cdk.tf.json");
const changed = (more: Parameters<typeof settings>[0]) =>
  changeOfDocuments("single-gpu", document(settings()), document(settings(more)));

/** Actions without details that only one source contains. */
function summary(change: StackChange) {
  const { stacks } = reviewOf([change]);
  const { changes, capacity, exposures } = stacks[0]!;
  return {
    effects: changes
      .map(({ action, address }) => `${action} ${address.replace(/\[.*\]$/, "")}`)
      .sort(),
    consequences: changes
      .filter(({ isStep }) => !isStep)
      .map(({ address, impact }) => `${address}: ${impact?.text}`)
      .sort(),
    capacity,
    exposures,
  };
}

describe("two synthesized files and a plan yield the same actions", () => {
  test.each([
    ["a queue delay", "queue-delay-changed", { delay: 2_000 }],
    ["an image", "image-changed", { trt: "26.06-py3" }],
    ["a GPU", "gpu-swapped", { gpu: "a10" }],
  ] as const)("for a change of %s", (_, plan, more) => {
    expect(summary(changed(more))).toEqual(summary(savedChange(plan)));
  });

  test("for a new stack and a destroyed one", () => {
    // the saved plans serve the FP32 file, as TensorRT 10 does
    const head = document(settings().replaceAll("26.07-py3", "26.05-py3"));
    expect(summary(changeOfDocuments("single-gpu", undefined, head))).toEqual(
      summary(savedChange("create")),
    );
    expect(summary(changeOfDocuments("single-gpu", head, undefined))).toEqual(
      summary(savedChange("stack-destroyed")),
    );
  });

  test("for an unchanged stack", () => {
    expect(summary(changed({}))).toEqual(summary(savedChange("nothing-changed")));
  });
});

function fileOf(
  resource: Readonly<Record<string, Readonly<Record<string, object>>>>,
  more: object = {},
) {
  return parseDocument(JSON.stringify({ resource, ...more }), "cdk.tf.json");
}

const of = (change: StackChange, address: string): ResourceChange =>
  change.resources.find((it) => it.address === address)!;

test("an attribute with ForceNew replaces the resource", () => {
  const file = (env: string, restart: string) =>
    fileOf({ docker_container: { a: { name: "a", env: [env], restart } } });
  const change = changeOfDocuments("s", file("A=1", "no"), file("A=2", "no"));
  expect(of(change, "docker_container.a")).toMatchObject({
    action: "replace",
    replacePaths: [["env", 0]],
  });
  expect(
    of(changeOfDocuments("s", file("A=1", "no"), file("A=1", "always")), "docker_container.a")
      .action,
  ).toBe("update");
});

test.each([
  ["kubernetes_deployment_v1", { spec: { replicas: 1 } }, { spec: { replicas: 2 } }, "update"],
  ["kubernetes_deployment_v1", { metadata: { name: "a" } }, { metadata: { name: "b" } }, "replace"],
  [
    "kubernetes_deployment_v1",
    { spec: [{ selector: { match_labels: { a: "1" } } }] },
    { spec: [{ selector: { match_labels: { a: "2" } } }] },
    "replace",
  ],
  [
    "kubernetes_pod_disruption_budget_v1",
    { spec: { max_unavailable: "1" } },
    { spec: { max_unavailable: "2" } },
    "replace",
  ],
  ["helm_release", { values: ["a: 1"] }, { values: ["a: 2"] }, "update"],
  ["helm_release", { namespace: "a" }, { namespace: "b" }, "replace"],
  ["terraform_data", { input: 1 }, { input: 2 }, "update"],
  ["terraform_data", { triggers_replace: 1 }, { triggers_replace: 2 }, "replace"],
  ["docker_image", { keep_locally: true }, { keep_locally: false }, "update"],
  ["docker_volume", { driver: "local" }, { driver: "nfs" }, "replace"],
  ["unknown_type", { a: 1 }, { a: 2 }, "update"],
])("%s with %j and then %j: %s", (type, before, after, action) => {
  const change = changeOfDocuments(
    "s",
    fileOf({ [type]: { a: before } }),
    fileOf({ [type]: { a: after } }),
  );
  expect(of(change, `${type}.a`).action).toBe(action);
});

test("a reference to a recreated resource replaces the dependent", () => {
  const file = (name: string) =>
    fileOf({
      docker_image: { i: { name } },
      docker_container: { c: { image: expression("docker_image.i.image_id") } },
      terraform_data: { gate: { triggers_replace: { c: expression("docker_container.c.id") } } },
    });
  const change = changeOfDocuments("s", file("a:1"), file("a:2"));
  expect(change.resources.map(({ address, action }) => `${action} ${address}`)).toEqual([
    "replace docker_container.c",
    "replace docker_image.i",
    "replace terraform_data.gate",
  ]);
});

test("a reference to an unchanged name does not change the dependent", () => {
  const file = (driver: string) =>
    fileOf({
      docker_network: { n: { name: "net", driver } },
      docker_container: {
        c: { networks_advanced: [{ name: expression("docker_network.n.name") }] },
      },
    });
  const change = changeOfDocuments("s", file("bridge"), file("overlay"));
  expect(of(change, "docker_container.c").action).toBe("no-op");
});

test("a changed local changes the resources that reference it", () => {
  const file = (hash: string) =>
    fileOf(
      { docker_image: { i: { name: `a:${expression("local.hash")}` } } },
      { locals: { hash } },
    );
  expect(
    of(
      changeOfDocuments("s", file(expression("sha256(1)")), file(expression("sha256(2)"))),
      "docker_image.i",
    ).action,
  ).toBe("replace");
});

test("ignore_changes suppresses a change", () => {
  const file = (name: string) =>
    fileOf({ docker_container: { c: { name, lifecycle: { ignore_changes: ["name"] } } } });
  expect(of(changeOfDocuments("s", file("a"), file("b")), "docker_container.c").action).toBe(
    "no-op",
  );
});

test.each([
  ["more instances", 1, 3, ["no-op c[0]", "create c[1]", "create c[2]"]],
  ["fewer instances", 3, 1, ["no-op c[0]", "delete c[1]", "delete c[2]"]],
  ["no instances", 2, 0, ["delete c[0]", "delete c[1]"]],
  ["count added", undefined, 2, ["no-op c[0] from c", "create c[1]"]],
  ["count removed", 2, undefined, ["no-op c from c[0]", "delete c[1]"]],
  ["a count above the maximum", 1e9, 1e9, ["no-op c"]],
])("expands count: %s", (_, before, after, effects) => {
  const file = (count: number | undefined) =>
    fileOf({
      docker_container: { c: { name: "a", ...(count === undefined ? {} : { count }) } },
      terraform_data: { t: { triggers_replace: expression("docker_container.c") } },
    });
  const { resources } = changeOfDocuments("s", file(before), file(after));
  const short = (address: string) => address.replace("docker_container.", "");
  expect(
    resources
      .filter(({ type }) => type === "docker_container")
      .map(({ action, address, movedFrom }) =>
        [action, short(address), ...(movedFrom ? ["from", short(movedFrom)] : [])].join(" "),
      ),
  ).toEqual(effects);
});

test("instances of a moved resource are moved", () => {
  const file = (name: string, more: object = {}) =>
    fileOf({ docker_volume: { [name]: { name: "v", count: 2 } } }, more);
  const moved = [{ from: "docker_volume.a", to: "docker_volume.b" }];
  const { resources } = changeOfDocuments("s", file("a"), file("b", { moved }));
  expect(resources.map(({ action, address, movedFrom }) => [action, address, movedFrom])).toEqual([
    ["no-op", "docker_volume.b[0]", "docker_volume.a[0]"],
    ["no-op", "docker_volume.b[1]", "docker_volume.a[1]"],
  ]);
});

test.each([
  ["a count of 0", { count: 0 }, "delete"],
  ["a count that is an expression", { count: expression("local.many") }, "replace"],
  ["another provider", { provider: "docker.other" }, "replace"],
])("detects %s", (_, more, action) => {
  const file = (own: object) => fileOf({ docker_container: { c: { name: "a", ...own } } });
  expect(of(changeOfDocuments("s", file({}), file(more)), "docker_container.c").action).toBe(
    action,
  );
});

test("a removed block with destroy = false forgets the resource", () => {
  const before = fileOf({ docker_volume: { v: { name: "v" } } });
  const removed = (destroy: boolean) =>
    fileOf({}, { removed: [{ from: "docker_volume.v", lifecycle: { destroy } }] });
  expect(of(changeOfDocuments("s", before, removed(false)), "docker_volume.v").action).toBe(
    "forget",
  );
  expect(of(changeOfDocuments("s", before, removed(true)), "docker_volume.v").action).toBe(
    "delete",
  );
});

test.each([
  ["host-moved", { provider: { docker: [{ host: "ssh://root@another.example" }] } }],
  ["host-moved", { provider: { docker: { host: "ssh://root@another.example" } } }],
  ["state-moved", { terraform: { backend: { s3: { bucket: "b", key: "k" } } } }],
  ["state-moved", { terraform: { backend: { local: { path: "other" } } } }],
])("a change of location alone violates %s", (rule, more) => {
  const file = (own: object) =>
    fileOf(
      { docker_container: { c: { name: "a" } } },
      {
        provider: { docker: [{ host: "ssh://root@a.example" }] },
        terraform: { backend: { local: { path: "state" } } },
        ...own,
      },
    );
  const change = changeOfDocuments("s", file({}), file(more));
  const findings = findingsOfChange(change, { waivers: [], today: "2026-12-01" });
  const { verdict } = reviewOf([change], { findings });
  expect(verdict.level).toBe("blocked");
  expect(verdict.reasons.join()).toContain(rule);
});

test.each([
  ["single-gpu", "host: { docker: 'ssh://ops@gpu-1' }", "host: { docker: 'ssh://ops@gpu-2' }"],
  ["k8s-gpu", "", "cluster: { context: other }"],
] as const)("%s with a changed location is not safe", (stack, before, after) => {
  const file = (yaml: string) => parseDocument(synthesizedText(stack, yaml), "cdk.tf.json");
  const change = changeOfDocuments(stack, file(before), file(after));
  const providers = [change.configurationBefore, change.configuration].map((it) =>
    JSON.stringify(it?.provider),
  );
  expect(providers[0]).not.toBe(providers[1]);
  for (const facts of [{}, { environmentBefore: undefined }]) {
    const findings = findingsOfChange(
      { ...change, ...facts },
      { waivers: [], today: "2026-12-01" },
    );
    expect(reviewOf([change], { findings }).verdict.reasons.join()).toContain("host-moved");
  }
});

test.each([
  [{ terraform: { required_providers: { docker: { source: "evil/docker", version: "~> 4.5" } } } }],
  [{ terraform: { required_providers: { docker: { source: "a/docker", version: "~> 5.0" } } } }],
  [{ provider: { docker: [{ registry_auth: [{ password: "planted-00000" }] }] } }],
  [{ provider: { docker: [{ ssh_opts: ["-o", "StrictHostKeyChecking=no"] }] } }],
])("a provider change alone is not safe: %j", (more) => {
  const file = (own: object) =>
    fileOf(
      { docker_container: { c: { name: "a" } } },
      {
        provider: { docker: [{}] },
        terraform: { required_providers: { docker: { source: "a/docker", version: "~> 4.5" } } },
        ...own,
      },
    );
  const change = changeOfDocuments("s", file({}), file(more));
  const findings = findingsOfChange(change, { waivers: [], today: "2026-12-01" });
  const review = reviewOf([change], { findings });
  expect(review.verdict.level).not.toBe("safe");
  expect(review.verdict.reasons.join()).toContain("provider-changed");
  expect(JSON.stringify(review)).not.toContain("planted");
});

test("reports that conditions will fail for ignored changes", () => {
  const file = (node: string) =>
    parseDocument(
      synthesizedText("kind-local", `cluster: { nodeImage: "${node}" }`),
      "cdk.tf.json",
    );
  const reasons = (from: string, to: string) =>
    reviewOf([changeOfDocuments("kind-local", file(from), file(to))]).verdict.reasons.join();
  const digest = (digit: string) => `kindest/node@sha256:${digit.repeat(64)}`;
  const rejected = reasons(digest("1"), digest("2"));
  expect(rejected).toMatch(/: cluster\S* was created with a different input/);
  expect(rejected).toContain("the plan fails");
  expect(reasons(digest("1"), digest("1"))).toBe("");
});

test("a moved resource is not recreated", () => {
  const change = changeOfDocuments(
    "s",
    fileOf({ docker_volume: { old: { name: "v" } } }),
    fileOf(
      { docker_volume: { fresh: { name: "v" } } },
      { moved: [{ from: "docker_volume.old", to: "docker_volume.fresh" }] },
    ),
  );
  expect(change.resources).toHaveLength(1);
  expect(of(change, "docker_volume.fresh")).toMatchObject({
    action: "no-op",
    movedFrom: "docker_volume.old",
  });
});

test("lists hashed files as a limitation", () => {
  expect(changed({}).limitations.join()).toContain("Terraform hashes them during the plan");
});

test("marks values of sensitive variables", () => {
  const file = fileOf(
    { docker_container: { c: { hostname: expression("var.secret") } } },
    { variable: { secret: { sensitive: true } } },
  );
  expect(of(changeOfDocuments("s", undefined, file), "docker_container.c").sensitive).toEqual([
    ["hostname"],
  ]);
});

test("adds construct paths and the backend to a plan", () => {
  const change = withDocument(savedChange("queue-delay-changed"), document(settings()));
  const embed = change.resources.find(({ address }) =>
    address.startsWith("docker_container.embed"),
  );
  expect(embed?.constructPath).toBe("single-gpu/embed/container");
  expect(change.configuration?.terraform).toHaveProperty("backend");
});

test.each([
  [
    "invalid JSON",
    "{",
    "a/cdk.tf.json: must be JSON, got JSON truncated at character 1: copy or create the file again",
  ],
  ["a list", "[]", "a/cdk.tf.json: the document must be a map"],
])("fails for %s in one line", (_, text, message) => {
  expect(() => parseDocument(text, "a/cdk.tf.json")).toThrow(message);
});

test.each([
  ["started", { start: false }, {}],
  ["not started", {}, { start: false }],
  ["privileged", { capabilities: { drop: ["ALL"] }, read_only: false }, { read_only: true }],
])("detects a container that is newly %s", (_, before, after) => {
  const file = (more: object) => fileOf({ docker_container: { c: { name: "c", ...more } } });
  const change = changeOfDocuments("s", file(before), file(after));
  expect(of(change, "docker_container.c")?.action).not.toBe("no-op");
});
