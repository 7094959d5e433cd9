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
import { batchSizesUpTo, benchBatchSizes } from "../../contract/model-config.ts";
import type { Check } from "./check.ts";

export const batchesCheck: Check = {
  name: "batches",
  question: "Are batches answered completely and in order?",
  passes: {
    simulation: `batches of ${benchBatchSizes.join(", ")} images, as far as the model allows them, return the embedding of each image in order`,
    deployed: "as in the simulation",
  },
  sendsRequests: true,
  runService: (service, { reference }) => checkBatches(service, reference),
};

/** Sends batches of every size: as many rows as images, each row the embedding of its image. */
export function checkBatches(
  service: ServiceUnderTest,
  reference: Reference,
): Promise<readonly CheckResult[]> {
  return checkEachEndpoint(service, "batches", async (target) => {
    const measured: Record<string, number> = {};
    const sizes = batchSizesUpTo(target.spec.batching.maximum);
    for (const size of sizes) {
      const images = cycle(reference, target.spec, size);
      const startedAt = performance.now();
      const rows = await embeddingsOf(service, target, images);
      measured[`batch${size}Ms`] = Math.round((performance.now() - startedAt) * 10) / 10;
      if (rows.length !== size)
        throw new Error(`batch of ${size}: must return ${size} embeddings, got ${rows.length}`);
      rows.forEach((row, i) => {
        const similarity = cosine(unit(row), images[i]?.embedding ?? []);
        if (similarity >= parityLimits.cosineAtLeast) return;
        throw new Error(
          `batch of ${size}: row ${i} must be the embedding of its image, got cosine ${similarity.toFixed(6)}`,
        );
      });
    }
    return { message: `batches of ${sizes.join(", ")}`, measured };
  });
}
