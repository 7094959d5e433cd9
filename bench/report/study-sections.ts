import type { BenchRecord } from "../record/bench-record.ts";
import { type StudyId, studyQuestions } from "../record/study-result.ts";
import type { Section } from "./document.ts";
import { scaling, topology } from "./gpu-study-sections.ts";
import { link, protocol, queueDelay, serialization } from "./load-study-sections.ts";
import { coldStart, memory, operators } from "./process-study-sections.ts";
import { type StudyBody, studyNotes } from "./study-section.ts";

const bodies: Readonly<
  Partial<Record<StudyId, (record: BenchRecord, study: StudyId) => StudyBody | undefined>>
> = {
  "cold-start": coldStart,
  "queue-delay": queueDelay,
  protocol,
  serialization,
  link,
  operators,
  memory,
  scaling,
  topology,
};

const titles: Readonly<Partial<Record<StudyId, string>>> = {
  "cold-start": "Cold start",
  "queue-delay": "Queue delay of the batcher",
  protocol: "HTTP against gRPC",
  serialization: "JSON against binary tensors",
  link: "Through a slower link",
  operators: "Operators of the model",
  memory: "Memory",
  scaling: "Several GPUs",
  topology: "One Triton over all GPUs, or one for each",
};

export function studySections(record: BenchRecord): readonly Section[] {
  return (Object.keys(bodies) as StudyId[]).flatMap((study) => {
    const notes = studyNotes(record, study);
    const asked = record.studies.some((it) => it.study === study);
    const body =
      bodies[study]?.(record, study) ??
      (asked ? { answer: ["Nothing was measured that answers it."], tables: [] } : undefined);
    if (body === undefined) return [];
    return [
      {
        id: study,
        title: titles[study] ?? study,
        question: studyQuestions[study],
        answer: body.answer,
        figures: body.figures ?? [],
        tables: body.tables,
        notes: [...(body.notes ?? []), ...notes],
      },
    ];
  });
}
