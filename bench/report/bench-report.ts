import { newSection, type Report } from "../../report/document/document.ts";
import { warningText } from "../../target/subject/subject-caveats.ts";
import type { BenchRecord } from "../record/bench-record.ts";
import { caveatsOf } from "./caveats.ts";
import { sectionsOf } from "./sections.ts";
import { sloSections } from "./slo-section.ts";
import { allFacts, headFacts } from "./subject.ts";
import { inTexts, isOfTexts } from "./text-items.ts";
import { tuneSection, tuneVerdict } from "./tune-section.ts";
import { verdictOf } from "./verdict.ts";

/** Report of a benchmark or sweep: recommendations first, then the evidence. */
export function benchReport(record: BenchRecord): Report {
  return isOfTexts(record) ? inTexts(reportOf(record)) : reportOf(record);
}

function reportOf(record: BenchRecord): Report {
  const verdict = verdictOf(record);
  const warning = warningText(caveatsOf(record));
  const { passed, studies, failures, tune } = record;
  return {
    title: tune !== undefined ? "Tune" : studies.length > 0 ? "Sweep" : "Bench",
    verdict: tune === undefined ? verdict.headline : tuneVerdict(record, tune),
    tone: !passed ? "bad" : warning === "" ? "good" : "care",
    ...(warning === "" ? {} : { warning }),
    facts: headFacts(record),
    failures: failures.map((text) => ({ text })),
    caveats: caveatsOf(record),
    summary:
      tune !== undefined
        ? [tuneSection(record, tune)]
        : [
            ...(verdict.choices.length === 0
              ? []
              : [newSection("choose", "Recommendations", { cards: verdict.choices })]),
            ...sloSections(record, verdict.sloChoices),
          ],
    sections: sectionsOf(record).map((section) =>
      section.id === "loads" && tune === undefined ? { ...section, terminal: true } : section,
    ),
    subject: allFacts(record),
  };
}
