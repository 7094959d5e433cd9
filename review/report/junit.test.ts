import { expect, test } from "vitest";
import type { RuleFinding } from "../input/change.ts";
import { changeOfPlan } from "../input/plan-json.ts";
import { reviewOf } from "../review.ts";
import { plannedText } from "../test-plans.ts";
import { junitReport } from "./junit.ts";

const change = changeOfPlan({ fileName: "a.json", text: plannedText([], { errored: true }) });
const finding = (more: Partial<RuleFinding>): RuleFinding => ({
  ...{ rule: "own-a", severity: "error", stack: change.stack, message: "is wrong", fix: "mend it" },
  ...more,
});

const lines = (...findings: readonly RuleFinding[]) =>
  junitReport(reviewOf([change], { findings })).split("\n");

test("new findings fail, notes and waived and existing ones are skipped, and the counts agree", () => {
  const report = lines(
    finding({ message: "one" }),
    finding({ message: "two", severity: "warning" }),
    finding({ message: "three", severity: "note" }),
    finding({ message: "four", waived: "until May" }),
    finding({ message: "five", existing: true }),
  );
  expect(report[2]).toBe(
    '<testsuite id="0" name="a" tests="5" failures="2" errors="0" skipped="3" package="clipstack-review" hostname="localhost" timestamp="1970-01-01T00:00:00" time="0">',
  );
  const outcomes = report.flatMap(
    (it) => /<(failure|skipped) .*message="([^"]*)"/.exec(it)?.slice(1, 3).join(" ") ?? [],
  );
  expect(outcomes.filter((it) => it !== "failure blocked").sort()).toEqual([
    "failure one",
    "failure two",
    "skipped existing: five",
    "skipped note: three",
    "skipped waived, until May: four",
  ]);
});

test("the reasons of a blocked verdict are lines of their own", () => {
  const report = lines(finding({}));
  const start = report.indexOf(
    '<testcase classname="verdict" name="verdict" time="0"><failure type="error" message="blocked">blocked',
  );
  expect(start).toBeGreaterThan(0);
  expect(report[start + 1]).toMatch(/^a: /);
});

test("texts that XML cannot contain are escaped or replaced", () => {
  const [, , , , testCase] = lines(
    finding({ address: 'a["<&"]', message: "x\u0000\uFFFE\uD800y" }),
  );
  expect(testCase).toContain('name="a[&quot;&lt;&amp;&quot;]"');
  expect(testCase).toContain('message="x y"');
});
