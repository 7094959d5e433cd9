import { expect, test } from "vitest";
import { bandOf } from "../../bench/capacity/intervals.ts";
import { coverage, errorFactors, leaveOneOut } from "./cross-validation.ts";
import { testFacts } from "./test-facts.ts";

const rows = leaveOneOut(testFacts);
const predictionsOf = (setting: string, of = rows) =>
  of.filter((row) => row.setting === setting).map(({ predicted }) => predicted);

test("predicts the throughput and latency of every remote setting", () => {
  const remote = [...testFacts.published.values()].filter(
    ({ setting }) => setting.place === "remote",
  );
  expect(remote.length).toBe(6);
  for (const { id } of remote) expect(predictionsOf(id), id).not.toEqual([]);
  for (const { figure, predicted } of rows) expect(predicted, figure).toBeGreaterThan(0);
});

test.each(["a100-remote", "rtx-4080-x4-remote", "rtx-4080-remote"])(
  "no figure of %s has an effect on its prediction, but on that of other settings",
  (setting) => {
    const published = new Map(testFacts.published);
    const file = published.get(setting)!;
    const figures = file.figures.map((figure) => ({
      ...figure,
      ...(figure.value === undefined ? {} : { value: figure.value * 1.3 }),
    }));
    published.set(setting, { ...file, figures });
    const changed = leaveOneOut({ published, peaks: testFacts.peaks });
    expect(predictionsOf(setting, changed)).toEqual(predictionsOf(setting));
    const others = (of: typeof rows) => of.filter((row) => row.setting !== setting);
    expect(others(changed)).not.toEqual(others(rows));
  },
);

test("about the nominal share of the held-out figures is inside the intervals", () => {
  expect(coverage(rows)).toBeGreaterThan(0.65);
  expect(coverage(rows)).toBeLessThan(0.9);
});

test("settings count equally in an interval, however many figures they have", () => {
  const many = Array.from({ length: 90 }, () => 1);
  expect(bandOf([100], [many, [0.5], [2]])).toEqual({ p10: 50, p90: 200 });
});

test("an interval covers the rounding of the sources as well", () => {
  const { p10, p90 } = bandOf([90, 100, 110], [[1]]);
  expect([p10, p90]).toEqual([90, 110]);
});

test("errors are published relative to predicted, by kind and setting", () => {
  const row = { setting: "a", kind: "throughput", published: 30, predicted: 20 } as const;
  expect(errorFactors([row, { ...row, setting: "b", kind: "latency" }])).toEqual({
    throughput: [[1.5]],
    latency: [[1.5]],
  });
});
