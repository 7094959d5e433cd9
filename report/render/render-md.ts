import type { Card, DataTable, Fact, Failure, Report, Section } from "../document/document.ts";
import { counted, listed } from "../document/number-format.ts";
import { escapeInline, escapeMarkdown, markdownTable, tableOf } from "./markdown.ts";

/** Maximum length in characters; GitHub rejects longer comments. */
const longest = 65_000;

/** Renders a report as Markdown for a pull request: verdict, failures, summary and caveats, then evidence as far as it fits. */
export function renderMarkdown(report: Report): string {
  const { failures, warning, caveats } = report;
  const blocks = [
    `## ${report.title}: ${escapeInline(report.verdict)}`,
    failures.length === 0 ? "" : `### Failures\n\n${failures.map(failureItem).join("\n")}`,
    warning === undefined ? "" : `> [!WARNING]\n> ${escapeMarkdown(warning)}.`,
    ...report.summary.map((section) => sectionBlock(section, section.notes)),
    caveats.length === 0
      ? ""
      : `### Limitations\n\n${caveats
          .map(({ title, text }) => `- **${escapeMarkdown(title)}**: ${escapeInline(text)}`)
          .join("\n")}`,
  ];
  const end = [
    factList(report.facts),
    report.subject.length === 0
      ? ""
      : `<details><summary>System under test</summary>\n\n${factList(report.subject)}\n\n</details>`,
  ];
  let length = [...blocks, ...end].join("\n\n").length;
  const omitted: string[] = [];
  for (const section of report.sections) {
    const block = sectionBlock(section);
    if (length + block.length > longest) {
      omitted.push(section.title);
      continue;
    }
    length += block.length + 2;
    blocks.push(block);
  }
  if (omitted.length > 0)
    blocks.push(`Omitted because of the length limit: ${listed(omitted)}. See the HTML report.`);
  return `${[...blocks, ...end].filter((block) => block !== "").join("\n\n")}\n`;
}

const factList = (facts: readonly Fact[]) =>
  facts.map(([name, value]) => `- ${escapeMarkdown(name)}: ${escapeMarkdown(value)}`).join("\n");

function failureItem({ title, text, resource, log }: Failure): string {
  const head = title === undefined ? "" : `**${escapeMarkdown(title)}**: `;
  const where = resource === undefined ? "" : ` (\`${resource}\`)`;
  const lines =
    log === undefined
      ? ""
      : `\n\n  \`\`\`text\n${log.map((line) => `  ${line}`).join("\n")}\n  \`\`\``;
  return `- ${head}${escapeMarkdown(text)}${where}${lines}`;
}

function sectionBlock(section: Section, notes: readonly string[] = []): string {
  const { title, question, answer, cards = [], tables } = section;
  const inlineTables = tables.filter(
    ({ isReference, rows }) => isReference !== true && rows.length > 0,
  );
  if (answer.length + cards.length + inlineTables.length + notes.length === 0) return "";
  return [
    `### ${title}`,
    question ?? "",
    answer.length === 1
      ? escapeInline(answer[0] ?? "")
      : answer.map((line) => `- ${escapeInline(line)}`).join("\n"),
    ...(cards.length === 0 ? [] : [cardTable(cards), cards.map(reasons).join("\n")]),
    ...inlineTables.map(foldedTable),
    ...notes.map(escapeInline),
  ]
    .filter((part) => part !== "")
    .join("\n\n");
}

function cardTable(cards: readonly Card[]): string {
  return tableOf(
    ["goal", "endpoint", "result", "load"],
    cards.map(({ title, choice, doubts, value, unit, setting }) =>
      choice === undefined
        ? [title, "–", "–", ""]
        : [
            title,
            `\`${choice}\`${doubts.length > 0 ? " ⚠" : ""}`,
            `${value} ${unit}`,
            escapeMarkdown(setting),
          ],
    ),
  );
}

function reasons({ title, why, ties, doubts }: Card): string {
  const also =
    ties.length === 0 ? [] : [`Within the noise: ${listed(ties.map((it) => `\`${it}\``))}.`];
  const sentences = [...why.slice(0, 2), ...also].map(escapeInline);
  return `- ${title}: ${[...sentences, ...doubts.map((doubt) => `**${escapeMarkdown(doubt)}**`)].join(" ")}`;
}

/** Maximum number of rows of a table that is not collapsed. */
const shortTable = 12;

function foldedTable(table: DataTable): string {
  const text = markdownTable(table);
  return table.rows.length <= shortTable
    ? text
    : `<details><summary>${table.caption}: ${counted(table.rows.length, "row")}</summary>\n\n${text}\n\n</details>`;
}
