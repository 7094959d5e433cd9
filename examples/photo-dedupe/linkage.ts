/** Clusters of similar items from pairs of similar items. */

export const linkages = ["complete", "chain"] as const;
/** `complete`: every two items of a cluster are similar. `chain`: they are connected by a chain of similar items. */
export type Linkage = (typeof linkages)[number];

/** Two similar items. */
export interface LinkedPair {
  readonly a: number;
  readonly b: number;
}

/** Distances of items that obey the triangle inequality. */
export interface Metric {
  distance(a: number, b: number): number;
  /** Maximum distance of similar items. */
  readonly limit: number;
}

interface Cluster {
  members: number[];
  /** Largest distance of the first member to another, one per metric. */
  radii: readonly number[];
  /** Clusters with an item that is not similar to one of this. Joining more items does not change that. */
  readonly apart: Set<Cluster>;
}

/**
 * Joins items pair by pair, in their order: the most similar first. With complete linkage, two clusters are joined if every item of one is similar to every item of the
 * other by all metrics. For narrow clusters the triangle inequality replaces most comparisons: n near-equal items need
 * O(n log n) of them.
 *
 * @returns Clusters of at least two items, in ascending order.
 */
export function link(
  count: number,
  pairs: readonly LinkedPair[],
  linkage: Linkage,
  metrics: readonly Metric[],
): readonly (readonly number[])[] {
  const clusters: (Cluster | undefined)[] = new Array(count);
  const clusterOf = (item: number) => {
    const known = clusters[item] ?? {
      members: [item],
      radii: metrics.map(() => 0),
      apart: new Set<Cluster>(),
    };
    clusters[item] = known;
    return known;
  };
  for (const { a, b } of pairs) {
    const [left, right] = [clusterOf(a), clusterOf(b)];
    if (left === right || left.apart.has(right)) continue;
    const [large, small] =
      left.members.length >= right.members.length ? [left, right] : [right, left];
    const radii = linkage === "complete" ? joinedRadii(large, small, metrics) : large.radii;
    if (radii === undefined) {
      large.apart.add(small);
      small.apart.add(large);
      continue;
    }
    join(large, small, radii);
    for (const member of small.members) clusters[member] = large;
  }
  const found = new Set(clusters.filter((cluster) => cluster !== undefined));
  return [...found]
    .filter(({ members }) => members.length > 1)
    .map(({ members }) => members.sort((x, y) => x - y))
    .sort(([x], [y]) => x! - y!);
}

/** Returns the radii of the joined cluster; `undefined` if an item of one cluster is not similar to one of the other. */
function joinedRadii(
  large: Cluster,
  small: Cluster,
  metrics: readonly Metric[],
): readonly number[] | undefined {
  const radii: number[] = [];
  for (const [i, { distance, limit }] of metrics.entries()) {
    const first = large.members[0]!;
    let reach = 0;
    for (const member of small.members) reach = Math.max(reach, distance(first, member));
    // two single items are given as similar, with the rounding of their similarity
    if (large.members.length > 1) {
      if (reach > limit) return undefined;
      const isNarrow = large.radii[i]! + reach <= limit;
      const similar = (x: number) => large.members.every((y) => distance(x, y) <= limit);
      if (!isNarrow && !small.members.every(similar)) return undefined;
    }
    radii.push(Math.max(large.radii[i]!, reach));
  }
  return radii;
}

function join(large: Cluster, small: Cluster, radii: readonly number[]): void {
  for (const member of small.members) large.members.push(member);
  large.radii = radii;
  for (const other of small.apart) {
    other.apart.delete(small);
    other.apart.add(large);
    large.apart.add(other);
  }
}
