import { expect, test } from "vitest";
import { backoffMs } from "./backoff.ts";

test("doubles up to a limit, half of it by chance", () => {
  const delays = (random: () => number) =>
    [0, 1, 2, 10, 1000].map((attempt) => backoffMs(attempt, { random }));
  expect(delays(() => 0)).toEqual([250, 500, 1000, 15_000, 15_000]);
  expect(delays(() => 1)).toEqual([500, 1000, 2000, 30_000, 30_000]);
});
