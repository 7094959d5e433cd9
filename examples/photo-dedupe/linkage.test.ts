import { expect, test } from "vitest";
import { type Linkage, link, type Metric } from "./linkage.ts";

/** Links numbers on a line whose difference is at most `limit`. */
function linkNumbers(values: readonly number[], limit: number, linkage: Linkage) {
  let comparisons = 0;
  const metric: Metric = {
    limit,
    distance(a, b) {
      comparisons++;
      return Math.abs(values[a]! - values[b]!);
    },
  };
  const pairs = values.flatMap((x, a) =>
    values.flatMap((y, b) =>
      b > a && Math.abs(x - y) <= limit ? [{ a, b, d: Math.abs(x - y) }] : [],
    ),
  );
  pairs.sort((x, y) => x.d - y.d || x.a - y.a || x.b - y.b);
  const clusters = link(values.length, pairs, linkage, [metric]);
  return { clusters, comparisons };
}

test("joins the most similar items first", () => {
  const { clusters } = linkNumbers([0, 1.1, 2, 10, 30, 30.5], 1.5, "complete");
  expect(clusters).toEqual([
    [1, 2],
    [4, 5],
  ]);
});

test("every two items of a cluster are similar, and no two clusters could be joined", () => {
  const values = Array.from({ length: 300 }, (_, i) => (i * 7919) % 1_000);
  const limit = 20;
  const { clusters } = linkNumbers(values, limit, "complete");
  const spans = clusters.map((members) => members.map((i) => values[i]!).sort((x, y) => x - y));
  for (const span of spans) expect(span.at(-1)! - span[0]!).toBeLessThanOrEqual(limit);
  for (const x of spans) {
    for (const y of spans) {
      const both = [...x, ...y];
      if (x !== y) expect(Math.max(...both) - Math.min(...both)).toBeGreaterThan(limit);
    }
  }
});

test("joins chains with the linkage chain", () => {
  const { clusters } = linkNumbers([0, 1, 2, 3, 9], 1, "chain");
  expect(clusters).toEqual([[0, 1, 2, 3]]);
});

test("needs few comparisons if all items are near-equal", () => {
  const values = Array.from({ length: 200 }, (_, i) => i / 1_000);
  const { clusters, comparisons } = linkNumbers(values, 1, "complete");
  expect(clusters.map(({ length }) => length)).toEqual([200]);
  expect(comparisons).toBeLessThan(200 * Math.log2(200));
});
