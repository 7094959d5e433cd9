import { expect, test } from "vitest";
import { type PlannedResource, plannedChange, planText, savedChange } from "../test-plans.ts";
import { fingerprintOf, planDifferences, rejectionReasons } from "./fingerprint.ts";
import { changeOfPlan } from "./plan-json.ts";

const base: PlannedResource = {
  address: "docker_container.a",
  before: { env: ["A=1"], hostname: "x" },
  after: { env: ["A=2"], hostname: "x" },
};
const withSecret = (value: string) =>
  plannedChange([
    { ...base, after: { env: [`API_KEY=${value}`] }, more: { after_sensitive: { env: true } } },
  ]);

test("a plan does not differ from itself", () => {
  expect(planDifferences([savedChange("gpu-swapped")], [savedChange("gpu-swapped")])).toEqual([]);
  expect(fingerprintOf(savedChange("gpu-swapped"))).toBe(fingerprintOf(savedChange("gpu-swapped")));
});

test("ignores unchanged resources", () => {
  const same = {
    address: "docker_volume.v",
    actions: ["no-op"],
    before: { a: 1 },
    after: { a: 1 },
  };
  expect(planDifferences([plannedChange([base])], [plannedChange([base, same])])).toEqual([]);
});

test.each(
  Object.entries<readonly PlannedResource[]>({
    "docker_container.a: different value at env[0]": [
      { ...base, after: { env: ["A=3"], hostname: "x" } },
    ],
    "docker_container.a: the reviewed action is update, the new plan's is replace": [
      { ...base, actions: ["delete", "create"] },
    ],
    "docker_container.a: update is not in the new plan": [],
    "docker_volume.v: delete is not in the reviewed plan": [
      base,
      { address: "docker_volume.v", actions: ["delete"], before: {} },
    ],
    "docker_container.a: different value at hostname": [
      { ...base, more: { after_unknown: { hostname: true } } },
    ],
    "docker_container.a: different cause of replacement, or different order of actions": [
      { ...base, more: { replace_paths: [["env"]] } },
    ],
  }),
)("says of %s", (line, fresh) => {
  expect(planDifferences([plannedChange([base])], [plannedChange(fresh)])).toEqual([
    `test: ${line}`,
  ]);
});

test("reports a plan that was not reviewed and a missing plan", () => {
  const [a, b] = ["a", "b"].map((stack) => ({ ...plannedChange([base]), stack }));
  expect(planDifferences([a!], [b!])).toEqual([
    "a: was reviewed but has no new plan",
    "b: was not reviewed",
  ]);
});

test("reports a changed secret without its value", () => {
  const lines = planDifferences([withSecret("first-1234")], [withSecret("second-1234")]);
  expect(lines).toEqual(["test: docker_container.a: different value at env[0]"]);
});

test("a fingerprint is independent of secrets", () => {
  expect(fingerprintOf(withSecret("first-1234"))).toBe(fingerprintOf(withSecret("second-1234")));
});

/** Saved plan with an edit. */
interface Edited {
  readonly [key: string]: unknown;
  resource_changes: {
    address: string;
    type: string;
    mode: string;
    name: string;
    deposed?: string;
    change: { actions: string[]; before: unknown; after: unknown };
  }[];
}

const edited = (edit: (plan: Edited) => object) => {
  const plan = JSON.parse(planText("image-changed")) as Edited;
  const text = JSON.stringify({ ...plan, ...edit(plan) });
  return changeOfPlan({ fileName: "plan.json", text, stack: "single-gpu" });
};
const isReplaced = ({ change }: Edited["resource_changes"][number]) =>
  change.actions.join() === "delete,create";

test.each<readonly [string, (plan: Edited) => object, RegExp]>([
  [
    "another host",
    () => ({
      configuration: {
        provider_config: { docker: { expressions: { host: { constant_value: "tcp://b:1" } } } },
      },
    }),
    /providers: docker differs/,
  ],
  [
    "another order of actions",
    (plan) => {
      plan.resource_changes.find(isReplaced)!.change.actions = ["create", "delete"];
      return {};
    },
    /different order of actions/,
  ],
  [
    "another output",
    () => ({ output_changes: { other: { actions: ["create"], after: "z" } } }),
    /outputs: other differs/,
  ],
  ["another variable", () => ({ variables: { db: { value: "b" } } }), /variables: db differs/],
  [
    "a failing check",
    () => ({ checks: [{ status: "fail", address: { to_display: "check.c" } }] }),
    /check check\.c fails/,
  ],
  [
    "drift",
    (plan) => ({ resource_drift: [plan.resource_changes.find(isReplaced)] }),
    /has changed outside of Terraform since/,
  ],
  [
    "a deposed object",
    (plan) => {
      const first = plan.resource_changes.find(isReplaced)!;
      const change = { ...first.change, actions: ["delete"], before: { name: "v" }, after: null };
      return {
        resource_changes: [{ ...first, deposed: "ab12", change }, ...plan.resource_changes],
      };
    },
    /\(deposed ab12\): delete is not in the reviewed plan/,
  ],
  [
    "a program of a data source",
    (plan) => ({
      resource_changes: [
        ...plan.resource_changes,
        {
          address: "data.external.run",
          mode: "data",
          type: "external",
          name: "run",
          change: { actions: ["read"], before: null, after: { program: ["sh"] } },
        },
      ],
    }),
    /data\.external\.run: read is not in the reviewed plan/,
  ],
  [
    "a program of a provisioner",
    () => ({
      configuration: {
        root_module: {
          resources: [{ address: "a.b", provisioners: [{ type: "local-exec", expressions: {} }] }],
        },
      },
    }),
    /provisioners: a\.b differs/,
  ],
  [
    "null instead of false",
    (plan) => {
      const { change } = plan.resource_changes.find(
        (it) => it.type === "docker_container" && isReplaced(it),
      )!;
      change.after = { ...(change.after as object), stdin_open: null };
      return {};
    },
    /different value at stdin_open/,
  ],
])("%s changes the plan and its fingerprint", (_, edit, line) => {
  const [reviewed, fresh] = [edited(() => ({})), edited(edit)];
  expect(planDifferences([reviewed], [fresh]).join("\n")).toMatch(line);
  expect(fingerprintOf(fresh)).not.toBe(fingerprintOf(reviewed));
  expect(planDifferences([reviewed], [reviewed])).toEqual([]);
});

test("a fingerprint is independent of secrets of providers and variables", () => {
  const of = (secret: string) =>
    edited(() => ({
      variables: { api_token: { value: secret } },
      configuration: {
        provider_config: { a: { expressions: { password: { constant_value: secret } } } },
      },
    }));
  expect(fingerprintOf(of("first-1234"))).toBe(fingerprintOf(of("second-1234")));
});

test.each([
  ["planning failed", { errored: true }],
  ["the new plan is incomplete", { complete: false }],
  [
    "the new plan defers changes of a.b",
    {
      deferred_changes: [
        {
          reason: "unknown",
          resource_change: {
            address: "a.b",
            type: "a",
            name: "b",
            change: { actions: ["delete"] },
          },
        },
      ],
    },
  ],
])("rejects a plan: %s", (text, more) => {
  expect(rejectionReasons(plannedChange([base], more)).join()).toContain(text);
  expect(rejectionReasons(plannedChange([base]))).toEqual([]);
});

const action = {
  address: "action.local_command.x",
  config_values: { command: "true", token: "planted" },
  config_sensitive: { token: true },
  config_unknown: {},
  lifecycle_action_trigger: {
    triggering_resource_address: "docker_container.a",
    action_trigger_event: "AfterCreate",
    action_trigger_block_index: 0,
    actions_list_index: 0,
  },
};

test("reports a new provider action and changed arguments of one", () => {
  const [without, invoked, changed, rotated] = [
    [],
    [action],
    [{ ...action, config_values: { command: "false", token: "planted" } }],
    [{ ...action, config_values: { command: "true", token: "another" } }],
  ].map((actions) => plannedChange([base], { action_invocations: actions }));
  const line = ["test: actions: action.local_command.x differs"];
  expect(planDifferences([without!], [invoked!])).toEqual(line);
  expect(planDifferences([invoked!], [changed!])).toEqual(line);
  expect(planDifferences([invoked!], [invoked!])).toEqual([]);
  const prints = [without, invoked, changed, rotated].map((it) => fingerprintOf(it!));
  expect(new Set(prints).size).toBe(3);
  expect(prints[3]).toBe(prints[1]);
  expect(fingerprintOf(plannedChange([base]))).toBe(prints[0]);
});

test("rejects a plan that defers a provider action", () => {
  const change = plannedChange([], {
    deferred_action_invocations: [{ reason: "unknown", action_invocation: action }],
  });
  expect(rejectionReasons(change)).toEqual(["test: the new plan defers action.local_command.x"]);
});
