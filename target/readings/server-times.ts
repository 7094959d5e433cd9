import { z } from "zod";
import type { PayloadFormat } from "../../contract/bench-endpoint.ts";
import { embedPaths } from "../../contract/embed-api.ts";
import { hasEmbedApi } from "../../contract/environment.ts";
import { embedMetrics } from "../../contract/metrics/embed-metrics.ts";
import { tritonModelName } from "../../contract/triton-models.ts";
import type { HttpClient } from "../requests/http-client.ts";
import { type BenchModel, modelFor } from "../requests/prepare.ts";
import type { MetricsSource, TargetEndpoint } from "../requests/target-endpoint.ts";
import { readMetrics } from "./instance-metrics.ts";
import { type Metrics, metricSum } from "./prometheus.ts";

/** Mean times of the requests in the measured windows, from the server's counters, in milliseconds per request. */
export const serverTimesSchema = z.strictObject({
  /** `triton`: `nv_inference_*`; `embed`: the embed server's histograms. */
  source: z.enum(["triton", "embed"]),
  requests: z.number().min(0),
  executions: z.number().min(0).optional(),
  /** Images per execution of the model. */
  averageBatch: z.number().min(0).optional(),
  /** Total time in the server. */
  requestMs: z.number().optional(),
  /** Decoding and preprocessing of images, for the payload format `jpeg`. */
  decodeMs: z.number().optional(),
  queueMs: z.number().optional(),
  inputMs: z.number().optional(),
  inferMs: z.number().optional(),
  outputMs: z.number().optional(),
});
export type ServerTimes = z.infer<typeof serverTimesSchema>;

/** Counters of the processes behind a target, by process name. */
export type ServerCounters = ReadonlyMap<string, SourceCounters>;

export interface SourceCounters {
  readonly role: MetricsSource["role"];
  readonly metrics: Metrics;
}

/**
 * Reads the counters of every process behind a target.
 *
 * @throws {Error} with a one-line message if a process does not respond.
 */
export async function readServerCounters(
  http: HttpClient,
  sources: readonly MetricsSource[],
  signal?: AbortSignal,
): Promise<ServerCounters> {
  return new Map(
    await Promise.all(
      sources.map(async (source) => {
        const metrics = await readMetrics(http, source, { signal });
        return [source.name, { role: source.role, metrics }] as const;
      }),
    ),
  );
}

/** Triton's duration counters, by the part of a request that they measure. */
const tritonCounters = {
  queueMs: "nv_inference_queue_duration_us",
  inputMs: "nv_inference_compute_input_duration_us",
  inferMs: "nv_inference_compute_infer_duration_us",
  outputMs: "nv_inference_compute_output_duration_us",
} as const;

/**
 * Mean times between two readings, in milliseconds per request; counters of several processes are summed.
 *
 * @returns `undefined` if no request was counted or a process restarted.
 */
export function serverTimes(
  before: ServerCounters,
  after: ServerCounters,
  target: Pick<TargetEndpoint, "endpoint"> & BenchModel,
  payload: PayloadFormat,
): ServerTimes | undefined {
  const delta: Delta = (role, name, labels = {}) => {
    let sum = 0;
    for (const [source, { role: sourceRole, metrics }] of after) {
      if (sourceRole !== role) continue;
      const grown =
        (metricSum(metrics, name, labels) ?? 0) -
        (metricSum(before.get(source)?.metrics ?? [], name, labels) ?? 0);
      sum += grown < 0 ? Number.NaN : grown;
    }
    return sum;
  };
  return hasEmbedApi(target.endpoint)
    ? embedTimes(delta, target.model)
    : tritonTimes(delta, target, payload);
}

/** Increase of a counter over all processes of a role; NaN if one restarted, 0 if none has the counter. */
type Delta = (
  role: MetricsSource["role"],
  name: string,
  labels?: Readonly<Record<string, string>>,
) => number;

function tritonTimes(
  delta: Delta,
  target: BenchModel,
  payload: PayloadFormat,
): ServerTimes | undefined {
  const usesDali = target.jpegKind !== undefined;
  const model = modelFor(target, payload);
  const requests = delta("triton", "nv_inference_request_success", { model });
  if (!(requests > 0)) return undefined;
  // Triton counts the requests of an ensemble under its name, and times and batches under the model that computes
  const computing = payload === "jpeg" ? modelFor(target, usesDali ? "fp32" : "uint8") : model;
  const perRequest = (name: string, countedModel: string) =>
    delta("triton", name, { model: countedModel }) / 1_000 / requests;
  const executions = delta("triton", "nv_inference_exec_count", { model: computing });
  const images = delta("triton", "nv_inference_count", { model: computing });
  const times: ServerTimes = {
    source: "triton",
    requests,
    executions,
    averageBatch: executions > 0 ? images / executions : undefined,
    requestMs: perRequest("nv_inference_request_duration_us", model),
    decodeMs:
      payload === "jpeg"
        ? perRequest(
            "nv_inference_request_duration_us",
            tritonModelName(target.spec, usesDali ? "dali-preprocess" : "preprocess"),
          )
        : undefined,
  };
  for (const [part, counter] of Object.entries(tritonCounters) as [
    keyof typeof tritonCounters,
    string,
  ][]) {
    times[part] = perRequest(counter, computing);
  }
  return finiteTimes(times);
}

function embedTimes(delta: Delta, model: string): ServerTimes | undefined {
  const histogram = (name: string) => ({
    sumMs: delta("embed", `${name}_sum`) * 1_000,
    count: delta("embed", `${name}_count`),
  });
  const mean = ({ sumMs, count }: { sumMs: number; count: number }) =>
    count > 0 ? sumMs / count : undefined;
  // counts successful requests only
  const overhead = histogram(embedMetrics.overheadSeconds);
  const requests = overhead.count;
  if (!(requests > 0)) return undefined;
  const queueMs = mean(histogram(embedMetrics.queueSeconds));
  const inferMs = mean(histogram(embedMetrics.inferSeconds));
  const sumOverRoutes = (suffix: string) =>
    [embedPaths.embed, embedPaths.embedBase64, embedPaths.embedText]
      .map((route) => delta("embed", `${embedMetrics.requestSeconds}_${suffix}`, { route }))
      .reduce((sum, value) => sum + value, 0);
  const requestMs = (sumOverRoutes("sum") * 1_000) / sumOverRoutes("count");
  const decoding = histogram(embedMetrics.decodeSeconds).sumMs / requests;
  const left = requestMs - overhead.sumMs / requests - (queueMs ?? 0) - (inferMs ?? 0);
  // requests to a gateway are batched by the Triton servers behind it
  const executions = delta("triton", "nv_inference_exec_count", { model });
  const [images, runs] =
    executions > 0
      ? [delta("triton", "nv_inference_count", { model }), executions]
      : [
          delta("embed", `${embedMetrics.batchSize}_sum`),
          delta("embed", `${embedMetrics.batchSize}_count`),
        ];
  return finiteTimes({
    source: "embed",
    requests,
    executions: runs,
    averageBatch: runs > 0 ? images / runs : undefined,
    requestMs,
    decodeMs: left > 0 ? Math.min(decoding, left) : decoding,
    queueMs,
    inferMs,
  });
}

/** `undefined` if a counter decreased, because the process has restarted. */
function finiteTimes(times: ServerTimes): ServerTimes | undefined {
  const numbers = Object.values(times).filter((value) => typeof value === "number");
  return numbers.every((value) => Number.isFinite(value)) ? times : undefined;
}
