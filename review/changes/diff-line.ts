/** One changed value, without secrets. */
export interface DiffLine {
  /** `dynamic_batching.max_queue_delay_microseconds`, `env PORT`, `spec.replicas` */
  readonly path: string;
  /** Absent for an added value. */
  readonly before?: string;
  /** Absent for a removed value. */
  readonly after?: string;
}

/** Changes of one text or object. */
export interface DiffBlock {
  /** Subject, such as `config.pbtxt of openclip_vit_b32`; empty for the resource's own attributes. */
  readonly title: string;
  readonly lines: readonly DiffLine[];
}

export const knownAfterApply = "(known after apply)";

/** Compares two maps by key. */
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
