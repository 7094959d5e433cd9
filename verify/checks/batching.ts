import type { CheckResult } from "../../bench/record/record.ts";
import { type MetricsSource, readMetrics } from "../../bench/run/instance-metrics.ts";
import { type Metrics, metricSum } from "../../bench/run/prometheus.ts";
import { cycle, type Reference } from "../../bench/run/reference.ts";
import {
  checkEachEndpoint,
  type EndpointFinding,
  embeddingsOf,
  type ServiceUnderTest,
} from "../../bench/run/service-under-test.ts";
import { embedMetrics } from "../../contract/embed-api.ts";

/**
 * Single-image requests that are sent at the same moment: 16 first, and more where none of them shared an execution. A
 * model that is as fast as its requests arrive finds nobody waiting, however well it batches.
 */
const concurrentSingles = [16, 32, 64, 128] as const;

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
export function checkBatching(
  service: ServiceUnderTest,
  measuredAt: readonly MetricsSource[],
  reference: Reference,
  alone = true,
): Promise<readonly CheckResult[]> {
  return checkEachEndpoint(service, "batching", async (target) => {
    let finding: EndpointFinding = { message: "" };
    for (const requests of concurrentSingles) {
      const before = await countsOf(service, measuredAt);
      await Promise.all(
        cycle(reference, requests).map((image) => embeddingsOf(service, target, [image])),
      );
      const after = await countsOf(service, measuredAt);
      const inferences = after.inferences - before.inferences;
      const executions = after.executions - before.executions;
      const measured = { inferences, executions, averageBatch: inferences / executions };
      const seen = `${inferences} images in ${executions} executions`;
      if (alone ? inferences !== requests : inferences < requests) {
        const message = `sent ${requests} single requests, but the metrics count ${seen}`;
        return { outcome: "fail", message, measured };
      }
      if (executions < inferences) return { message: seen, measured };
      const message = `${requests} concurrent requests ran one by one: ${seen}`;
      finding = { outcome: "fail", message, measured };
    }
    return finding;
  });
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
