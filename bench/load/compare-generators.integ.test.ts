import { expect, test } from "vitest";
import { compareGenerators, describeComparison, rateRatio } from "./compare-generators.ts";
import { hey, heyMissing } from "./test-hey.ts";

test.skipIf(heyMissing !== "")(
  `our generator is not much slower than hey${heyMissing === "" ? "" : ` (not here: ${heyMissing})`}`,
  async () => {
    const comparison = await compareGenerators({
      hey,
      rounds: 2,
      seconds: 1,
      concurrency: 8,
      requestBytes: 10_000,
      signal: new AbortController().signal,
      say: () => {},
    });
    console.log(describeComparison(comparison));
    expect(comparison.rounds.map(({ generator }) => generator)).toEqual([
      "ours",
      "hey",
      "hey",
      "ours",
    ]);
    for (const { p50Ms } of comparison.rounds) expect(p50Ms).toBeGreaterThan(0);
    // half is what it has to be on a quiet machine; a test must hold on any
    expect(rateRatio(comparison.rounds)).toBeGreaterThan(0.25);
  },
);
