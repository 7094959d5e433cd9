import type { BenchRecord } from "../record/bench-record.ts";
import { caveatsOf, warningText } from "./caveats.ts";
import {
  type Card,
  numberField,
  type Report,
  type Section,
  tableOf,
  tableSection,
  textField,
} from "./document.ts";
import { settingText } from "./load-points.ts";
import { formatMs, formatRate } from "./number-format.ts";
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

function limitSections({ sloChoices }: Verdict): readonly Section[] {
  if (sloChoices.length === 0) return [];
  const table = tableOf("Highest throughput whose p95 stays within a limit", sloChoices, [
    numberField(
      "p95 at most",
      ({ sloMs }) => sloMs,
      (sloMs) => `${sloMs} ms`,
    ),
    textField("choose", ({ name }) => name),
    textField("load", ({ point }) => settingText(point)),
    numberField("images/s", ({ point }) => point.imagesPerSecond, formatRate),
    numberField("its p95 ms", ({ point }) => point.latencyMs?.p95, formatMs),
  ]);
  return [tableSection("limits", "If latency is limited", table)];
}
