import { expect, test } from "vitest";
import { ingestProfile } from "./identifiability.ts";
import { testFacts } from "./test-facts.ts";

test("the published figures fit as well if one Triton server limits the remote runs instead of the link", () => {
  const profile = ingestProfile(testFacts);
  const errors = profile.map(({ medianError }) => medianError);
  expect(Math.max(...errors) - Math.min(...errors)).toBeLessThan(0.06);
  const [measured] = profile;
  const last = profile.at(-1);
  expect(measured?.bandwidthMbps).toBeLessThan(200);
  expect(last?.bandwidthMbps).toBeGreaterThan(9_000);
});
