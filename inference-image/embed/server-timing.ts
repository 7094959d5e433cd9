import type { FastifyReply } from "fastify";
import { serverTimingHeader } from "../../contract/embed-api.ts";
import type { StageTimes } from "./embed-pipeline.ts";
import type { TowerMetrics } from "./metrics.ts";
import type { AdmittedRequest } from "./request-admission.ts";

/** Stages of a request that has not started. */
export function noTimes(): StageTimes {
  return { decode: 0, queue: 0, infer: 0 };
}

/** Records the end of a request: the header `Server-Timing`, and the time outside its stages in the tower's metric. */
export function recordTimes(
  reply: FastifyReply,
  { startedAt, arrivedAt }: AdmittedRequest,
  times: StageTimes,
  tower: TowerMetrics,
): void {
  const total = performance.now() - startedAt;
  const stages = Object.values(times).reduce((sum: number, duration: number) => sum + duration, 0);
  tower.overhead(Math.max(0, total - stages) / 1000);
  reply.header(
    serverTimingHeader,
    serverTiming({ receive: arrivedAt - startedAt, ...times, total }),
  );
}

/** `receive;dur=0.123, …`, in milliseconds. */
function serverTiming(ms: Readonly<Record<string, number>>): string {
  return Object.entries(ms)
    .map(([name, duration]) => `${name};dur=${duration.toFixed(3)}`)
    .join(", ");
}
