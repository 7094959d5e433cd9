import { newSection, type Section } from "../../report/document/document.ts";
import type { BenchRecord } from "../record/bench-record.ts";
import { type StudyId, studyQuestions } from "../record/study-result.ts";
import { scaling, topology } from "./gpu-study-sections.ts";
import { queueDelay } from "./load-study-sections.ts";
import { coldStart, memory } from "./process-study-sections.ts";
import { protocol } from "./protocol-section.ts";
import { type StudyBody, studyNotes } from "./study-section.ts";

interface StudySection {
  readonly title: string;
  /** Contents of the section; `undefined` if the record has no results. */
  readonly body: (record: BenchRecord) => StudyBody | undefined;
}

/** Sections in their order; `batch` and `concurrency` are sections of every benchmark. */
const studies: Readonly<Record<Exclude<StudyId, "batch" | "concurrency">, StudySection>> = {
  "cold-start": { title: "Cold start", body: coldStart },
  "queue-delay": { title: "Queue delay of the batcher", body: queueDelay },
  protocol: { title: "gRPC compared with HTTP", body: protocol },
  memory: { title: "Memory", body: memory },
  scaling: { title: "Scaling across GPUs", body: scaling },
  topology: { title: "GPU topology", body: topology },
};

export function studySections(record: BenchRecord): readonly Section[] {
  return (Object.keys(studies) as (keyof typeof studies)[]).flatMap((study) => {
    const { title, body } = studies[study];
    const hasRun = record.studies.some((result) => result.study === study);
    const content = body(record) ?? (hasRun ? { answer: ["No result."], tables: [] } : undefined);
    if (content === undefined) return [];
    return [
      newSection(study, title, {
        question: studyQuestions[study],
        ...content,
        notes: studyNotes(record, study),
      }),
    ];
  });
}
