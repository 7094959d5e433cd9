import { benchBatchSizes } from "../../inference-image/src/contract/model-config.ts";
import { parityLimits } from "./check-parity.ts";
import { embedBy } from "./embed-requests.ts";
import { reason } from "./http-client.ts";
import { inferRows, unit } from "./infer.ts";
import type { CheckResult } from "./record.ts";
import { cycle, type Reference, stack } from "./reference.ts";
import { pathsOf, resultOf, type ServiceUnderTest } from "./service-under-test.ts";
import { cosine } from "./statistics.ts";

const timeoutMs = 120_000;

/** Batches of every size: as many rows as images, each row the embedding of its image. */
export async function checkBatches(
  service: ServiceUnderTest,
  reference: Reference,
): Promise<readonly CheckResult[]> {
  const results: CheckResult[] = [];
  for (const target of pathsOf(service)) {
    const { path } = target;
    const measured: Record<string, number> = {};
    try {
      for (const size of benchBatchSizes) {
        const images = cycle(reference, size);
        const startedAt = performance.now();
        const rows =
          target.endpoint.protocol === "embed-http"
            ? await embedBy(service.http, target.url, "multipart", images)
            : await inferRows(
                service.transport(target),
                service.workload.service.model,
                stack(images),
                size,
                timeoutMs,
              );
        measured[`batch${size}Ms`] = Math.round((performance.now() - startedAt) * 10) / 10;
        if (rows.length !== size)
          throw new Error(`batch of ${size}: got ${rows.length} embeddings`);
        rows.forEach((row, i) => {
          const expected = images[i]?.embedding ?? new Float32Array();
          const similarity = cosine(unit(row), expected);
          if (!(similarity >= parityLimits.cosineAtLeast)) {
            throw new Error(
              `batch of ${size}: row ${i} is not the embedding of its image (cosine ${similarity.toFixed(6)})`,
            );
          }
        });
      }
      results.push(
        resultOf(service, "batches", "pass", `batches of ${benchBatchSizes.join(", ")}`, {
          path,
          measured,
        }),
      );
    } catch (error) {
      results.push(resultOf(service, "batches", "fail", reason(error), { path, measured }));
    }
  }
  return results;
}
