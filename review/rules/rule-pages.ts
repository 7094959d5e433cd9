import type { Path } from "../input/change.ts";
import type { Example, ExampleEdit, ReviewRule } from "./rule.ts";
import { type RulePack, rulePacks } from "./rules.ts";

/** Pages about the rules: all that they say of a rule is said by the rule, its example as its tests run it. */

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

/** `docs/rules/`: one page for each rule, and the list of all. */
export function rulePages(): readonly { readonly path: string; readonly text: string }[] {
  const page = (name: string, lines: readonly string[]) => ({
    path: `docs/rules/${name}.md`,
    text: `${[rendered, "", ...lines].join("\n")}\n`,
  });
  return [
    page("README", overview()),
    ...rulePacks.flatMap((family) =>
      family.rules.map((rule) => page(rule.id, rulePage(rule, family))),
    ),
  ];
}

function overview(): readonly string[] {
  const all = rulePacks.flatMap(({ rules }) => rules);
  const count = (severity: ReviewRule["severity"]) =>
    all.filter((rule) => rule.severity === severity).length;
  return [
    "# Rules of a review",
    "",
    `\`clipstack review\` checks ${all.length} rules, on a plan as on two synthesized trees ([how a review works](../review.md)). They look at`,
    "everything that is there after the change, and say of a finding whether it was there before.",
    "",
    "| severity | rules | |",
    "| --- | --- | --- |",
    `| error | ${count("error")} | blocks, unless it was there before: the review ends with exit code 1 |`,
    `| warning | ${count("warning")} | needs attention |`,
    `| note | ${count("note")} | for information |`,
    "",
    "Much of this is refused when the stacks are synthesized, in the words of the settings. The rules find it too where it comes",
    "from somewhere else: an override, a file edited by hand, a plan of another project.",
    "",
    ...rulePacks.flatMap(({ title, rules }) => [
      `## ${title}`,
      "",
      "| rule | severity | what must hold |",
      "| --- | --- | --- |",
      ...rules.map((rule) => `| [${rule.id}](${rule.id}.md) | ${rule.severity} | ${rule.title} |`),
      "",
    ]),
    "## Waivers",
    "",
    "A finding that may stay for a while is waived in the settings of its environment, with a reason and the last day on which",
    "the waiver holds. A review shows what is waived, and why.",
    "",
    ...waiverExample("image-digest", "single-gpu", "single-gpu/host/triton-image"),
    "",
    "Without an `address` the waiver covers whatever the rule finds in the environment; with the path of a construct, all that is",
    "in it. One that has ended is a finding ([waiver-expired](waiver-expired.md)), and one that covers nothing is noted",
    "([waiver-unused](waiver-unused.md)).",
    "",
    "## Other engines",
    "",
    "checkov, trivy, kube-linter and conftest have hundreds of rules that are not about embeddings on GPUs:",
    "[how to run them on the same output](../policy-engines.md).",
  ];
}

function rulePage(rule: ReviewRule, family: RulePack): readonly string[] {
  const { id, severity, title, rationale, inputs, fix, example } = rule;
  return [
    `# ${id}`,
    "",
    `**${severity}** · ${family.title} · ${title}`,
    "",
    "## Why",
    "",
    rationale,
    "",
    "## What it looks at",
    "",
    inputs,
    "",
    "## Example",
    "",
    ...exampleLines(example),
    "## How to fix it",
    "",
    sentence(fix),
    "",
    "## How to waive it",
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
    ...(drift ? [`Fails: a plan of \`${stack}\` that reports a container as changed.`, ""] : []),
    ...(drift ? ["Passes: one that reports nothing.", ""] : []),
    "The review says:",
    "",
    "```text",
    message,
    "```",
    "",
  ];
}

function editLines(stack: string, edit: ExampleEdit): readonly string[] {
  const place = placeOf(stack, edit.at);
  if ("failingText" in edit) {
    return [
      `In ${place}:`,
      "",
      ...textLines("Fails", edit.failingText),
      ...textLines("Passes", edit.passingText),
    ];
  }
  return [
    `In ${place}:`,
    "",
    ...valueLines("Fails", edit.failing, "without it"),
    ...("passing" in edit
      ? valueLines("Passes", edit.passing, "without it")
      : ["Passes: as the stack comes (`npm run synth`).", ""]),
  ];
}

function valueLines(word: string, value: unknown, absent: string): readonly string[] {
  return value === undefined
    ? [`${word}: ${absent}.`, ""]
    : [`${word}:`, "", "```json", JSON.stringify(value, null, 2), "```", ""];
}

function textLines(word: string, text: string): readonly string[] {
  return [`${word}, with:`, "", "```text", text, "```", ""];
}

/** `` `read_only` of `docker_container` `single-gpu/embed/container` ``. */
function placeOf(stack: string, path: Path): string {
  const [head, type, construct, ...rest] = path;
  if (head !== "resource" || construct === undefined) {
    return `\`${path.join(".")}\` of \`${stack}\``;
  }
  const resource = `\`${String(type)}\` \`${stack}/${String(construct)}\``;
  return rest.length === 0 ? resource : `\`${rest.join(".")}\` of ${resource}`;
}

/** Path of the construct that an example is about; it covers what the rule finds there. */
export function constructOf({ stack, edits: [edit] }: Example): string | undefined {
  const [head, , construct] = edit?.at ?? [];
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
    "      reason: one line, for whoever reads the review",
    "      expires: 2027-01-31",
    "```",
  ];
}

function sentence(text: string): string {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
}
