import type { Review } from "../changes/stack-review.ts";
import type { RuleFinding } from "../input/change.ts";
import { escapeHtml } from "./comment-html.ts";

/**
 * Renders the findings as JUnit XML: new errors and warnings fail, waived and existing ones and notes are skipped. It has what the
 * schemas of Ant and Jenkins require; times are zero because the report is deterministic.
 */
export function junitReport({ verdict, stacks }: Review): string {
  const suites = stacks.map(({ stack, findings }) => ({
    name: stack,
    cases: findings.map((finding) => testCase(stack, finding)),
  }));
  const isBlocked = verdict.level === "blocked";
  const text = attribute([verdict.level, ...verdict.reasons].join("\n"));
  const failure = isBlocked ? `<failure type="error" message="blocked">${text}</failure>` : "";
  const verdictCase = `<testcase classname="verdict" name="verdict" time="0">${failure}</testcase>`;
  const lines = [
    ...suites.flatMap(({ name, cases }, id) => suite(id, name, cases)),
    ...suite(suites.length, "verdict", [verdictCase], isBlocked ? "" : text),
  ];
  return `<?xml version="1.0" encoding="UTF-8"?>\n<testsuites>\n${lines.join("\n")}\n</testsuites>\n`;
}

function suite(id: number, name: string, cases: readonly string[], output = ""): readonly string[] {
  const count = (element: string) => cases.filter((it) => it.includes(`<${element}`)).length;
  const counts = `tests="${cases.length}" failures="${count("failure")}" errors="0" skipped="${count("skipped")}"`;
  const constants =
    'package="clipstack-review" hostname="localhost" timestamp="1970-01-01T00:00:00" time="0"';
  return [
    `<testsuite id="${id}" name="${attribute(name)}" ${counts} ${constants}>`,
    "<properties/>",
    ...cases,
    `<system-out>${output}</system-out>`,
    "<system-err/>",
    "</testsuite>",
  ];
}

function testCase(stack: string, finding: RuleFinding): string {
  const { rule, severity, address, message, fix } = finding;
  const skipped = skipReason(finding);
  const content =
    skipped === undefined
      ? `<failure type="${severity}" message="${attribute(message)}">Fix: ${attribute(fix)}</failure>`
      : `<skipped message="${attribute(`${skipped}: ${message}`)}"/>`;
  return `<testcase classname="${rule}" name="${attribute(address ?? stack)}" time="0">${content}</testcase>`;
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
