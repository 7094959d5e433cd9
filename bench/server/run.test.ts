import { expect, test } from "vitest";
import { chooseLoads, planRounds } from "./run.ts";

const planned = (leftOut: readonly "peer"[] = []) =>
  planRounds(chooseLoads(["tiny", "single"]), 2, new Set(leftOut)).map(
    ({ round, load, subject }) => `${round} ${load.id} ${subject}`,
  );

test("reverses the subjects in every second round", () => {
  expect(planned()).toEqual([
    "1 single limit",
    "1 single server",
    "1 single peer",
    "1 tiny server",
    "1 tiny peer",
    "2 single peer",
    "2 single server",
    "2 single limit",
    "2 tiny peer",
    "2 tiny server",
  ]);
});

test("leaves out the peer where it cannot be had", () => {
  expect(planned(["peer"])).not.toContain("1 single peer");
  expect(planned(["peer"])).toHaveLength(6);
});
