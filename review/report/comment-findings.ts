import { gapTexts } from "../changes/coverage.ts";
import type { Exposure } from "../changes/exposure.ts";
import type { StackReview } from "../changes/stack-review.ts";
import type { RuleFinding } from "../input/change.ts";
import {
  type Block,
  details,
  gapItems,
  heading,
  type Level,
  list,
  listOf,
  plural,
  type Span,
  type Text,
} from "./comment-blocks.ts";

/** Ports, privileges and permissions; unless `level` is `full`, unchanged ones are counted. */
export function exposureSection(stacks: readonly StackReview[], level: Level): readonly Block[] {
  const exposed = stacks.flatMap(({ stack, exposures }) =>
    exposures.map((exposure) => ({ stack, ...exposure })),
  );
  const gaps = listOf(gapItems(stacks, "exposure"));
  const [first] = exposed;
  if (first === undefined) return [heading(3, "Exposure"), noExposure(stacks), ...gaps];
  const of = (status: Exposure["status"]) => exposed.filter((it) => it.status === status);
  const named = level === "counts" ? [] : [...of("new"), ...of("removed")];
  const row = ({ stack, status, name, description }: typeof first): readonly Text[] => [
    [status === "unchanged" ? status : { strong: status }],
    [{ code: stack }],
    [{ code: name }],
    [description],
  ];
  const rows = (level === "full" ? [...named, ...of("unchanged")] : named).map(row);
  const counts = (["new", "removed", "unchanged"] as const)
    .map((status) => `${of(status).length} ${status}`)
    .join(", ");
  return [
    heading(3, "Exposure"),
    ...(rows.length === 0
      ? []
      : [
          {
            kind: "table" as const,
            head: [["status"], ["stack"], ["service"], ["exposure"]],
            rows,
          },
        ]),
    ...(level === "full" ? [] : [list([[counts]])]),
    ...gaps,
  ];
}

function noExposure(stacks: readonly StackReview[]): Block {
  const examined = stacks.reduce((sum, { coverage: { resources, unexamined } }) => {
    return sum + resources - unexamined.filter((it) => it.topics.includes("exposure")).length;
  }, 0);
  const text =
    examined === 0
      ? "No resource was examined for exposure."
      : `None of the ${examined} resources examined publishes a port beyond loopback or its cluster, is privileged, or runs as root (deployment steps are ignored).`;
  return { kind: "text", text: [text] };
}

const severityMarks = { error: "⛔ error", warning: "⚠️ warning", note: "note" } as const;

/** Lists the findings of rules that the change causes. Earlier findings are collapsed; unless `level` is `full`, they are only counted. */
export function ruleSection(
  stacks: readonly StackReview[],
  level: Level,
  rulesUrl: string | undefined,
): readonly Block[] {
  const findings = stacks.flatMap((stack) => stack.findings);
  if (findings.length === 0) return [];
  const open = findings.filter(({ waived }) => waived === undefined);
  const of = (severity: RuleFinding["severity"]) =>
    open.filter((it) => it.severity === severity && (severity === "note" || !it.existing));
  const fresh = [...of("error"), ...of("warning")];
  const old = open.filter(({ severity, existing }) => severity !== "note" && existing);
  const notes = of("note");
  const waived = findings.filter((it) => it.waived !== undefined);
  const others: readonly (readonly [readonly RuleFinding[], string, string])[] = [
    [old, `${plural(old.length, "existing violation")}, not caused by this change`, "how to fix"],
    [notes, plural(notes.length, "note"), "how to fix"],
    [waived, `${plural(waived.length, "waived finding")}`, "reason"],
  ];
  const nonEmpty = others.filter(([list]) => list.length > 0);
  const table = (list: readonly RuleFinding[], lastColumn: string) =>
    findingTable(list, lastColumn, rulesUrl);
  const counts = `${plural(of("error").length, "error")}, ${plural(of("warning").length, "warning")} of this change`;
  return [
    heading(3, "Rules"),
    ...(fresh.length === 0
      ? [{ kind: "text" as const, text: ["This change violates no rule."] }]
      : level === "counts"
        ? [list([[counts]])]
        : [table(fresh, "how to fix")]),
    ...(level === "full"
      ? nonEmpty.map(([list, summary, last]) => details(summary, [table(list, last)]))
      : listOf(nonEmpty.map(([, summary]) => [summary]))),
    ...listOf(ruleGaps(stacks)),
  ];
}

function findingTable(
  findings: readonly RuleFinding[],
  lastColumn: string,
  rulesUrl: string | undefined,
): Block {
  const rule = (id: string): Span =>
    rulesUrl === undefined ? { code: id } : { link: `${rulesUrl}${id}.md`, text: id };
  const resource = ({ stack, address }: RuleFinding) =>
    address === undefined ? stack : `${stack}: ${address}`;
  return {
    kind: "table",
    head: [["severity"], ["rule"], ["resource"], ["finding"], [lastColumn]],
    rows: findings.map((finding) => [
      [severityMarks[finding.severity]],
      [rule(finding.rule)],
      [{ code: resource(finding) }],
      [finding.message],
      [finding.waived ?? finding.fix],
    ]),
  };
}

function ruleGaps(stacks: readonly StackReview[]): readonly Text[] {
  const all = stacks.flatMap(({ coverage }) =>
    coverage.unexamined.filter(({ topics }) => topics.includes("impact")),
  );
  return gapTexts(
    all,
    undefined,
    (count) => `${count === 1 ? "is" : "are"} covered only by the rules of pack core`,
  ).map((text) => [text]);
}

export function driftSection(stacks: readonly StackReview[], level: Level): readonly Block[] {
  const drifts = stacks.flatMap(({ stack, drift }) => drift.map((it) => ({ stack, ...it })));
  // the table of counts includes drift
  if (drifts.length === 0 || level === "counts") return [];
  const paths = ({ diffs }: (typeof drifts)[number]) =>
    diffs.flatMap(({ lines }) => lines.map(({ path }) => path)).slice(0, 6);
  return [
    heading(3, "Changed outside of Terraform"),
    list(
      drifts.map(
        (drift): Text => [
          { strong: drift.action === "delete" ? "deleted" : "changed" },
          " ",
          { code: `${drift.stack}: ${drift.address}` },
          ...(drift.diffs.length === 0 ? [] : [`: ${paths(drift).join(", ")}`]),
        ],
      ),
    ),
  ];
}

export function limitationSection(stacks: readonly StackReview[], level: Level): readonly Block[] {
  const from = (source: StackReview["source"]) => stacks.filter((it) => it.source === source);
  const ofSynthesis = [...new Set(from("synthesis").flatMap(({ limitations }) => limitations))];
  const ofPlans = from("plan").flatMap(({ stack, limitations }) =>
    limitations.map((line) => `${stack}: ${line}`),
  );
  const count = level === "full" ? ofPlans.length : maxLines;
  return [
    ...(ofSynthesis.length === 0
      ? []
      : [
          details("Visible only in a plan", [
            list(ofSynthesis.slice(0, maxLines).map((line) => [line])),
          ]),
        ]),
    ...listOf(
      ofPlans.slice(0, count).map((line) => [line]),
      ofPlans.length - count,
    ),
  ];
}

const maxLines = 20;
