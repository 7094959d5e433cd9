import { expect, test } from "vitest";
import { parseProcessStat } from "../../target/readings/process-stat.ts";
import { groupCpuMs, machineTime, othersShare } from "./cpu-use.ts";

test("counts the CPU time of a process and its ended children", () => {
  const text =
    "42 (a (strange) name) S 1 40 40 0 -1 4194304 100 200 0 0 500 50 30 3 20 0 11 0 12345 1000 200";
  expect(parseProcessStat(text)).toEqual({ group: 40, cpuMs: 5_830 });
});

test("idle and I/O wait time is not busy time", () => {
  expect(machineTime("cpu  100 10 40 800 50 0 5 5 0 0\ncpu0 1 2 3\n")).toEqual({
    busyMs: 1_600,
    totalMs: 10_100,
  });
});

test("computes the share of other processes", () => {
  const before = { busyMs: 0, totalMs: 0, groups: new Map([[7, 100]]) };
  const after = {
    busyMs: 900,
    totalMs: 2_000,
    groups: new Map([
      [7, 600],
      [8, 200],
    ]),
  };
  expect(groupCpuMs(before, after, 7)).toBe(500);
  expect(othersShare(before, after, [7, 8])).toBeCloseTo(0.1);
});
