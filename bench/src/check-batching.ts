import { embedMetrics } from "../../inference-image/src/contract/embed-api.ts";
import { embedBy } from "./embed-requests.ts";
import { reason } from "./http-client.ts";
import { inferRows } from "./infer.ts";
import { type MetricsSource, readMetrics } from "./instance-metrics.ts";
import { type Metrics, metricSum } from "./prometheus.ts";
import type { CheckResult } from "./record.ts";
import { cycle, type Reference } from "./reference.ts";
import { pathsOf, resultOf, type ServiceUnderTest } from "./service-under-test.ts";

/** Single-image requests that are sent at the same moment. */
export const concurrentSingles = 16;

const timeoutMs = 120_000;

/** Inferences and executions so far. More of the first than of the second is batching. */
interface Counts {
  readonly inferences: number;
  readonly executions: number;
}

/**
 * Concurrent single requests on every path of a service; its metrics must show fewer executions than images. A
 * gateway batches nowhere but in the Tritons behind it, so `measuredAt` are theirs.
 *
 * @param alone - Nobody else sends requests, so that the metrics count these and no others.
 */
export async function checkBatching(
  service: ServiceUnderTest,
  measuredAt: readonly MetricsSource[],
  reference: Reference,
  alone = true,
): Promise<readonly CheckResult[]> {
  const results: CheckResult[] = [];
  for (const target of pathsOf(service)) {
    const { path } = target;
    try {
      const before = await countsOf(service, measuredAt);
      await Promise.all(
        cycle(reference, concurrentSingles).map((image) =>
          target.endpoint.protocol === "embed-http"
            ? embedBy(service.http, target.url, "raw", [image])
            : inferRows(
                service.transport(target),
                service.workload.service.model,
                image.tensor,
                1,
                timeoutMs,
              ),
        ),
      );
      const after = await countsOf(service, measuredAt);
      const inferences = after.inferences - before.inferences;
      const executions = after.executions - before.executions;
      const measured = { inferences, executions, averageBatch: inferences / executions };
      const seen = `${inferences} images in ${executions} executions`;
      if (alone ? inferences !== concurrentSingles : inferences < concurrentSingles) {
        const message = `sent ${concurrentSingles} single requests, but the metrics count ${seen}`;
        results.push(resultOf(service, "batching", "fail", message, { path, measured }));
      } else if (executions < inferences) {
        results.push(resultOf(service, "batching", "pass", seen, { path, measured }));
      } else {
        const message = `${concurrentSingles} concurrent requests ran one by one: ${seen}`;
        results.push(resultOf(service, "batching", "fail", message, { path, measured }));
      }
    } catch (error) {
      results.push(resultOf(service, "batching", "fail", reason(error), { path }));
    }
  }
  return results;
}

async function countsOf(
  service: ServiceUnderTest,
  sources: readonly MetricsSource[],
): Promise<Counts> {
  const counts = await Promise.all(
    sources.map(async (source) =>
      countsIn(await readMetrics(service.http, source), source.role, source.name),
    ),
  );
  return counts.reduce((sum, one) => ({
    inferences: sum.inferences + one.inferences,
    executions: sum.executions + one.executions,
  }));
}

/** From a metrics page: Triton's counters, or the embed server's histogram of batch sizes. */
export function countsIn(metrics: Metrics, role: "embed" | "triton", name: string): Counts {
  const [images, runs] =
    role === "triton"
      ? (["nv_inference_count", "nv_inference_exec_count"] as const)
      : ([`${embedMetrics.batchSize}_sum`, `${embedMetrics.batchSize}_count`] as const);
  const inferences = metricSum(metrics, images);
  const executions = metricSum(metrics, runs);
  if (inferences === undefined || executions === undefined) {
    throw new Error(`the metrics of ${name} have no ${images} and ${runs}`);
  }
  return { inferences, executions };
}
