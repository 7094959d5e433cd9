import type { Card, Failure, Report, Section } from "../document/document.ts";
import { aligned, textTable } from "./text-table.ts";

/** Renders a report for a terminal: facts, summary, limitations, failures, and the verdict last. */
export function renderText(report: Report): string {
  const caveats = report.caveats.filter(({ kind }) => kind !== "know");
  return `${[
    aligned(report.facts, () => "left"),
    ...report.sections.filter(({ terminal }) => terminal).map(sectionText),
    ...report.summary.map(sectionText),
    caveats.map(({ title, text }) => bare(`! ${title}: ${text}`)).join("\n"),
    report.failures.map(failureText).join("\n"),
    `${bare(report.verdict)}.`,
  ]
    .filter((part) => part !== "")
    .join("\n\n")}\n`;
}

function sectionText({ title, answer, cards = [], tables, notes }: Section): string {
  const filled = tables.filter(({ rows }) => rows.length > 0);
  if (answer.length + cards.length + filled.length + notes.length === 0) return "";
  const chosen = cards.flatMap(({ title: goal, choice, value, unit, setting }) =>
    choice === undefined ? [] : [[goal, choice, `${value} ${unit}`, setting]],
  );
  return [
    title,
    answer.map(bare).join("\n"),
    aligned(chosen, () => "left"),
    cards.map(reasons).join("\n"),
    ...filled.map(textTable),
    notes.map(bare).join("\n"),
  ]
    .filter((part) => part !== "")
    .join("\n\n");
}

function reasons({ title, choice, why, doubts }: Card): string {
  const sentences = choice === undefined ? why : [...why.slice(0, 2), ...doubts];
  return bare(`${title}: ${sentences.join(" ")}`);
}

function failureText({ title, text, resource, log = [] }: Failure): string {
  const head = [title, resource].filter((part) => part !== undefined);
  return [`✗ ${[...head, text].join(": ")}`, ...log.map((line) => `    ${line}`)].join("\n");
}

const bare = (text: string) => text.replaceAll("`", "");
