import type { BenchRecord } from "../src/bench-record.ts";
import { caveatsOf, warningText } from "./caveats.ts";
import { pathOf, settingText } from "./cells.ts";
import {
  counted,
  type DataTable,
  formatDuration,
  formatMs,
  formatRate,
  listed,
  type Section,
} from "./document.ts";
import { inline, markdownTable, plain, tableOf } from "./markdown.ts";
import { sectionsOf } from "./sections.ts";
import { commitText, dateText, headFacts, placeText, secondsOf } from "./subject.ts";
import { type Choice, type Verdict, verdictOf } from "./verdict.ts";

/** GitHub refuses a longer comment. */
const longest = 65_000;

/** A record as Markdown, for a pull request: the answer first, then what limits it, then the evidence, as far as it fits. */
export function benchReportMarkdown(record: BenchRecord): string {
  const verdict = verdictOf(record);
  const warning = warningText(record);
  const blocks = [
    `## Bench: ${inline(verdict.headline)}`,
    `${plain(placeText(record))}, ${formatDuration(secondsOf(record))}, ${dateText(record.startedAt)} UTC, ${plain(commitText(record))}`,
    ...(record.failures.length === 0
      ? []
      : [`**Failed**\n\n${record.failures.map((line) => `- ${plain(line)}`).join("\n")}`]),
    ...(warning === "" ? [] : [`> [!WARNING]\n> ${plain(warning)}.`]),
    choicesTable(verdict.choices),
    verdict.choices.map((choice) => whyLine(choice)).join("\n"),
    ...limitsBlock(verdict),
    `### How to read this\n\n${caveatsOf(record)
      .map(({ title, text }) => `- **${plain(title)}**: ${inline(text)}`)
      .join("\n")}`,
  ];
  const end = headFacts(record)
    .map(([name, value]) => `- ${name}: ${plain(value)}`)
    .join("\n");
  let length = blocks.join("\n\n").length + end.length;
  const left: string[] = [];
  for (const section of sectionsOf(record)) {
    const block = sectionBlock(section);
    if (block === "") continue;
    if (length + block.length > longest) {
      left.push(section.title);
      continue;
    }
    length += block.length + 2;
    blocks.push(block);
  }
  if (left.length > 0) blocks.push(`Too long for here: ${listed(left)}. See the HTML report.`);
  return `${[...blocks, end].filter((block) => block !== "").join("\n\n")}\n`;
}

function choicesTable(choices: readonly Choice[]): string {
  return tableOf(
    ["goal", "choose", "figure", "with"],
    choices.map((choice) => [
      choice.title,
      choice.winner === undefined
        ? "–"
        : `\`${choice.winner.name}\`${choice.doubts.length > 0 ? " ⚠" : ""}`,
      choice.winner === undefined ? "–" : `${choice.value} ${choice.unit}`,
      plain(choice.setting),
    ]),
  );
}

function whyLine({ title, why, ties, doubts }: Choice): string {
  const also =
    ties.length === 0 ? [] : [`Within the noise: ${listed(ties.map((it) => `\`${it}\``))}.`];
  const sentences = [...why.slice(0, 2), ...also].map(inline);
  return `- ${title}: ${[...sentences, ...doubts.map((doubt) => `**${plain(doubt)}**`)].join(" ")}`;
}

function limitsBlock({ limits }: Verdict): readonly string[] {
  if (limits.length === 0) return [];
  return [
    `### The most within a limit of latency\n\n${tableOf(
      ["p95 at most", "choose", "load", "images/s"],
      limits.map(({ limitMs, cell }) => [
        `${limitMs} ms`,
        `\`${pathOf(cell)}\``,
        `${settingText(cell)} (p95 ${formatMs(cell.latencyMs?.p95 ?? 0)} ms)`,
        formatRate(cell.imagesPerSecond),
      ]),
    )}`,
  ];
}

function sectionBlock({ title, question, answer, tables }: Section): string {
  const shown = tables.filter(({ lookUp, rows }) => lookUp !== true && rows.length > 0);
  if (answer.length === 0 && shown.length === 0) return "";
  const said =
    answer.length === 1 ? answer.map(inline) : [answer.map((it) => `- ${inline(it)}`).join("\n")];
  return [
    `### ${title}`,
    ...(question === undefined ? [] : [question]),
    ...said,
    ...shown.map(foldedTable),
  ]
    .filter((it) => it !== "")
    .join("\n\n");
}

const shortTable = 12;

function foldedTable(table: DataTable): string {
  const text = markdownTable(table);
  return table.rows.length <= shortTable
    ? text
    : `<details><summary>${table.caption}: ${counted(table.rows.length, "row")}</summary>\n\n${text}\n\n</details>`;
}
