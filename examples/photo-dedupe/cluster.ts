import type { Pair } from "./similar-pairs.ts";

/** Puts together what is similar. `add` takes the pairs in any order; the groups do not depend on it. */
export interface Clusterer {
  add(pair: Pair): void;
  /** Groups of two and more: indices in rising order, the groups by their first. */
  groups(): readonly (readonly number[])[];
}

/** Connected components: two are together when a chain of pairs leads from one to the other. */
export function components(count: number): Clusterer {
  const parents = Int32Array.from({ length: count }, (_, i) => i);

  function rootOf(index: number): number {
    let root = index;
    while (parents[root] !== root) {
      parents[root] = parents[parents[root]!]!;
      root = parents[root]!;
    }
    return root;
  }

  return {
    add({ a, b }) {
      const [first, second] = [rootOf(a), rootOf(b)];
      // the smaller index is the root, so that the groups come out in order
      parents[Math.max(first, second)] = Math.min(first, second);
    },
    groups() {
      const members = new Map<number, number[]>();
      for (let i = 0; i < count; i++) {
        const root = rootOf(i);
        if (root === i) continue;
        const group = members.get(root);
        if (group === undefined) members.set(root, [root, i]);
        else group.push(i);
      }
      return [...members.values()].sort((x, y) => x[0]! - y[0]!);
    },
  };
}

/** The most pairs that complete linkage keeps in memory. */
export const maxLinkedPairs = 5_000_000;

/**
 * Complete linkage: the two groups are merged whose least similar members are most similar, as long as all pairs between
 * them were added. Equal similarities go by the smallest indices.
 *
 * @throws {RangeError} at the pair that is one too many
 */
export function completeLinkage(): Clusterer {
  const pairs: Pair[] = [];
  return {
    add(pair) {
      if (pairs.length >= maxLinkedPairs) {
        throw new RangeError(
          `more than ${maxLinkedPairs} pairs are similar: raise --threshold, or use --linkage components`,
        );
      }
      pairs.push(pair);
    },
    groups: () => merged(pairs),
  };
}

function merged(pairs: readonly Pair[]): readonly (readonly number[])[] {
  /** By the smallest index of a group: its members, and the least similarity to each other group that is all similar. */
  const groups = new Map<number, { members: number[]; links: Map<number, number> }>();
  const groupOf = (index: number) => {
    const known = groups.get(index);
    if (known !== undefined) return known;
    const group = { members: [index], links: new Map<number, number>() };
    groups.set(index, group);
    return group;
  };
  const heap = new PairHeap();
  for (const { a, b, similarity } of pairs) {
    // an index finds most pairs from both sides
    if (groups.get(a)?.links.has(b)) continue;
    groupOf(a).links.set(b, similarity);
    groupOf(b).links.set(a, similarity);
    heap.push({ a, b, similarity });
  }
  for (let next = heap.pop(); next !== undefined; next = heap.pop()) {
    const { a, b, similarity } = next;
    const [kept, joined] = [groups.get(a), groups.get(b)];
    // an entry is stale when one of the groups was merged or grew since
    if (kept === undefined || joined === undefined || kept.links.get(b) !== similarity) continue;
    groups.delete(b);
    kept.members.push(...joined.members);
    const links = new Map<number, number>();
    for (const [other, own] of kept.links) {
      if (other === b) continue;
      const theirs = joined.links.get(other);
      if (theirs === undefined) {
        groups.get(other)?.links.delete(a);
        continue;
      }
      const least = Math.min(own, theirs);
      links.set(other, least);
      // the entry that is in the heap holds on
      if (least === own) continue;
      groups.get(other)?.links.set(a, least);
      heap.push({ a: Math.min(a, other), b: Math.max(a, other), similarity: least });
    }
    for (const other of joined.links.keys()) groups.get(other)?.links.delete(b);
    kept.links = links;
  }
  return [...groups.values()]
    .filter(({ members }) => members.length > 1)
    .map(({ members }) => members.sort((x, y) => x - y))
    .sort((x, y) => x[0]! - y[0]!);
}

/** Most similar first, then the smallest indices. */
function before(x: Pair, y: Pair): boolean {
  if (x.similarity !== y.similarity) return x.similarity > y.similarity;
  return x.a !== y.a ? x.a < y.a : x.b < y.b;
}

class PairHeap {
  readonly #items: Pair[] = [];

  push(pair: Pair): void {
    const items = this.#items;
    let at = items.push(pair) - 1;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (!before(pair, items[parent]!)) break;
      items[at] = items[parent]!;
      at = parent;
    }
    items[at] = pair;
  }

  pop(): Pair | undefined {
    const items = this.#items;
    const [top] = items;
    const last = items.pop();
    if (last === undefined || items.length === 0) return top;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= items.length) break;
      if (child + 1 < items.length && before(items[child + 1]!, items[child]!)) child++;
      if (!before(items[child]!, last)) break;
      items[at] = items[child]!;
      at = child;
    }
    items[at] = last;
    return top;
  }
}
