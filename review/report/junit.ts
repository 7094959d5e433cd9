import type { Review } from "../changes/stack-review.ts";
import type { RuleFinding } from "../input/change.ts";
import { escapeHtml } from "./comment-html.ts";

/** Renders the findings as JUnit XML: new errors and warnings fail, waived and existing ones and notes are skipped. */
export function junitReport({ verdict, stacks }: Review): string {
  const suites = stacks.map(({ stack, findings }) => {
    const cases = findings.map((finding) => testCase(stack, finding));
    const failures = findings.filter((it) => skipReason(it) === undefined).length;
    const counts = `tests="${cases.length}" failures="${failures}" skipped="${cases.length - failures}"`;
    return [`<testsuite name="${attribute(stack)}" ${counts}>`, ...cases, "</testsuite>"];
  });
  const text = [verdict.level, ...verdict.reasons].join("\n");
  const summary = `<testsuite name="verdict" tests="1" failures="${verdict.level === "blocked" ? 1 : 0}">`;
  const verdictCase =
    verdict.level === "blocked"
      ? `<testcase name="verdict"><failure message="blocked">${attribute(text)}</failure></testcase>`
      : `<testcase name="verdict"><system-out>${attribute(text)}</system-out></testcase>`;
  const lines = [...suites.flat(), summary, verdictCase, "</testsuite>"];
  return `<?xml version="1.0" encoding="UTF-8"?>\n<testsuites>\n${lines.join("\n")}\n</testsuites>\n`;
}

function testCase(stack: string, finding: RuleFinding): string {
  const { rule, severity, address, message, fix } = finding;
  const skipped = skipReason(finding);
  const content =
    skipped === undefined
      ? `<failure type="${severity}" message="${attribute(message)}">Fix: ${attribute(fix)}</failure>`
      : `<skipped message="${attribute(`${skipped}: ${message}`)}"/>`;
  return `<testcase classname="${rule}" name="${attribute(address ?? stack)}">${content}</testcase>`;
}

function skipReason({ waived, existing, severity }: RuleFinding): string | undefined {
  if (waived !== undefined) return `waived, ${waived}`;
  return existing ? "existing" : severity === "note" ? "note" : undefined;
}

/** XML has no form for most control characters, single surrogates and U+FFFE; lines stay lines. */
function attribute(text: string): string {
  const lines = text.replaceAll(/[^\P{Cc}\n]|[\p{Cs}\uFFFE\uFFFF]/gu, " ").split("\n");
  return lines.map(escapeHtml).join("\n");
}
