import type { BenchRecord } from "../record/bench-record.ts";
import { caveatsOf, warningText } from "./caveats.ts";
import {
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
import { inTexts, isOfTexts } from "./text-items.ts";
import { type Verdict, verdictOf } from "./verdict.ts";

/** Report of a benchmark or sweep: recommendations first, then the evidence. */
export function benchReport(record: BenchRecord): Report {
  return isOfTexts(record) ? inTexts(reportOf(record)) : reportOf(record);
}

function reportOf(record: BenchRecord): Report {
  const verdict = verdictOf(record);
  const warning = warningText(record);
  const { passed, studies, failures } = record;
  const recommendations: Section = {
    id: "choose",
    title: "Recommendations",
    answer: [],
    cards: verdict.choices,
    figures: [],
    tables: [],
    notes: [],
  };
  return {
    title: studies.length > 0 ? "Sweep" : "Bench",
    verdict: verdict.headline,
    tone: !passed ? "bad" : warning === "" ? "good" : "care",
    ...(warning === "" ? {} : { warning }),
    facts: headFacts(record),
    failures: failures.map((text) => ({ text })),
    caveats: caveatsOf(record),
    summary: [...(verdict.choices.length === 0 ? [] : [recommendations]), ...sloSections(verdict)],
    sections: sectionsOf(record).map((section) =>
      section.id === "loads" ? { ...section, terminal: true } : section,
    ),
    subject: allFacts(record),
  };
}

function sloSections({ sloChoices }: Verdict): readonly Section[] {
  if (sloChoices.length === 0) return [];
  const table = tableOf("Load point with the highest throughput within each SLO", sloChoices, [
    numberField(
      "p95 SLO",
      ({ sloMs }) => sloMs,
      (sloMs) => `${sloMs} ms`,
    ),
    textField("endpoint", ({ name }) => name),
    textField("load", ({ point }) => settingText(point)),
    numberField("images/s", ({ point }) => point.imagesPerSecond, formatRate),
    numberField("p95 ms", ({ point }) => point.latencyMs?.p95, formatMs),
  ]);
  return [tableSection("slos", "Highest throughput within a p95 SLO", table)];
}
