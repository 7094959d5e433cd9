import type { Path } from "./change.ts";

/** Set of paths that is searched along one path, regardless of the number of its paths. */
export class PathSet {
  /** Whether the set contains the empty path. */
  hasRoot = false;
  readonly #below = new Map<string, PathSet>();

  constructor(paths: readonly Path[] = []) {
    for (const path of paths) this.#add(path);
  }

  /** Paths that begin with a step, without it; `undefined` if there are none. */
  below(step: string | number): PathSet | undefined {
    return this.#below.get(String(step));
  }

  /** Whether a path is one of the set, or below one. */
  covers(path: Path): boolean {
    let set: PathSet | undefined = this;
    for (const step of path) {
      if (set === undefined || set.hasRoot) break;
      set = set.below(step);
    }
    return set?.hasRoot === true;
  }

  /** Whether a path of the set is the path, or below it. */
  reaches(path: Path): boolean {
    return path.reduce<PathSet | undefined>((set, step) => set?.below(step), this) !== undefined;
  }

  #add(path: Path): void {
    let set: PathSet = this;
    for (const step of path) {
      const next: PathSet = set.below(step) ?? new PathSet();
      set.#below.set(String(step), next);
      set = next;
    }
    set.hasRoot = true;
  }
}
