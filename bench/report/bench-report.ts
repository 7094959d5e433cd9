import type { BenchRecord } from "../src/bench-record.ts";
import { caveatsOf, warningText } from "./caveats.ts";
import { settingText } from "./cells.ts";
import {
  type Card,
  formatMs,
  formatRate,
  numberCell,
  numberColumn,
  type Report,
  type Section,
  tableSection,
  textCell,
  textColumn,
} from "./document.ts";
import { sectionsOf } from "./sections.ts";
import { allFacts, headFacts } from "./subject.ts";
import { type Choice, type Verdict, verdictOf } from "./verdict.ts";

/** Report of a benchmark or sweep: recommendations first, then the evidence. */
export function benchReport(record: BenchRecord): Report {
  const verdict = verdictOf(record);
  const warning = warningText(record);
  const { passed, studies, failures } = record;
  return {
    title: studies.length > 0 ? "Sweep" : "Bench",
    verdict: verdict.headline,
    tone: !passed ? "bad" : warning === "" ? "good" : "care",
    ...(warning === "" ? {} : { warning }),
    facts: headFacts(record),
    failures: failures.map((text) => ({ text })),
    caveats: caveatsOf(record),
    summary: [choiceSection(verdict.choices), ...limitSections(verdict)],
    sections: sectionsOf(record).map((section) =>
      section.id === "loads" ? { ...section, terminal: true } : section,
    ),
    subject: allFacts(record),
  };
}

function choiceSection(choices: readonly Choice[]): Section {
  const cards = choices.map(({ winner, ...choice }): Card => ({ ...choice, choice: winner?.name }));
  return {
    id: "choose",
    title: "What to choose",
    answer: [],
    cards,
    figures: [],
    tables: [],
    notes: [],
  };
}

function limitSections({ limits }: Verdict): readonly Section[] {
  if (limits.length === 0) return [];
  const columns = [
    numberColumn("p95 at most"),
    textColumn("choose"),
    textColumn("load"),
    numberColumn("images/s"),
    numberColumn("its p95 ms"),
  ];
  const rows = limits.map(({ limitMs, name, cell }) => [
    { text: `${limitMs} ms`, sort: limitMs },
    textCell(name),
    textCell(settingText(cell)),
    numberCell(cell.imagesPerSecond, formatRate),
    numberCell(cell.latencyMs?.p95, formatMs),
  ]);
  const caption = "Highest throughput whose p95 stays within a limit";
  return [tableSection("limits", "If latency is limited", { caption, columns, rows })];
}
