import type { Construct, IConstruct } from "constructs";
import { AnnotationMetadataEntryType, Annotations } from "../terraform/cdktf.ts";

/**
 * Violation of a rule, as one line: `ports.http must be free on the host, got 8010`. A check is a pure function that returns all
 * findings.
 *
 * @param path - Property or setting, relative to the construct: `ports.http`.
 * @param must - Rule, as it follows "must".
 * @param got - Rejected value, as printed; nothing if the rule contains the values.
 */
export function finding(path: string, must: string, got?: string | number): string {
  return `${path} must ${must}${got === undefined ? "" : `, got ${got}`}`;
}

/** Returns a finding if `isViolated`, otherwise none. */
export function findingIf(
  isViolated: boolean,
  path: string,
  must: string,
  got: string | number,
): readonly string[] {
  return isViolated ? [finding(path, must, got)] : [];
}

/** Runs `run` at synthesis, before anything is written. */
export function check(scope: Construct, run: () => readonly string[]): void {
  scope.node.addValidation({ validate: () => [...run()] });
}

/** Adds warnings, which cdktf prints and which do not stop the synthesis. */
export function warn(scope: Construct, warnings: readonly string[]): void {
  for (const warning of warnings) Annotations.of(scope).addWarning(warning);
}

/** Warnings below `root`, one line each, starting with the path of the construct. */
export function warningsOf(root: IConstruct): readonly string[] {
  return root.node
    .findAll()
    .flatMap(({ node }) =>
      node.metadata
        .filter(({ type }) => type === AnnotationMetadataEntryType.WARN)
        .map(({ data }) => `${node.path}: ${data}`),
    );
}

/** Findings below `root`, one line each, starting with the path of the construct. */
export function findingsOf(root: IConstruct): readonly string[] {
  return root.node
    .findAll()
    .flatMap(({ node }) => node.validate().map((line) => `${node.path}: ${line}`));
}
