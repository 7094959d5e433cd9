import type { Construct, IConstruct } from "constructs";

/** Violation of a rule for a property. A check is a pure function that returns all findings. */
export interface Finding {
  /** Property or setting, relative to the construct: `ports.http`. */
  readonly path: string;
  /** Rule, as it follows "must". */
  readonly must: string;
  /**
   * Rejected value, as printed.
   *
   * @default - the rule contains the values
   */
  readonly got?: string;
}

/** Renders a finding: `ports.http must be free on the host, got 8010`. */
export function renderFinding({ path, must, got }: Finding): string {
  return `${path} must ${must}${got === undefined ? "" : `, got ${got}`}`;
}

/** Returns a finding if `isViolated`, otherwise none. */
export function findingIf(
  isViolated: boolean,
  path: string,
  must: string,
  got: string | number,
): readonly Finding[] {
  return isViolated ? [{ path, must, got: String(got) }] : [];
}

/** Runs `run` at synthesis, before anything is written. Rendered findings of other packages are accepted as text. */
export function check(scope: Construct, run: () => readonly (Finding | string)[]): void {
  scope.node.addValidation({
    validate: () =>
      run().map((finding) => (typeof finding === "string" ? finding : renderFinding(finding))),
  });
}

const warnings = new WeakMap<IConstruct, (() => readonly string[])[]>();

/** Adds warnings, which do not stop the synthesis. */
export function warn(scope: Construct, run: () => readonly string[]): void {
  warnings.set(scope, [...(warnings.get(scope) ?? []), run]);
}

/** Warnings below `root`, one line each, starting with the path of the construct. */
export function warningsOf(root: IConstruct): readonly string[] {
  return root.node
    .findAll()
    .flatMap((construct) =>
      (warnings.get(construct) ?? []).flatMap((run) =>
        run().map((warning) => `${construct.node.path}: ${warning}`),
      ),
    );
}

/** Findings below `root`, one line each, starting with the path of the construct. */
export function findingsOf(root: IConstruct): readonly string[] {
  return root.node
    .findAll()
    .flatMap((construct) =>
      construct.node.validate().map((finding) => `${construct.node.path}: ${finding}`),
    );
}
