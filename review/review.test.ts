import { describe, expect, test } from "vitest";
import { isUnchanged } from "./report/comment-document.ts";
import { htmlReport } from "./report/comment-html.ts";
import { commentLimit, commentMarker, markdownComment } from "./report/comment-markdown.ts";
import { reviewOf } from "./review.ts";
import { planCases, plannedChange, savedChange } from "./test-plans.ts";

describe("the comment for a saved plan", () => {
  for (const name of [...planCases.map((it) => it.name), "kind-local-create"]) {
    test(`${name} equals the snapshot`, async () => {
      const text = markdownComment(reviewOf([savedChange(name)]));
      await expect(text).toMatchFileSnapshot(`./input/plans/${name}.review.md`);
    });
  }

  test("is one comment for several stacks", async () => {
    const changes = ["gpu-swapped", "stack-destroyed", "nothing-changed"].map((name) => ({
      ...savedChange(name),
      stack: name,
    }));
    const text = markdownComment(reviewOf(changes));
    expect(text.split(commentMarker)).toHaveLength(2);
    await expect(text).toMatchFileSnapshot("./input/plans/three-stacks.review.md");
  });
});

test.each([
  ["replace_because_tainted", ["delete", "create"], "It is tainted"],
  ["replace_by_request", ["delete", "create"], "Requested with -replace."],
  ["delete_because_each_key", ["delete"], "Its key was removed from for_each."],
])("explains the reason %s", (reason, actions, text) => {
  const change = plannedChange([{ address: "docker_volume.v", actions, before: {}, after: {} }]);
  const resources = change.resources.map((it) => ({ ...it, reason }));
  expect(markdownComment(reviewOf([{ ...change, resources }]))).toContain(text);
});

test("collapses existing violations and lists new ones first", () => {
  const finding = (rule: string, more: object) =>
    ({ rule, severity: "warning", stack: "test", message: "w", fix: "f", ...more }) as const;
  const findings = [finding("old", { severity: "error", existing: true }), finding("new", {})];
  const review = reviewOf([plannedChange([])], { findings });
  expect(review.verdict.reasons).toEqual(["test: 1 rule is violated (severity warning): new."]);
  const text = markdownComment(review);
  expect(text.indexOf("`new`")).toBeLessThan(text.indexOf("<details>"));
  expect(text.indexOf("`old`")).toBeGreaterThan(text.indexOf("<details>"));
});

test("is safe if nothing changes", () => {
  expect(reviewOf([savedChange("nothing-changed")]).verdict).toEqual({
    level: "safe",
    reasons: [],
  });
});

test("a changed queue delay is safe, and its field is reported", () => {
  const { verdict, stacks } = reviewOf([savedChange("queue-delay-changed")]);
  expect(verdict).toEqual({ level: "safe", reasons: [] });
  const fields = stacks[0]?.changes
    .flatMap(({ diffs }) => diffs)
    .filter(({ title }) => title.startsWith("config.pbtxt"));
  expect(fields).toEqual([
    {
      title: "config.pbtxt of openclip_vit_b32",
      lines: [
        { path: "dynamic_batching.max_queue_delay_microseconds", before: "5000", after: "2000" },
      ],
    },
    {
      title: "config.pbtxt of openclip_vit_b32_trt",
      lines: [
        { path: "dynamic_batching.max_queue_delay_microseconds", before: "5000", after: "2000" },
      ],
    },
  ]);
});

test("reports a newly published port and its API key", () => {
  const { stacks } = reviewOf([savedChange("port-exposed")]);
  expect(
    stacks[0]?.exposures.map(
      ({ status, name, description }) => `${status} ${name}: ${description}`,
    ),
  ).toEqual(["new embed: port 8002/tcp on 0.0.0.0", "new embed: requires an API key"]);
});

test("reports cost, memory and lost TensorRT engines of a GPU change", () => {
  const { stacks, verdict } = reviewOf([savedChange("gpu-swapped")]);
  const { before, after } = stacks[0]!.capacity;
  expect([before?.gpus, before?.usdPerHour, before?.vramUsableMiB]).toEqual([
    "1 × rtx-4080",
    2,
    14_738,
  ]);
  expect([after?.gpus, after?.usdPerHour, after?.vramUsableMiB]).toEqual(["1 × a10", 0.75, 20_725]);
  expect(verdict.reasons).toContain(
    "single-gpu: volume single-gpu-triton-trt-engines-sm89-26.05-py3: its content is lost.",
  );
});

test("prints the tag of an image instead of its id", () => {
  const { stacks } = reviewOf([savedChange("image-changed")]);
  const trt = stacks[0]?.changes.find(({ title }) => title === "triton-trt/container");
  expect(trt?.forcedBy.at(-1)).toBe(
    "image (nvcr.io/nvidia/tritonserver:26.05-py3 → nvcr.io/nvidia/tritonserver:26.04-py3)",
  );
});

test("counts a replacement once, also that of a one-shot container", () => {
  const { counts } = reviewOf([savedChange("queue-delay-changed")]).stacks[0]!;
  expect(counts).toMatchObject({ delete: 0, create: 0, replace: 3, unchanged: 17 });
});

test("lists destroyed resources before created ones", () => {
  const change = plannedChange([
    { address: "docker_network.a", actions: ["create"], after: {} },
    { address: "docker_volume.b", actions: ["update"], before: {}, after: { x: 1 } },
    { address: "docker_volume.c", actions: ["delete", "create"], before: {}, after: {} },
    { address: "docker_volume.d", actions: ["delete"], before: {} },
  ]);
  const actions = reviewOf([change]).stacks[0]?.changes.map(({ action }) => action);
  expect(actions).toEqual(["delete", "replace", "update", "create"]);
});

test("counts moves and imports, which are safe", () => {
  const move = JSON.parse(
    JSON.stringify({
      address: "a.new",
      previous_address: "a.old",
      mode: "managed",
      type: "a",
      name: "new",
      change: { actions: ["no-op"], before: {}, after: {} },
    }),
  );
  const change = plannedChange([], { resource_changes: [move] });
  const review = reviewOf([change]);
  expect(review.stacks[0]?.counts).toMatchObject({ move: 1, unchanged: 0 });
  expect(review.verdict.level).toBe("safe");
  expect(markdownComment(review)).toContain("moved from `a.old`");
});

test("is blocked by a new violation of severity error, not by a waived or existing one", () => {
  const change = plannedChange([]);
  const error = { rule: "x", severity: "error", stack: "test", message: "w", fix: "f" } as const;
  const level = (more: object) =>
    reviewOf([change], { findings: [{ ...error, ...more }] }).verdict.level;
  expect(level({})).toBe("blocked");
  expect(level({ waived: "known", existing: true })).toBe("safe");
  expect(level({ existing: true })).toBe("safe");
  expect(level({ severity: "warning" })).toBe("attention");
});

test("reports a waived error of this change", () => {
  const error = { rule: "x", severity: "error", stack: "test", message: "w", fix: "f" } as const;
  const findings = [{ ...error, waived: "known" }];
  expect(reviewOf([plannedChange([])], { findings }).verdict).toEqual({
    level: "attention",
    reasons: ["test: 1 rule is violated by this change but waived: x."],
  });
});

const [deleted, replaced] = [["delete"], ["delete", "create"]];
test.each<readonly [string, readonly string[], object]>([
  ["kubernetes_stateful_set_v1.d", replaced, { metadata: [{ name: "d" }] }],
  ["kubernetes_deployment_v1.d", replaced, { metadata: [{ name: "d" }] }],
  ["kubernetes_service_v1.d", replaced, { metadata: [{ name: "d" }] }],
  ["kubernetes_persistent_volume_v1.d", replaced, { metadata: [{ name: "d" }] }],
  ["helm_release.d", replaced, { name: "d", namespace: "a" }],
  ["aws_db_instance.d", replaced, { name: "d" }],
  ["random_password.d", replaced, { length: 8 }],
  ["unknown_type.d", replaced, { name: "d" }],
  ["docker_container.d", replaced, { name: "d" }],
  ["docker_container.d", deleted, { name: "d" }],
  ["docker_image.d", deleted, { name: "d" }],
  ["docker_volume.d", ["forget"], { name: "d" }],
])("%s with %j is not safe", (address, actions, values) => {
  const after = actions.length === 1 ? null : values;
  const { level, reasons } = reviewOf([
    plannedChange([{ address, actions, before: values, after }]),
  ]).verdict;
  expect(level).toBe("attention");
  expect(reasons).not.toEqual([]);
});

/** Reasons of the verdict on a change of one resource. */
const verdictOf = (address: string, before: object | null, after: object) =>
  reviewOf([
    plannedChange([{ address, actions: [before === null ? "create" : "update"], before, after }]),
  ]).verdict.reasons.join("\n");
const named = (spec: object) => ({ metadata: [{ name: "d" }], spec: [spec] });
const pods = (replicas: number, image = "a:1") =>
  named({ replicas: String(replicas), template: [{ spec: [{ container: [{ image }] }] }] });

test.each<readonly [string, string, object | null, object]>([
  [
    "fewer pods of horizontal pod autoscaler d",
    "kubernetes_horizontal_pod_autoscaler_v2.d",
    named({ min_replicas: 4, max_replicas: 8 }),
    named({ min_replicas: 2, max_replicas: 8 }),
  ],
  ["fewer pods of d", "kubernetes_deployment_v1.d", pods(6), pods(1)],
  ["fewer pods of d", "kubernetes_deployment_v1.d", pods(6), pods(3, "a:2")],
  ["d is temporarily unavailable", "kubernetes_stateful_set_v1.d", pods(1), pods(1, "a:2")],
  [
    "permissions or network access change",
    "kubernetes_network_policy_v1.d",
    named({ ingress: [{ from: [{ pod_selector: [{}] }] }] }),
    named({ ingress: [{ from: [{ pod_selector: [{ match_labels: { a: "b" } }] }] }] }),
  ],
  [
    "permissions or network access change",
    "kubernetes_cluster_role_v1.d",
    { metadata: [{ name: "d" }], rule: [{ verbs: ["get"], resources: ["pods"] }] },
    { metadata: [{ name: "d" }], rule: [{ verbs: ["get"], resources: ["nodes"] }] },
  ],
  [
    "may * on secrets (new exposure)",
    "kubernetes_cluster_role_v1.d",
    null,
    { metadata: [{ name: "d" }], rule: [{ verbs: ["*"], resources: ["secrets"] }] },
  ],
])("reports a degradation: %s of %s", (text, address, before, after) => {
  expect(verdictOf(address, before, after)).toContain(text);
});

test.each<readonly [string, object]>([
  ["kubernetes_deployment_v1.d", pods(2, "a:2")],
  ["kubernetes_deployment_v1.d", pods(6)],
])("more or updated pods of %s are safe", (address, after) => {
  expect(verdictOf(address, pods(2), after)).toBe("");
});

test("lists all topics for which a resource was not examined", () => {
  const values = (image: string) => ({ name: "a", gpus: "all", image });
  const change = plannedChange([
    { address: "docker_container.a", before: values("x"), after: values("y") },
  ]);
  const resources = change.resources.map((it) => ({ ...it, unknown: [["ports"]] }));
  const { changes } = reviewOf([{ ...change, resources }]).stacks[0]!;
  expect(changes[0]?.unexamined).toEqual(["exposure", "capacity and cost"]);
});

test("a container without a restart policy is a service", () => {
  const values = (image: string) => ({ name: "db", restart: "no", must_run: true, image });
  const change = plannedChange([
    {
      address: "docker_container.db",
      actions: ["delete", "create"],
      before: values("a"),
      after: values("b"),
    },
  ]);
  const { changes } = reviewOf([change]).stacks[0]!;
  expect(changes[0]?.impact?.text).toBe("Container db is recreated.");
});

test("finds the PodDisruptionBudget by its selector, not its name", () => {
  const labels = { app: "web" };
  const deployment = (image: string) =>
    named({
      replicas: "4",
      strategy: [{ rolling_update: [{ max_unavailable: "2", max_surge: "0" }] }],
      template: [{ metadata: [{ labels }], spec: [{ container: [{ image }] }] }],
    });
  const budget = (match: object) => ({
    metadata: [{ name: "other" }],
    spec: [{ min_available: "3", selector: [{ match_labels: match }] }],
  });
  const text = (match: object) =>
    reviewOf([
      plannedChange([
        { address: "kubernetes_deployment_v1.d", before: deployment("a"), after: deployment("b") },
        {
          address: "kubernetes_pod_disruption_budget_v1.b",
          actions: ["no-op"],
          before: budget(match),
          after: budget(match),
        },
      ]),
    ]).stacks[0]?.changes[0]?.impact?.text;
  expect(text(labels)).toContain("fewer than the 3 required by its PodDisruptionBudget");
  expect(text({ app: "another" })).not.toContain("PodDisruptionBudget");
});

test.each([
  ["another chart", { chart: "x" }],
  ["another repository", { repository: "https://a.example" }],
  ["force_update", { force_update: true }],
])("a release with %s is not safe", (_, more) => {
  const values = { name: "r", chart: "./clipstack" };
  expect(verdictOf("helm_release.r", values, { ...values, ...more })).toContain(
    "may be temporarily unavailable",
  );
});

test("a Deployment scaled to 0 becomes unavailable", () => {
  const values = (replicas: string) => ({
    metadata: [{ name: "d" }],
    spec: [{ replicas, template: [{}] }],
  });
  const change = plannedChange([
    { address: "kubernetes_deployment_v1.d", before: values("3"), after: values("0") },
  ]);
  expect(reviewOf([change]).verdict.reasons).toEqual(["test: d becomes permanently unavailable."]);
});

test("two instance keys are two resources, except of a one-shot container", () => {
  const instances = (type: string, more: object) =>
    plannedChange([
      { address: `${type}.a["x"]`, actions: ["delete"], before: { name: "x", ...more } },
      { address: `${type}.a["y"]`, actions: ["create"], after: { name: "y", ...more } },
    ]);
  const counts = (type: string, more: object = {}) =>
    reviewOf([instances(type, more)]).stacks[0]?.counts;
  expect(counts("docker_volume")).toMatchObject({ delete: 1, create: 1, replace: 0 });
  expect(counts("docker_container")).toMatchObject({ delete: 1, create: 1, replace: 0 });
  const oneShot = counts("docker_container", { must_run: false, attach: true });
  expect(oneShot).toMatchObject({ delete: 0, create: 0, replace: 1 });
});

test("reports failing checks and deferred changes", () => {
  const address = "docker_volume.late";
  const late = { address, type: "docker_volume", name: "late", change: { actions: ["delete"] } };
  const change = plannedChange([], {
    checks: [{ status: "fail", address: { to_display: "check.reachable" } }],
    deferred_changes: [{ reason: "instance_count_unknown", resource_change: late }],
  });
  const { verdict, stacks } = reviewOf([change]);
  expect(verdict.reasons).toEqual([
    "test: Failing checks: check.reachable.",
    "test: A second plan and apply is required for volume late (destroyed).",
  ]);
  expect(stacks.every(isUnchanged)).toBe(false);
});

test("reports provider actions without their arguments", () => {
  const change = plannedChange([], {
    action_invocations: [
      {
        address: "action.local_command.warm",
        config_values: { command: "planted-command" },
        config_sensitive: {},
        lifecycle_action_trigger: {
          triggering_resource_address: "docker_container.a",
          action_trigger_event: "AfterCreate",
        },
      },
    ],
  });
  const review = reviewOf([change]);
  expect(review.verdict).toEqual({
    level: "attention",
    reasons: [
      "test: The apply invokes provider actions, whose effects no plan shows: local_command warm (after create of container a).",
    ],
  });
  expect(markdownComment(review)).not.toContain("planted-command");
});

test("reports that only an output changes", () => {
  const review = reviewOf([
    plannedChange([], {
      output_changes: { url: { actions: ["update"], before: "a", after: "b" } },
    }),
  ]);
  expect(review.stacks.every(isUnchanged)).toBe(false);
  expect(markdownComment(review)).toContain("Safe: test: no resource changes, only the output url");
});

test("does not report a failed plan as unchanged", () => {
  const text = markdownComment(reviewOf([plannedChange([], { errored: true })]));
  expect(text).toContain("Blocked: planning of test failed");
  expect(text).not.toContain("does not change");
});

test("a deposed object has no impact on a service", () => {
  const [embed] = savedChange("nothing-changed").resources.filter(({ address }) =>
    address.startsWith("docker_container.embed"),
  );
  const change = savedChange("nothing-changed");
  const left = { ...embed!, action: "delete", deposed: "ab12", after: undefined } as const;
  const { changes } = reviewOf([{ ...change, resources: [left, ...change.resources] }]).stacks[0]!;
  expect(changes.map(({ impact }) => impact)).toEqual([
    {
      text: "Left over from an earlier replacement; the current object at this address is kept.",
      unavailable: [],
      dataLost: false,
    },
  ]);
});

const commentWith = (message: string) => {
  const findings = [{ rule: "x", severity: "note", stack: "test", message, fix: "f" } as const];
  return markdownComment(reviewOf([plannedChange([])], { findings }));
};

test.each(["/@user", "a/b#1", "(@user)", "@user", "see GH-12"])("%s is not a mention", (text) => {
  expect(commentWith(text)).not.toMatch(/[@#]\w|GH-\d/);
});

test.each([
  ["see https://evil.example/a?b=c&d.", "see `https://evil.example/a?b=c&d`."],
  ["(HTTP://evil.example)", "(`HTTP://evil.example`)"],
  ["www.evil.example, or so", "`www.evil.example`, or so"],
  ["[x](https://evil.example)", "\\[x\\](`https://evil.example`)"],
  ["https://`evil`.example|", "``https://`evil`.example\\|``"],
  ["https://!!", "https:<!---->//!!"],
])("%s is not a link", (text, written) => {
  expect(commentWith(text)).toContain(written);
});

test("makes a change of text direction visible", () => {
  const address = "docker_volume.a\u202eexe.b";
  const review = reviewOf([plannedChange([{ address, actions: ["delete"], before: {} }])]);
  for (const text of [markdownComment(review), htmlReport(review)]) {
    expect(text).not.toContain("\u202e");
    expect(text).toContain("(U+202E)");
  }
});

test("is deterministic", () => {
  const text = () => markdownComment(reviewOf([savedChange("image-changed")]));
  expect(text()).toBe(text());
});

test("the HTML page loads nothing and closes its elements", () => {
  const html = htmlReport(reviewOf([savedChange("port-exposed")]), {
    rulesUrl: "https://a.example/",
  });
  expect(html).not.toMatch(/<(script|img|link|iframe)/);
  for (const tag of ["table", "details", "section", "ul", "li", "pre", "main"]) {
    expect(html.split(`<${tag}`).length, tag).toBe(html.split(`</${tag}>`).length);
  }
});

test("escapes Markdown and HTML in the texts of a plan", () => {
  const evil = "</details>|**x** `y` @all ```\n# z <script>alert(1)</script> -->";
  const change = plannedChange([
    {
      address: `docker_container.${evil}`,
      before: { hostname: evil },
      after: { hostname: `${evil}2` },
    },
  ]);
  const review = reviewOf([change], {
    findings: [{ rule: "x", severity: "warning", stack: "test", message: evil, fix: evil }],
  });
  expect(htmlReport(review)).not.toContain("<script");
  const text = markdownComment(review);
  const outside = text.replaceAll(/(`{3,})diff\n[\s\S]*?\n\1|(`+)[^\n]*?\2(?!`)/g, "");
  expect(outside).not.toMatch(/<script|\*\*x\*\*|(?<!\w)@all|^# z/m);
});

describe("a plan that exceeds the size of a comment", () => {
  const many = (count: number, actions: readonly string[], type = "docker_container") =>
    Array.from({ length: count }, (_, index) => ({
      address: `${type}.number_${index}_with_a_rather_long_name_that_takes_room`,
      actions,
      before: actions[0] === "create" ? null : valuesOf(type, index),
      after: actions.join() === "delete" ? null : valuesOf(type, index + 1),
    }));
  const valuesOf = (type: string, index: number) => ({
    name: `n${index}`,
    ...(type === "docker_container" ? { env: [`PORT=${index}`] } : {}),
  });

  test("lists destroyed resources and counts the rest", () => {
    const change = plannedChange([
      ...many(2_000, ["create"]),
      ...many(900, ["update"], "docker_network"),
      ...many(40, ["delete"], "docker_volume"),
    ]);
    const text = markdownComment(reviewOf([change]));
    expect(text.length).toBeLessThan(commentLimit);
    for (let index = 0; index < 40; index += 1)
      expect(text).toContain(`docker_volume.number_${index}_`);
    expect(text).toContain("2000 × docker_container create");
    expect(text).toContain("**Shortened** to fit the size limit of a comment");
  });

  test("counts changes that need attention if their list is too long", () => {
    const text = markdownComment(reviewOf([plannedChange(many(3_000, ["delete"]))]));
    expect(text.length).toBeLessThan(commentLimit);
    expect(text).toContain("3000 changes that need attention: 3000 × docker_container destroy.");
    expect(text).toContain("| `test` | **3000** |");
  });

  test("always lists the services that become unavailable", () => {
    const others = { ...plannedChange(many(2_000, ["delete"])), stack: "a" };
    const text = markdownComment(reviewOf([others, savedChange("stack-destroyed")]));
    expect(text.length).toBeLessThan(commentLimit);
    expect(text).toContain(
      "- single-gpu: embed, triton-onnx, triton-trt become permanently unavailable.",
    );
  });

  test("omits notes before errors", () => {
    const change = plannedChange(many(800, ["update"]));
    const finding = (index: number, severity: "error" | "note") =>
      ({
        rule: `${severity}-${index}`,
        severity,
        stack: "test",
        message: "w".repeat(120),
        fix: "f",
      }) as const;
    const findings = [
      ...Array.from({ length: 900 }, (_, index) => finding(index, "note")),
      ...Array.from({ length: 20 }, (_, index) => finding(index, "error")),
    ];
    const text = markdownComment(reviewOf([change], { findings }));
    expect(text.length).toBeLessThan(commentLimit);
    for (let index = 0; index < 20; index += 1) expect(text).toContain(`error-${index}`);
  });

  test("fits any limit", () => {
    const review = reviewOf([savedChange("image-changed")]);
    for (const limit of [20_000, 4_000, 1_500, 800]) {
      expect(markdownComment(review, { limit }).length).toBeLessThanOrEqual(limit);
    }
  });

  test("identifies all plans and has rows for a hundred stacks", () => {
    const changes = Array.from({ length: 120 }, (_, index) => ({
      ...plannedChange(many(20, ["delete", "create"])),
      stack: `stack-${index}`,
    }));
    const text = markdownComment(reviewOf(changes));
    expect(text.length).toBeLessThan(commentLimit);
    expect(text).not.toContain("**Truncated**");
    expect(text.trimEnd().split("\n").at(-1)).toMatch(/^<!-- clipstack-plans stack-0:.* -->$/);
    expect(text.split(/:[0-9a-f]{64} /)).toHaveLength(121);
    expect(text).toContain("2400 changes that need attention: 2400 × docker_container replace.");
    expect(text.split("\n| `stack-")).toHaveLength(101);
    expect(text).toContain("| 20 more | 0 | **400** | 0 | 0 |");
  });

  test("counts safe stacks in one row", () => {
    const changes = Array.from({ length: 900 }, (_, index) => ({
      ...plannedChange(many(2, index === 700 ? ["delete"] : ["update"])),
      stack: `stack-${index}`,
    }));
    const text = markdownComment(reviewOf(changes));
    expect(text.length).toBeLessThan(commentLimit);
    expect(text).toContain("| `stack-700` | **2** | 0 | 0 |");
    expect(text).toContain("| 899 more | 0 | 0 | 1798 | 0 |");
    expect(text.split("- **destroy**")).toHaveLength(3);
  });

  test("shortens the tables of capacity and exposure to changes", () => {
    const swapped = savedChange("gpu-swapped");
    const same = savedChange("nothing-changed");
    const changes = Array.from({ length: 400 }, (_, index) => ({
      ...(index === 399 ? swapped : same),
      stack: `stack-${index}`,
    }));
    const text = markdownComment(reviewOf(changes));
    expect(text.length).toBeLessThan(commentLimit);
    expect(text).toContain("| `stack-399` | 1 × rtx-4080 → **1 × a10** |");
    expect(text).toMatch(/- and \d+ more: unchanged/);
    expect(text).toContain("| all |");
  });

  test("lists an unexamined resource", () => {
    const change = plannedChange([
      ...many(2_000, ["create"]),
      { address: "aws_security_group_rule.open", after: { cidr_blocks: ["0.0.0.0/0"] } },
    ]);
    const text = markdownComment(reviewOf([change]));
    expect(text.length).toBeLessThan(commentLimit);
    expect(text).toContain("- **update** `aws_security_group_rule.open`");
    expect(text).toContain("1 resource of aws was not examined for exposure");
  });

  test("is truncated as a last resort, but still identifies its plans", () => {
    const review = reviewOf([savedChange("image-changed")]);
    const text = markdownComment(review, { limit: 700 });
    expect(text).toContain("**Truncated**");
    expect(text.trimEnd().split("\n").at(-1)).toMatch(/^<!-- clipstack-plans /);
    expect(text.split("<details>").length).toBe(text.split("</details>").length);
  });

  test("links the full report", () => {
    const review = reviewOf([plannedChange(many(3_000, ["delete"]))]);
    const text = markdownComment(review, { reportUrl: "https://ci.example/runs/1" });
    expect(text).toContain("See [the full report](https://ci.example/runs/1).");
  });

  test("uses less than 300 MB", () => {
    const changes = plannedChange([
      ...many(1_000, ["update"]),
      ...many(1_000, ["delete", "create"], "docker_volume"),
    ]);
    globalThis.gc?.();
    const before = process.memoryUsage().heapUsed;
    markdownComment(reviewOf([changes]));
    expect((process.memoryUsage().heapUsed - before) / 1e6).toBeLessThan(300);
  });
});
