import { expect, test } from "vitest";
import { fingerprintOf, planDifferences } from "./fingerprint.ts";
import { type PlannedResource, plannedChange, savedChange } from "./test-plans.ts";

const base: PlannedResource = {
  address: "docker_container.a",
  before: { env: ["A=1"], hostname: "x" },
  after: { env: ["A=2"], hostname: "x" },
};
const withSecret = (value: string) =>
  plannedChange([
    { ...base, after: { env: [`API_KEY=${value}`] }, more: { after_sensitive: { env: true } } },
  ]);

test("the same plan twice is no difference", () => {
  expect(planDifferences([savedChange("gpu-swapped")], [savedChange("gpu-swapped")])).toEqual([]);
  expect(fingerprintOf(savedChange("gpu-swapped"))).toBe(fingerprintOf(savedChange("gpu-swapped")));
});

test("resources that do not change are no difference", () => {
  const same = {
    address: "docker_volume.v",
    actions: ["no-op"],
    before: { a: 1 },
    after: { a: 1 },
  };
  expect(planDifferences([plannedChange([base])], [plannedChange([base, same])])).toEqual([]);
});

test.each<readonly [string, readonly PlannedResource[], string]>([
  [
    "another value",
    [{ ...base, after: { env: ["A=3"], hostname: "x" } }],
    "docker_container.a: another value at env[0]",
  ],
  [
    "another action",
    [{ ...base, actions: ["delete", "create"] }],
    "docker_container.a: reviewed was update, the fresh plan says replace",
  ],
  ["one that is gone", [], "docker_container.a: update is not in the fresh plan"],
  [
    "a new one",
    [base, { address: "docker_volume.v", actions: ["delete"], before: {} }],
    "docker_volume.v: delete was not in the reviewed plan",
  ],
  [
    "what is not known any more",
    [{ ...base, more: { after_unknown: { hostname: true } } }],
    "docker_container.a: another value at hostname",
  ],
  [
    "what forces it",
    [{ ...base, more: { replace_paths: [["env"]] } }],
    "docker_container.a: something else forces it",
  ],
])("says of %s", (_, fresh, line) => {
  expect(planDifferences([plannedChange([base])], [plannedChange(fresh)])).toEqual([
    `test: ${line}`,
  ]);
});

test("a plan that nobody reviewed, and one that is missing, are differences", () => {
  const [a, b] = ["a", "b"].map((stack) => ({ ...plannedChange([base]), stack }));
  expect(planDifferences([a!], [b!])).toEqual([
    "a: was reviewed, and has no fresh plan",
    "b: was not reviewed",
  ]);
});

test("another secret is a difference of plans, and its value is not said", () => {
  const lines = planDifferences([withSecret("first-1234")], [withSecret("second-1234")]);
  expect(lines).toEqual(["test: docker_container.a: another value at env[0]"]);
});

test("a fingerprint does not tell one secret from another", () => {
  expect(fingerprintOf(withSecret("first-1234"))).toBe(fingerprintOf(withSecret("second-1234")));
});
