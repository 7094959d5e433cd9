import type { CheckResult, VerifyTarget } from "../../bench/record/record.ts";
import { batchSizesUpTo } from "../../contract/model-config.ts";
import { parityLimits } from "../../target/reference/parity.ts";
import { cycle, type Reference } from "../../target/reference/reference.ts";
import { unit } from "../../target/requests/infer.ts";
import { embeddingsOf, type TargetService } from "../../target/service/target-service.ts";
import { cosine } from "../../target/stats/statistics.ts";
import type { Check } from "./check.ts";
import { checkEachEndpoint } from "./check-result.ts";

export const batchesCheck: Check = {
  name: "batches",
  question: "Are batches answered completely and in order?",
  sendsRequests: true,
  runService: (service, { reference, target }) => checkBatches(service, reference, target),
};

/** Sends batches and checks that row N of the response is the embedding of image N. In a simulation, batches have two sizes. */
export function checkBatches(
  service: TargetService,
  reference: Reference,
  verifyTarget: VerifyTarget,
): Promise<readonly CheckResult[]> {
  return checkEachEndpoint(service, "batches", async (target) => {
    const measured: Record<string, number> = {};
    const { maximum } = target.spec.batching;
    const sizes =
      verifyTarget === "simulation"
        ? [...new Set([Math.min(4, maximum), maximum])]
        : batchSizesUpTo(maximum);
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
