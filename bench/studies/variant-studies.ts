import type { Conditions } from "../record/bench-record.ts";
import type { EnvironmentRun, StudyRun } from "./study.ts";

/** One deployment of an environment, with its number of GPUs and topology. */
export interface Variant {
  readonly conditions: Required<Pick<Conditions, "gpus" | "topology">>;
  readonly run: StudyRun;
}

export async function measureVariants(
  study: "scaling" | "topology",
  { environment, record, needed, requireOffered, open }: EnvironmentRun,
  measure: (variant: Variant) => Promise<void>,
): Promise<void> {
  requireOffered();
  const { variants, notes } = await environment.variants(study, needed);
  record.studies.push({ study, environment: environment.name, notes: [...notes] });
  for (const { conditions, source } of variants) {
    await open(source, (run) => measure({ run, conditions }));
  }
}
