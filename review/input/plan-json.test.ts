import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { reviewOf } from "../review.ts";
import { plannedChange, plannedText, planText, savedChange } from "../test-plans.ts";
import { changeOfPlan } from "./plan-json.ts";
import { forcingPaths } from "./resource-types.ts";

const read = (text: string) => changeOfPlan({ fileName: "plan.json", text });

function messageOf(run: () => unknown): string {
  try {
    run();
  } catch (error) {
    return error instanceof Error ? `${error.name}: ${error.message}` : String(error);
  }
  return "nothing was thrown";
}

test("reads planned actions, a replacement as one action", () => {
  const { stack, terraformVersion, resources } = savedChange("image-changed");
  expect({ stack, terraformVersion }).toEqual({ stack: "single-gpu", terraformVersion: "1.11.4" });
  const trt = resources.find(({ address }) => address.startsWith("docker_container.triton-trt_c"));
  expect(resources.filter(({ action }) => action === "replace")).toHaveLength(5);
  expect(trt?.address).toMatch(/triton-trt_configuration/);
});

test("reads the order of a replacement", () => {
  const { resources } = savedChange("image-changed");
  const of = (part: string) => resources.find(({ address }) => address.includes(part));
  expect(of("engine-cache_volume")?.createBeforeDestroy).toBe(true);
  expect(of("triton-trt_container")?.createBeforeDestroy).toBeUndefined();
});

test("resolves the docker_image of a container, even if its id is unknown", () => {
  const { resources } = savedChange("create");
  const embed = resources.find(({ address }) => address.startsWith("docker_container.embed"));
  expect(embed?.imageResource).toMatch(/^docker_image\.host_embed-gpu-image/);
});

test("ignores drift between forms of an unset attribute", () => {
  expect(JSON.parse(planText("nothing-changed")).resource_drift.length).toBeGreaterThan(5);
  expect(savedChange("nothing-changed").drift).toEqual([]);
});

test("keeps manual changes as drift", () => {
  const drifted = { before: { restart: "no" }, after: { restart: "always" } };
  const [resource] = JSON.parse(
    plannedText([{ address: "docker_container.a", ...drifted }]),
  ).resource_changes;
  const { drift } = plannedChange([], { resource_drift: [resource] });
  expect(drift.map(({ address }) => address)).toEqual(["docker_container.a"]);
});

test.each<readonly [unknown, unknown, boolean]>([
  [false, true, true],
  [true, false, true],
  [null, true, true],
  [0, 1, true],
  [5, 0, true],
  ["a", null, true],
  [["a"], [], true],
  [null, false, false],
  [null, 0, false],
  ["", null, false],
  [null, [], false],
])("drift from %j to %j is kept: %j", (before, after, isKept) => {
  const drifted = { before: { it: before }, after: { it: after } };
  const [resource] = JSON.parse(
    plannedText([{ address: "docker_container.a", ...drifted }]),
  ).resource_changes;
  expect(plannedChange([], { resource_drift: [resource] }).drift).toHaveLength(Number(isKept));
});

test("reads an ephemeral resource, which OpenTofu opens, and an object that is replaced and not destroyed", () => {
  const [opened, replaced] = JSON.parse(
    plannedText([
      { address: "random_password.a", actions: ["open"] },
      { address: "docker_volume.v", actions: ["forget", "create"] },
    ]),
  ).resource_changes;
  const { resources } = plannedChange([], {
    resource_changes: [{ ...opened, mode: "ephemeral" }, replaced],
  });
  expect(resources.map(({ mode, action }) => [mode, action])).toEqual([
    ["managed", "replace"],
    ["ephemeral", "read"],
  ]);
});

test("reads the output of setup-terraform's wrapper", () => {
  const wrapped = `[command]/home/runner/terraform-bin show -json p\n${planText("create")}\n::debug::Terraform exited with code 0.\n::debug::stderr: \n`;
  expect(read(wrapped).resources).toEqual(read(planText("create")).resources);
  // version 1 sets outputs after an empty line
  const older = wrapped.replace(
    "\n::debug::stderr",
    "\n\n::set-output name=stdout::{}\n::debug::stderr",
  );
  expect(read(older).resources).toEqual(read(planText("create")).resources);
});

test.each([
  ["9007199254740993", "9007199254740992"],
  ["-9223372036854775807", "-9223372036854775808"],
  ["0.12345678901234567890", "0.12345678901234567891"],
  ["1e400", "2e400"],
])("keeps every digit of a number: %s differs from %s", (one, other) => {
  const after = (number: string) =>
    read(
      plannedText([
        { address: "terraform_data.a", after: { input: "NUMBER", note: '"9 \\' } },
      ]).replace('"NUMBER"', number),
    ).resources[0]?.after;
  expect(after(one)).toEqual({ input: one, note: '"9 \\' });
  expect(after(one)).not.toEqual(after(other));
  expect(after("0.30000000000000004")?.input).toBe(0.1 + 0.2);
});

test("reads the version constraint of a provider", () => {
  expect(savedChange("create").configuration?.terraform).toMatchObject({
    required_providers: { docker: { source: "kreuzwerker/docker", version: "~> 4.5" } },
  });
});

test.each(
  Object.entries({
    "format_version must be 1.x, which Terraform 1.1 and newer write, got 2.0": plannedText(
      [],
    ).replace('"1.2"', '"2.0"'),
    "must be a plan in JSON, with format_version 1.x, got nothing: 'terraform plan -out=PLAN', then 'terraform show -json PLAN > plan.json'":
      "{}",
    "must be a plan, got a state; run: terraform show -json PLAN":
      '{"format_version":"1.0","values":{}}',
    "must be JSON, got a binary plan; run: terraform show -json PLAN > plan.json":
      "PK\u0003\u0004…",
    "must be the output of 'terraform show -json PLAN', got the log of 'terraform plan -json'":
      '{"@level":"info"}\n{"@level":"info"}',
    "must be JSON, got an empty file": "\n",
    "must be one JSON document, got text after its end": "{}\n{}\n",
    "must be a plan in JSON, an object: 'terraform plan -out=PLAN', then 'terraform show -json PLAN > plan.json'":
      "[]",
    "must not be nested deeper than 100 levels": `${"[".repeat(20_000)}${"]".repeat(20_000)}`,
    "a.b: change.actions must be an action of Terraform 1": plannedText([
      { address: "a.b", actions: ["explode"] },
    ]),
    "resource_changes.0.address must be text":
      '{"format_version":"1.2","resource_changes":[{"address":1}]}',
  }),
)("fails: %s", (message, text) => {
  expect(messageOf(() => read(text))).toBe(`ReviewError: plan.json: ${message}`);
});

test("accepts any version 1.x and unknown fields", () => {
  const text = plannedText([{ address: "a.b", more: { some_future_field: [1] } }], { future: {} });
  expect(read(text.replace('"1.2"', '"1.9"')).resources).toHaveLength(1);
});

test("reads a file with a byte order mark", () => {
  expect(read(`\uFEFF${plannedText([])}`).resources).toEqual([]);
});

describe("a truncated plan", () => {
  const text = planText("port-exposed");

  test("is rejected without quoting its content", () => {
    const message = messageOf(() => read(text.slice(0, text.indexOf("planted-secret") + 10)));
    expect(message).toMatch(
      /^ReviewError: plan\.json: must be JSON, got JSON truncated at character \d+: copy or create the file again$/,
    );
  });

  test("is rejected at any length", () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: text.trimEnd().length - 1 }), (length) => {
        const message = messageOf(() => read(text.slice(0, length)));
        expect(message).toMatch(/^ReviewError: plan\.json: must be JSON[^\n]*$/);
        expect(message).not.toContain("planted");
      }),
      { numRuns: 60 },
    );
  });
});

test("any change of a plan's bytes is read or rejected in one line", () => {
  const text = planText("create");
  fc.assert(
    fc.property(fc.nat(text.length - 1), fc.string({ minLength: 1, maxLength: 3 }), (at, text) => {
      const message = messageOf(() =>
        read(text.slice(0, at) + text + text.slice(at + text.length)),
      );
      expect(message).toMatch(/^(nothing was thrown|ReviewError: plan\.json: [^\n]*)$/);
    }),
    { numRuns: 80 },
  );
});

test("any JSON is read or rejected in one line", () => {
  fc.assert(
    fc.property(fc.json(), (json) => {
      expect(messageOf(() => read(json))).toMatch(/^ReviewError: plan\.json: [^\n]*$/);
    }),
  );
});

test("any JSON in place of a resource is read or rejected in one line", () => {
  fc.assert(
    fc.property(fc.jsonValue(), fc.jsonValue(), (before, after) => {
      const text = plannedText([{ address: "docker_container.a", before, after }]);
      expect(messageOf(() => read(text))).toMatch(/^(nothing was thrown|ReviewError: [^\n]*)$/);
    }),
  );
});

test.each(["constructor", "__proto__", "toString"])(
  "a provider, a resource and an argument may be called %s",
  (name) => {
    const text = `{"format_version":"1.2","resource_changes":[
      {"address":"${name}.a","type":"${name}","name":"a","change":{"actions":["update"],
        "before":{"x":{}},"after":{"x":{"${name}":"b"},"${name}":"c"}}},
      {"address":"helm_release.a","type":"helm_release","name":"a","change":{"actions":["update"],
        "before":{"values":["a: 1"]},"after":{"values":["{ ${name}: { ${name}: 1 } }"]}}}],
      "variables":{"${name}":{"value":"a"}},
      "configuration":{"provider_config":{"x":{"name":"${name}","full_name":"a/b"}}}}`;
    const change = changeOfPlan({ fileName: "a", text });
    expect(JSON.stringify(reviewOf([change]))).not.toContain("native code");
    expect(forcingPaths(name, [["x"]])).toEqual([]);
  },
);

test("rejects an address with a line break in one line", () => {
  const text = plannedText([{ address: "docker_container.a\n\u2028`<b>", actions: ["explode"] }]);
  expect(() => changeOfPlan({ fileName: "a", text })).toThrow(
    /^a: docker_container\.a `<b>: change\.actions must be an action of Terraform 1$/,
  );
});
