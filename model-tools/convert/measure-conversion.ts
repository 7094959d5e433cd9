import type { Modality, ModelSpec } from "../../contract/model-spec.ts";
import { neighbourAgreement } from "../check/accuracy.ts";
import { type Agreement, compareModels } from "../check/compare-models.ts";
import { openTower, type RunnableModel, type TowerInputs } from "../check/run-model.ts";

export type TowerInput = TowerInputs[Modality];

export interface Measured {
  readonly batch: number;
  readonly agreement: Agreement & { readonly nearestNeighbours: number };
  /** Speed relative to the original in each round. */
  readonly rounds: readonly number[];
}

interface MeasureOptions {
  readonly samples: readonly TowerInput[];
  readonly rounds: number;
  /** Lowest accepted cosine. */
  readonly limit: number;
  readonly onProgress: (line: string) => void;
}

type OpenModel = RunnableModel<Modality>;

/** @throws {Error} if a cosine is below the limit */
export async function measure(
  spec: ModelSpec,
  modality: Modality,
  files: readonly [original: string, variant: string],
  { samples, rounds, limit, onProgress }: MeasureOptions,
): Promise<readonly [Measured, ...Measured[]]> {
  const models: OpenModel[] = [];
  try {
    for (const path of files) models.push(await openTower(spec, modality, path));
    const [first, second] = models as [OpenModel, OpenModel];
    const measured: Measured[] = [];
    for (const batch of [1, spec.batching.maximum]) {
      onProgress(`comparing at batch ${batch} …`);
      const full = fullBatches(samples, batch);
      const [expected, actual] = [await first.embed(full, batch), await second.embed(full, batch)];
      const agreement = {
        ...compareModels(expected, actual),
        nearestNeighbours: neighbourAgreement(
          expected.slice(0, samples.length),
          actual.slice(0, samples.length),
        ),
      };
      if (!(agreement.minCosine >= limit)) {
        const got = `${agreement.minCosine.toFixed(7)} at batch ${batch}`;
        throw new Error(
          `the file was rejected: the lowest cosine to the original must be at least ${limit}, got ${got}`,
        );
      }
      const ratios = await race(first, second, full.slice(0, Math.max(batch, 8)), batch, rounds);
      measured.push({ batch, agreement, rounds: ratios });
    }
    return measured as [Measured, ...Measured[]];
  } finally {
    await Promise.all(models.map((model) => model.close()));
  }
}

/** Repeats samples at the end, so that every batch is full. */
function fullBatches<Sample>(samples: readonly Sample[], batch: number): readonly Sample[] {
  const count = Math.ceil(samples.length / batch) * batch;
  return Array.from({ length: count }, (_, index) => samples[index % samples.length]!);
}

/** Returns the time ratio of each round. The order alternates, so that other load on the machine affects both models. */
async function race(
  original: OpenModel,
  variant: OpenModel,
  samples: readonly TowerInput[],
  batch: number,
  rounds: number,
): Promise<readonly number[]> {
  const timeOf = async (model: OpenModel) => {
    const startedAt = performance.now();
    await model.embed(samples, batch);
    return performance.now() - startedAt;
  };
  const ratios: number[] = [];
  for (let round = 0; round < rounds; round++) {
    const first = round % 2 === 0;
    const before = first ? await timeOf(original) : 0;
    const variantMs = await timeOf(variant);
    ratios.push((first ? before : await timeOf(original)) / variantMs);
  }
  return ratios;
}
