import type { Review } from "../changes/stack-review.ts";

/** Renders the findings as SARIF 2.1.0. Waived findings are suppressed; those from before the change are `unchanged`. */
export function sarifReport({ stacks }: Review, { rulesUrl }: { readonly rulesUrl?: string }) {
  const findings = stacks.flatMap((stack) => stack.findings);
  const rules = [...new Set(findings.map(({ rule }) => rule))].map((id) => ({
    id,
    ...(rulesUrl !== undefined && { helpUri: `${rulesUrl}${id}.md` }),
  }));
  const results = findings.map(({ rule, severity, stack, address, message, fix, ...finding }) => ({
    ruleId: rule,
    // the names of severities are those of SARIF
    level: severity,
    message: { text: `${address ?? stack}: ${message}. Fix: ${fix}.` },
    baselineState: finding.existing ? "unchanged" : "new",
    locations: [
      {
        // a plan does not name the source file; code scanning requires one
        physicalLocation: {
          artifactLocation: { uri: encodeURIComponent(stack) },
          region: { startLine: 1 },
        },
        logicalLocations: [{ fullyQualifiedName: address ?? stack, kind: "resource" }],
      },
    ],
    partialFingerprints: { "finding/v1": [rule, stack, address].join(" ") },
    suppressions:
      finding.waived === undefined ? [] : [{ kind: "external", justification: finding.waived }],
  }));
  const driver = { name: "clipstack-review", rules };
  return `${JSON.stringify(
    {
      $schema: "https://json.schemastore.org/sarif-2.1.0.json",
      version: "2.1.0",
      runs: [{ tool: { driver }, columnKind: "utf16CodeUnits", results }],
    },
    undefined,
    2,
  )}\n`;
}
