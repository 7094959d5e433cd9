import type { Construct, IConstruct } from "constructs";

/**
 * What is wrong with a prop, in the words of the caller: `name must …, got value`, lower case, no full stop.
 * A check is a pure function that returns all that it finds.
 */
export type Finding = string;

/** Run `check` when the tree is complete, before anything is written. */
export function check(scope: Construct, run: () => readonly Finding[]): void {
  scope.node.addValidation({ validate: () => [...run()] });
}

const warnings = new WeakMap<IConstruct, (() => readonly Finding[])[]>();

/** Have what `run` says told when the tree is complete; it stops nothing. */
export function warn(scope: Construct, run: () => readonly Finding[]): void {
  warnings.set(scope, [...(warnings.get(scope) ?? []), run]);
}

/** What is worth knowing below `root`, each line with the path of its construct. */
export function warningsOf(root: IConstruct): readonly string[] {
  return root.node
    .findAll()
    .flatMap((construct) =>
      (warnings.get(construct) ?? []).flatMap((run) =>
        run().map((warning) => `${construct.node.path}: ${warning}`),
      ),
    );
}

/** Everything that the checks below `root` find, each line with the path of its construct. Empty is good. */
export function findingsOf(root: IConstruct): readonly string[] {
  return root.node
    .findAll()
    .flatMap((construct) =>
      construct.node.validate().map((finding) => `${construct.node.path}: ${finding}`),
    );
}
