import { shuffled } from "../measure/shuffled.ts";
import type { Conditions } from "../record/bench-record.ts";
import type { EnvironmentRun, StudyRun } from "./study.ts";

/** One deployment of an environment, with its number of GPUs and topology. */
export interface Variant {
  readonly conditions: Required<Pick<Conditions, "gpus" | "topology">>;
  readonly run: StudyRun;
}

/** Measures every variant once in each round, in random order, so that drift of the machine does not favour one of them. */
export async function measureVariants(
  study: "scaling" | "topology",
  { environment, record, settings, needed, requireOffered, open }: EnvironmentRun,
  measure: (variant: Variant) => Promise<void>,
): Promise<void> {
  requireOffered();
  const { variants, notes } = await environment.variants(study, needed);
  record.studies.push({ study, environment: environment.name, notes: [...notes] });
  for (let round = 1; round <= settings.rounds; round++) {
    for (const { conditions, source } of shuffled(variants, settings.seed + round)) {
      await open(source, (run) => measure({ run, conditions }), round);
    }
  }
}
