import type { FastifyReply, FastifyRequest } from "fastify";
import { fingerprintHeader, modelHeader, serverTimingHeader } from "../../contract/embed-api.ts";
import type { Modality, ModelSpec } from "../../contract/model-spec.ts";
import { EmbedError } from "../../http/embed-error.ts";
import type { EmbedMetrics, TowerMetrics } from "../models/metrics.ts";
import type { Embedded, PipelineOptions, StageTimes } from "./embed-pipeline.ts";
import type { AdmittedRequest, RequestAdmission } from "./request-admission.ts";

/** What a request embedded, by modality; at least one modality is present. */
export type EmbeddedByModality = Readonly<Partial<Record<Modality, Embedded>>>;

/** Images and texts of one request, and the model that embeds them. */
export interface EmbedJob {
  readonly spec: ModelSpec;
  /** Number of images and texts. */
  readonly items: number;
  /** Maximum number of them in the queue of the model. */
  readonly queuedItems: number;
  embed(options: PipelineOptions): Promise<EmbeddedByModality>;
  /** Returns the body of the response, and sets the headers that describe it. */
  respond(embedded: EmbeddedByModality, reply: FastifyReply): Promise<Buffer>;
}

export interface EmbedHandlerOptions {
  readonly requests: RequestAdmission;
  readonly metrics: EmbedMetrics;
}

/**
 * Returns the handler of a route that returns embeddings.
 *
 * @param parse - Parses the body of a request.
 * @param jobOf - Selects the model for a parsed request.
 */
export function embedHandler<Parsed>(
  { requests, metrics }: EmbedHandlerOptions,
  parse: (request: FastifyRequest) => Promise<Parsed>,
  jobOf: (parsed: Parsed, request: FastifyRequest) => EmbedJob,
) {
  return async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> => {
    const admitted = requests.of(request);
    const parsed = await parse(request);
    admitted.parsed();
    const job = jobOf(parsed, request);
    const { spec, items } = job;
    admitted.accept(spec.name, job.queuedItems);
    metrics.pending(items);
    const embedded = await job
      .embed({ signal: admitted.signal, trace: request.trace })
      .finally(() => metrics.pending(-items));
    admitted.completed(items);
    const embeddedAt = performance.now();
    const body = await job.respond(embedded, reply);
    request.trace?.stage("encode", embeddedAt);
    recordTimes(reply, admitted, embedded, (modality) => metrics.tower(spec.name, modality));
    identify(reply, spec.name, embedded);
    return reply.send(body);
  };
}

/** JSON body of a request. @throws {EmbedError} if it is empty */
export function jsonBodyOf({ body }: FastifyRequest): Buffer {
  if (Buffer.isBuffer(body)) return body;
  throw new EmbedError("bad_request", "the body is empty: send JSON");
}

/** Sets the headers that state which model made the embeddings of a response. */
function identify(reply: FastifyReply, model: string, embedded: EmbeddedByModality): void {
  reply.header(modelHeader, model);
  const known = Object.entries(embedded).flatMap(([modality, { fingerprint }]) =>
    fingerprint === undefined ? [] : [`${modality}=${fingerprint}`],
  );
  if (known.length > 0) reply.header(fingerprintHeader, known.join(", "));
}

/**
 * Records the end of a request, with the stages of the modality that took longest: the header `Server-Timing`, and the time outside the
 * stages in the metric of the tower.
 */
function recordTimes(
  reply: FastifyReply,
  { startedAt, arrivedAt }: AdmittedRequest,
  embedded: EmbeddedByModality,
  towerOf: (modality: Modality) => TowerMetrics,
): void {
  const [{ modality, times, sum }] = (["image", "text"] as const)
    .flatMap((modality) => {
      const times = embedded[modality]?.times;
      return times === undefined ? [] : [{ modality, times, sum: sumOf(times) }];
    })
    .sort((a, b) => b.sum - a.sum) as [{ modality: Modality; times: StageTimes; sum: number }];
  const total = performance.now() - startedAt;
  towerOf(modality).overhead(Math.max(0, total - sum) / 1000);
  const stages = { receive: arrivedAt - startedAt, ...times, total };
  const entries = Object.entries(stages).map(([name, ms]) => `${name};dur=${ms.toFixed(3)}`);
  reply.header(serverTimingHeader, entries.join(", "));
}

function sumOf(times: StageTimes): number {
  return Object.values(times).reduce((sum: number, ms: number) => sum + ms, 0);
}
