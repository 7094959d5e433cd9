/** One thing that changes, as a reader sees it: no secret in it. */
export interface DiffLine {
  /** `dynamic_batching.max_queue_delay_microseconds`, `env PORT`, `spec.replicas` */
  readonly path: string;
  /** Absent: it was not there. */
  readonly before?: string;
  /** Absent: it is not there any more. */
  readonly after?: string;
}

/** What changes in one text or object. */
export interface DiffBlock {
  /** What it is: `config.pbtxt of openclip_vit_b32`. Empty: the attributes of the resource itself. */
  readonly title: string;
  readonly lines: readonly DiffLine[];
}

export const knownAfterApply = "(known after apply)";

/** Two maps of texts, compared by key. */
export function diffTexts(
  before: ReadonlyMap<string, string>,
  after: ReadonlyMap<string, string>,
): readonly DiffLine[] {
  return [...new Set([...before.keys(), ...after.keys()])]
    .filter((path) => before.get(path) !== after.get(path))
    .map((path) => lineOf(path, before.get(path), after.get(path)));
}

export function lineOf(path: string, before?: string, after?: string): DiffLine {
  return { path, before, after };
}
