import { TritonError } from "../../inference-image/src/triton/transport.ts";
import { requestOf } from "./embed-requests.ts";
import type { Target } from "./embedded-plan.ts";
import { type HttpClient, reason } from "./http-client.ts";
import { inferRows } from "./infer.ts";
import { cycle, type Reference } from "./reference.ts";
import type { ServiceUnderTest } from "./service-under-test.ts";
import type { Sample } from "./statistics.ts";

export interface LoadOptions {
  /** Clients; each sends its next request when the last one was answered. */
  readonly concurrency: number;
  readonly seconds: number;
  readonly signal: AbortSignal;
}

export interface LoadResult {
  readonly samples: readonly Sample[];
  /** From the first request to the last answer. */
  readonly seconds: number;
}

const warmupRequests = 2;
const timeoutMs = 120_000;

/** Closed loop of single-image requests on one protocol path. Says how much it can do, not how it does at a rate. */
export async function runLoad(
  service: ServiceUnderTest,
  target: Target & { readonly url: string },
  reference: Reference,
  { concurrency, seconds, signal }: LoadOptions,
): Promise<LoadResult> {
  const http = service.openHttp();
  const send = sender(service, target, http, reference);
  try {
    for (let i = 0; i < warmupRequests; i++) await send(i).catch(() => {});
    const samples: Sample[] = [];
    const startedAt = performance.now();
    const endsAt = startedAt + seconds * 1_000;
    let next = 0;
    const client = async (): Promise<void> => {
      while (performance.now() < endsAt && !signal.aborted) {
        const sentAt = performance.now();
        try {
          await send(next++);
          samples.push({ ok: true, latencyMs: performance.now() - sentAt });
        } catch (error) {
          samples.push({ ok: false, latencyMs: performance.now() - sentAt, code: codeOf(error) });
        }
      }
    };
    await Promise.all(Array.from({ length: concurrency }, client));
    signal.throwIfAborted();
    return { samples, seconds: (performance.now() - startedAt) / 1_000 };
  } finally {
    await http.close();
  }
}

/** What one request is, on this path: an encoded image to the embed API, a tensor to a Triton. */
function sender(
  service: ServiceUnderTest,
  target: Target & { readonly url: string },
  http: HttpClient,
  reference: Reference,
): (index: number) => Promise<void> {
  const images = cycle(reference, reference.images.length);
  const image = (index: number) => images[index % images.length] ?? images[0];
  if (target.endpoint.protocol === "embed-http") {
    const requests = images.map((one) => requestOf(target.url, "raw", [one]));
    return async (index) => {
      const answer = await http.send(...(requests[index % requests.length] ?? [target.url]));
      if (answer.status !== 200) throw new StatusError(answer.status);
    };
  }
  const transport = service.transport(target);
  const { model } = service.workload.service;
  return async (index) => {
    await inferRows(transport, model, image(index)?.tensor ?? new Float32Array(), 1, timeoutMs);
  };
}

class StatusError extends Error {
  constructor(readonly status: number) {
    super(`status ${status}`);
  }
}

function codeOf(error: unknown): string {
  if (error instanceof StatusError) return String(error.status);
  return error instanceof TritonError ? error.code : reason(error);
}
