import { expect, test } from "vitest";
import { chooseLoads, planRounds } from "./run.ts";

const planned = (excluded: readonly "baseline"[] = []) =>
  planRounds(chooseLoads(["tiny", "single"]), 2, new Set(excluded)).map(
    ({ round, load, subject }) => `${round} ${load.id} ${subject}`,
  );

test("reverses the subjects in every second round", () => {
  expect(planned()).toEqual([
    "1 single ceiling",
    "1 single server",
    "1 single baseline",
    "1 tiny server",
    "1 tiny baseline",
    "2 single baseline",
    "2 single server",
    "2 single ceiling",
    "2 tiny baseline",
    "2 tiny server",
  ]);
});

test("excludes an unavailable baseline", () => {
  expect(planned(["baseline"])).not.toContain("1 single baseline");
  expect(planned(["baseline"])).toHaveLength(6);
});
