import type { CheckResult } from "../../bench/record/record.ts";
import { embedMetrics } from "../../contract/metrics/embed-metrics.ts";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { daliKinds, tritonModelName } from "../../contract/triton-models.ts";
import { metricsSource, readMetrics } from "../../target/readings/instance-metrics.ts";
import { type Metrics, metricSum } from "../../target/readings/prometheus.ts";
import type { Samples } from "../../target/reference/references.ts";
import type { MetricsSource } from "../../target/requests/target-endpoint.ts";
import { podsOf, servicesBehind, sourceOf } from "../../target/service/deployed-environment.ts";
import {
  type EndpointTarget,
  embeddingsOf,
  firstTowersOf,
  type TargetService,
} from "../../target/service/target-service.ts";
import { type Check, type CheckContext, itemsOf, ownKinds } from "./check.ts";
import { checkEachEndpoint, type EndpointFinding, resultOf } from "./check-result.ts";

export const batchingCheck: Check = {
  name: "batching",
  question: "Are concurrent requests batched dynamically?",
  sendsRequests: true,
  kinds: ownKinds,
  runService: (service, context) => batchingOf(service, context),
};

/** Runs the check on the metrics of the service, or of the Triton servers behind a gateway. */
async function batchingOf(
  service: TargetService,
  { services, deployment, ...samples }: CheckContext,
): Promise<readonly CheckResult[]> {
  const behind = servicesBehind(service, services);
  const counting = behind.length > 0 ? behind : [service];
  if (deployment === undefined) {
    const sources = counting.flatMap(({ instances }) => instances.map(metricsSource));
    return checkBatching(service, sources, samples);
  }
  for (const { workload } of [service, ...counting]) {
    const pods = podsOf(workload, deployment.cluster);
    if (pods < 2) continue;
    const message = `${pods} pods of ${workload.name} share one address, so that their metrics cannot be distinguished`;
    return [resultOf(service, "batching", "skip", message)];
  }
  const sources = counting.map(sourceOf);
  const isGateway = service.workload.service.backend === "triton";
  if ((isGateway && behind.length === 0) || sources.some(({ url }) => url === undefined)) {
    const message = "the metrics of its Triton server cannot be read: they are at no given address";
    return [resultOf(service, "batching", "skip", message)];
  }
  return checkBatching(service, sources, samples, false);
}

/**
 * Numbers of concurrent requests with one image or text. They increase until an execution is shared, because a model that is faster than the
 * requests arrive has no queue to batch.
 */
const concurrentSingles = [16, 32, 64, 128] as const;

interface Counts {
  readonly inferences: number;
  readonly executions: number;
}

/**
 * Sends concurrent requests with one image or text to every endpoint; the metrics must show fewer executions than requests.
 *
 * @param measuredAt - Metrics of the processes that batch; for a gateway, those of its Triton servers.
 * @param alone - Whether no other client sends requests, so that the metrics count only these.
 */
export function checkBatching(
  service: TargetService,
  measuredAt: readonly MetricsSource[],
  samples: Samples,
  alone = true,
): Promise<readonly CheckResult[]> {
  const check = async (target: EndpointTarget) => {
    let finding: EndpointFinding = { message: "" };
    for (const requests of concurrentSingles) {
      const before = await countsOf(service, measuredAt);
      await Promise.all(
        itemsOf(samples, target, requests).map((item) => embeddingsOf(service, target, [item])),
      );
      const after = await countsOf(service, measuredAt);
      const inferences = after.inferences - before.inferences;
      const executions = after.executions - before.executions;
      const measured = { inferences, executions, averageBatch: inferences / executions };
      const counted = `${inferences} ${target.modality}s in ${executions} executions`;
      if (alone ? inferences !== requests : inferences < requests) {
        const message = `the metrics must count ${requests} single requests, got ${counted}`;
        return { outcome: "fail", message, measured } as const;
      }
      if (executions < inferences) return { message: counted, measured };
      const message = `${requests} concurrent requests must share executions, got ${counted}`;
      finding = { outcome: "fail", message, measured };
    }
    return finding;
  };
  return checkEachEndpoint(service, "batching", check, firstTowersOf(service));
}

async function countsOf(
  service: TargetService,
  sources: readonly MetricsSource[],
): Promise<Counts> {
  const counts = await Promise.all(
    sources.map(async (source) =>
      countsIn(await readMetrics(service.http, source), source.role, source.name, service.models),
    ),
  );
  return counts.reduce((sum, one) => ({
    inferences: sum.inferences + one.inferences,
    executions: sum.executions + one.executions,
  }));
}

/**
 * Reads the counts from Triton's counters, or the embed server's histogram of batch sizes. Triton counts the files that DALI decodes
 * again, in each step of the ensemble; only the towers are counted here.
 *
 * @param models - Models that may have steps for DALI.
 */
export function countsIn(
  metrics: Metrics,
  role: MetricsSource["role"],
  name: string,
  models: readonly Pick<ModelSpec, "name">[] = [],
): Counts {
  const decoding = models.flatMap((model) =>
    daliKinds.map((modelKind) => tritonModelName(model, modelKind)),
  );
  const [images, runs] =
    role === "triton"
      ? (["nv_inference_count", "nv_inference_exec_count"] as const)
      : ([`${embedMetrics.batchSize}_sum`, `${embedMetrics.batchSize}_count`] as const);
  const inferences = metricSum(metrics, images);
  const executions = metricSum(metrics, runs);
  if (inferences === undefined || executions === undefined) {
    throw new Error(`the metrics of ${name} must contain ${images} and ${runs}`);
  }
  const ofTowers = (counter: string, total: number) =>
    decoding.reduce((rest, model) => rest - (metricSum(metrics, counter, { model }) ?? 0), total);
  return { inferences: ofTowers(images, inferences), executions: ofTowers(runs, executions) };
}
