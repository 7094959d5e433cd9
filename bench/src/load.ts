import { setMaxListeners } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { TritonError } from "../../inference-image/src/triton/transport.ts";
import { type EncodedImage, requestOf } from "./embed-requests.ts";
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
const refusedPauseMs = 100;
/** Requests without an answer, at most: beyond it a fixed rate only adds to a queue. */
const openLimit = 500;

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

/** How a load that goes on is sent: so many a second, or by so many clients, each after its last answer. */
export type Pace =
  | { readonly kind: "fixed rate"; readonly ratePerSecond: number }
  | { readonly kind: "closed loop"; readonly concurrency: number };

/** A sample, and when its request was due, as `performance.now()` says. */
export type TimedSample = Sample & { readonly dueMs: number };

export interface RunningLoad {
  /** Of every request that has been answered, or has failed, so far. */
  readonly samples: readonly TimedSample[];
  /**
   * Send no more, and wait for the answers to what was sent.
   *
   * @param cut - Ends the wait: a request that is still open then has failed.
   */
  stop(cut?: AbortSignal): Promise<void>;
}

/**
 * Send single images to an embed API until it is stopped. At a fixed rate a request is timed from when it was due, and is
 * sent whether or not earlier ones were answered.
 */
export function startLoad(
  http: HttpClient,
  url: string,
  images: readonly EncodedImage[],
  pace: Pace,
): RunningLoad {
  const samples: TimedSample[] = [];
  const open = new Set<Promise<void>>();
  const stopping = new AbortController();
  const cutting = new AbortController();
  // each open request listens
  setMaxListeners(0, cutting.signal);
  const requests = images.map((image) => requestOf(url, "raw", [image]));
  let next = 0;
  const send = async (dueMs: number): Promise<void> => {
    try {
      const [address, request] = requests[next++ % requests.length] ?? [url];
      const answer = await http.send(address, { ...request, signal: cutting.signal });
      if (answer.status !== 200) throw new StatusError(answer.status);
      samples.push({ ok: true, dueMs, latencyMs: performance.now() - dueMs });
    } catch (error) {
      const code = codeOf(error);
      samples.push({ ok: false, dueMs, latencyMs: performance.now() - dueMs, code });
    }
  };
  const track = (work: Promise<void>): void => {
    open.add(work);
    void work.finally(() => open.delete(work));
  };
  const { signal } = stopping;
  if (pace.kind === "closed loop") {
    const client = async (): Promise<void> => {
      while (!signal.aborted) {
        await send(performance.now());
        // an address that refuses at once must not be asked a thousand times a second
        if (samples.at(-1)?.ok === false) await sleep(refusedPauseMs, undefined, { ref: false });
      }
    };
    for (let i = 0; i < pace.concurrency; i++) track(client());
  } else {
    const startMs = performance.now();
    const clock = async (): Promise<void> => {
      for (let i = 0; ; i++) {
        const dueMs = startMs + (i * 1_000) / pace.ratePerSecond;
        await sleep(Math.max(0, dueMs - performance.now()), undefined, { signal });
        if (open.size <= openLimit) track(send(dueMs));
        else samples.push({ ok: false, dueMs, latencyMs: 0, code: "too many requests open" });
      }
    };
    track(clock().catch(() => {}));
  }
  return {
    samples,
    async stop(cut) {
      const end = () => cutting.abort();
      stopping.abort();
      if (cut?.aborted) end();
      cut?.addEventListener("abort", end, { once: true });
      while (open.size > 0) await Promise.all(open);
      cut?.removeEventListener("abort", end);
    },
  };
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
