import type { Path } from "../input/change.ts";
import type { Example, ExampleEdit, ReviewRule } from "./rule.ts";
import { type RulePack, rulePacks } from "./rules.ts";

const rendered =
  "<!-- Rendered by `npm run render` from review/rules/. Do not edit: change the rule. -->";

/** `contract/rule-ids.ts`: rule ids as data, because settings accept them in waivers but must not load the rules. */
export function ruleIdFile(): { readonly path: string; readonly text: string } {
  const ids = rulePacks.flatMap(({ title, rules }) => [
    `  // ${title}`,
    ...rules.map(({ id }) => `  "${id}",`),
  ]);
  const text = `// Rendered by 'npm run render' from review/rules/. Do not edit: change the rule.

/** Ids of all review rules, by pack. */
export const ruleIds = [
${ids.join("\n")}
] as const;
export type RuleId = (typeof ruleIds)[number];
`;
  return { path: "contract/rule-ids.ts", text };
}

/** `docs/rules/`: one page per rule and an overview, rendered from the rules and the examples that their tests run. */
export function rulePages(): readonly { readonly path: string; readonly text: string }[] {
  const page = (name: string, lines: readonly string[]) => ({
    path: `docs/rules/${name}.md`,
    text: `${[rendered, "", ...lines].join("\n")}\n`,
  });
  return [
    page("README", overview()),
    ...rulePacks.flatMap((pack) => pack.rules.map((rule) => page(rule.id, rulePage(rule, pack)))),
  ];
}

function overview(): readonly string[] {
  const all = rulePacks.flatMap(({ rules }) => rules);
  const count = (severity: ReviewRule["severity"]) =>
    all.filter((rule) => rule.severity === severity).length;
  return [
    "# Rules of a review",
    "",
    `\`clipstack review\` checks ${all.length} rules, on a plan or on two synthesized folders ([reviewing a change](../review.md)).`,
    "Rules examine the complete stack after the change. Findings that existed before it are marked.",
    "",
    "| severity | rules | |",
    "| --- | --- | --- |",
    `| error | ${count("error")} | blocks the change unless it already existed: exit code 1 |`,
    `| warning | ${count("warning")} | needs attention |`,
    `| note | ${count("note")} | for information |`,
    "",
    "Synthesis already rejects many of these mistakes in settings. The rules also find them in overrides, manually edited files and",
    "plans of other projects.",
    "",
    ...rulePacks.flatMap(({ title, rules }) => [
      `## ${title}`,
      "",
      "| rule | severity | requirement |",
      "| --- | --- | --- |",
      ...rules.map((rule) => `| [${rule.id}](${rule.id}.md) | ${rule.severity} | ${rule.title} |`),
      "",
    ]),
    "## Waivers",
    "",
    "To accept a finding temporarily, add a waiver to the settings of its environment, with a reason and its last valid day. Reviews",
    "list waived findings with their reasons.",
    "",
    ...waiverExample("image-digest", "single-gpu", "single-gpu/host/triton-image"),
    "",
    "Without an `address`, a waiver covers all findings of the rule in the environment; with a construct path, all findings in that",
    "construct. Expired waivers ([waiver-expired](waiver-expired.md)) and unused ones ([waiver-unused](waiver-unused.md)) are reported.",
    "",
    "Some rules compare the stack before and after, such as [volume-lost](volume-lost.md) and [state-moved](state-moved.md). Their",
    "findings disappear once the change is applied: add the waiver in the same pull request, and remove it when the next review",
    "reports it as unused.",
    "",
    "## Adding a rule",
    "",
    "A rule is a `rule({ … })` entry in a list of `review/rules/`, such as `containerRules` in `containers.ts`. Its example is a shipped stack",
    "with a failing and a passing edit; `rules.test.ts` runs both. Further cases belong in `cases.test.ts`. `npm run render` writes the page of",
    "the rule and adds its id to `contract/rule-ids.ts`; neither is edited by hand. The lists of a new file are registered in `rules.ts`.",
    "",
    "## Other policy engines",
    "",
    "checkov, trivy, kube-linter and conftest provide hundreds of general rules:",
    "[running them on the same output](../policy-engines.md).",
  ];
}

function rulePage(rule: ReviewRule, pack: RulePack): readonly string[] {
  const { id, severity, title, rationale, inputs, fix, example } = rule;
  return [
    `# ${id}`,
    "",
    `**${severity}** · ${pack.title} · ${title}`,
    "",
    "## Rationale",
    "",
    rationale,
    "",
    "## Examined",
    "",
    inputs,
    "",
    "## Example",
    "",
    ...exampleLines(example),
    "## Fix",
    "",
    sentence(fix),
    "",
    "## Waiver",
    "",
    ...waiverExample(id, example.stack, constructOf(example)),
    "",
    "[All rules](README.md)",
  ];
}

function exampleLines({
  stack,
  settings,
  edits,
  goals,
  drift,
  message,
}: Example): readonly string[] {
  const goal =
    goals?.p99Milliseconds === undefined
      ? []
      : [`review: { p99GoalMilliseconds: ${goals.p99Milliseconds} }`];
  const yaml = [...(settings === undefined ? [] : [settings]), ...goal];
  return [
    ...(yaml.length === 0
      ? []
      : [`With these settings of \`${stack}\`:`, "", "```yaml", ...yaml, "```", ""]),
    ...edits.flatMap((edit) => editLines(stack, edit)),
    ...(drift ? [`Fails: a plan of \`${stack}\` that reports a changed container.`, ""] : []),
    ...(drift ? ["Passes: a plan without drift.", ""] : []),
    "Finding:",
    "",
    "```text",
    message,
    "```",
    "",
  ];
}

function editLines(stack: string, edit: ExampleEdit): readonly string[] {
  const location = [`In ${locationText(stack, edit.path)}:`, ""];
  if ("failingText" in edit) {
    return [
      ...location,
      ...textLines("Fails", edit.failingText),
      ...textLines("Passes", edit.passingText),
    ];
  }
  return [
    ...location,
    ...valueLines("Fails", edit.failing),
    ...("passing" in edit
      ? valueLines("Passes", edit.passing)
      : ["Passes: the stack with its defaults (`npm run synth`).", ""]),
  ];
}

function valueLines(word: string, value: unknown): readonly string[] {
  return value === undefined
    ? [`${word}: without it.`, ""]
    : [`${word}:`, "", "```json", JSON.stringify(value, null, 2), "```", ""];
}

function textLines(word: string, text: string): readonly string[] {
  return [`${word}, with:`, "", "```text", text, "```", ""];
}

/** `` `read_only` of `docker_container` `single-gpu/embed/container` ``. */
function locationText(stack: string, path: Path): string {
  const [head, type, construct, ...rest] = path;
  if (head !== "resource" || construct === undefined) {
    return `\`${path.join(".")}\` of \`${stack}\``;
  }
  const resource = `\`${String(type)}\` \`${stack}/${String(construct)}\``;
  return rest.length === 0 ? resource : `\`${rest.join(".")}\` of ${resource}`;
}

/** Path of the construct that an example edits, for its waiver. */
export function constructOf({ stack, edits: [edit] }: Example): string | undefined {
  const [head, , construct] = edit?.path ?? [];
  return head === "resource" && construct !== undefined
    ? `${stack}/${String(construct).split("/")[0]}`
    : undefined;
}

function waiverExample(rule: string, stack: string, address?: string): readonly string[] {
  return [
    "```yaml",
    `# environments/${stack}.yaml`,
    "review:",
    "  waivers:",
    `    - rule: ${rule}`,
    ...(address === undefined ? [] : [`      address: ${address}`]),
    "      reason: one line that explains the exception to reviewers",
    "      expires: 2027-01-31",
    "```",
  ];
}

function sentence(text: string): string {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
}
