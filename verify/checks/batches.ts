import type { CheckResult } from "../../bench/record/record.ts";
import { unit } from "../../bench/run/infer.ts";
import { parityLimits } from "../../bench/run/parity.ts";
import { cycle, type Reference } from "../../bench/run/reference.ts";
import {
  checkEachEndpoint,
  embeddingsOf,
  type ServiceUnderTest,
} from "../../bench/run/service-under-test.ts";
import { cosine } from "../../bench/stats/statistics.ts";
import { benchBatchSizes } from "../../contract/model-config.ts";

/** Batches of every size: as many rows as images, each row the embedding of its image. */
export function checkBatches(
  service: ServiceUnderTest,
  reference: Reference,
): Promise<readonly CheckResult[]> {
  return checkEachEndpoint(service, "batches", async (target) => {
    const measured: Record<string, number> = {};
    for (const size of benchBatchSizes) {
      const images = cycle(reference, size);
      const startedAt = performance.now();
      const rows = await embeddingsOf(service, target, images);
      measured[`batch${size}Ms`] = Math.round((performance.now() - startedAt) * 10) / 10;
      if (rows.length !== size) throw new Error(`batch of ${size}: got ${rows.length} embeddings`);
      rows.forEach((row, i) => {
        const similarity = cosine(unit(row), images[i]?.embedding ?? []);
        if (similarity >= parityLimits.cosineAtLeast) return;
        throw new Error(
          `batch of ${size}: row ${i} is not the embedding of its image (cosine ${similarity.toFixed(6)})`,
        );
      });
    }
    return { message: `batches of ${benchBatchSizes.join(", ")}`, measured };
  });
}
