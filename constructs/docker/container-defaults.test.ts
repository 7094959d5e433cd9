import { expect, test } from "vitest";
import {
  environmentList,
  goDuration,
  healthcheck,
  stopAfter,
  verdictSeconds,
} from "./container-defaults.ts";

test.each([
  [0, "0s"],
  [5, "5s"],
  [60, "1m0s"],
  [90, "1m30s"],
  [1320, "22m0s"],
  [3600, "1h0m0s"],
  [3723, "1h2m3s"],
])("formats %i seconds as %s, like Go", (seconds, text) => {
  expect(goDuration(seconds)).toBe(text);
});

test("sets both stop timeouts to the grace period of the server plus a margin", () => {
  expect(stopAfter(30)).toEqual({ stopTimeout: 35, destroyGraceSeconds: 35 });
});

test("a deployment waits longer than the health check takes to fail", () => {
  expect(healthcheck(["CMD", "true"], 120)).toEqual({
    test: ["CMD", "true"],
    startPeriod: "2m0s",
    interval: "5s",
    timeout: "4s",
    retries: 6,
  });
  expect(verdictSeconds(120)).toBeGreaterThan(120 + 6 * (5 + 4));
});

test("sorts the environment, so that its order never changes a container", () => {
  expect(environmentList({ B: "2", A: "1" })).toEqual(["A=1", "B=2"]);
});
