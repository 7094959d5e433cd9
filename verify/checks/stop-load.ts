import { setTimeout as sleep } from "node:timers/promises";
import { openGrpcTransport } from "../../client/triton/grpc-transport.ts";
import { openHttpTransport } from "../../client/triton/http-transport.ts";
import { isStopRejection } from "../../client/triton/stop-rejection.ts";
import { TritonError } from "../../client/triton/transport.ts";
import type { Samples } from "../../target/reference/references.ts";
import { openHttpClient, reason } from "../../target/requests/http-client.ts";
import { type EndpointTarget, embeddingsOf } from "../../target/service/target-service.ts";
import { itemsOf } from "./check.ts";

/** Number of clients during a stop. */
export const workers = 8;
export const pollMs = 5;

export type Send = (worker: number) => Promise<unknown>;

/** One request of the load. */
export interface SentRequest {
  /** Absent while the request is open. */
  result?: "answered" | "rejected" | "lost";
  error?: string;
}

/** Closed-loop load: each worker sends its next request as soon as the previous one has ended. */
export interface StopLoad {
  /** All requests in the order in which they were sent. */
  readonly sent: readonly SentRequest[];
  /** Resolves once every worker has received a response on its persistent connection. */
  readonly warm: Promise<unknown>;
  /** Stops sending after `overMs` and awaits the open requests. */
  finish(overMs?: number): Promise<void>;
}

export interface Sender {
  /** Sends a request with `size` images or texts. */
  send(size: number): Promise<unknown>;
  close(): Promise<void>;
}

/**
 * Opens one connection per worker, so that no worker must open a new one, which a stopping server may reject.
 */
export function openSender(target: EndpointTarget, samples: Samples): Sender {
  const { endpoint, url, spec } = target;
  const http = openHttpClient(workers);
  const transport =
    endpoint.protocol === "oip-grpc"
      ? openGrpcTransport({ target: url })
      : openHttpTransport({ url, connections: workers });
  const limit =
    endpoint.protocol === "embed-http" ? Number.POSITIVE_INFINITY : spec.batching.maximum;
  let closed: Promise<unknown> | undefined;
  return {
    send: (size) =>
      embeddingsOf(
        { http, transport: () => transport },
        target,
        itemsOf(samples, target, Math.min(size, limit)),
      ),
    async close() {
      closed ??= Promise.all([http.close(), transport.close()]);
      await closed;
    },
  };
}

/** Starts `count` workers. */
export function startStopLoad(count: number, send: Send): StopLoad {
  const sent: SentRequest[] = [];
  let until = Number.POSITIVE_INFINITY;
  /** Returns whether the worker continues. */
  const sendOne = async (worker: number): Promise<boolean> => {
    const request: SentRequest = {};
    sent.push(request);
    try {
      await send(worker);
      request.result = "answered";
      return true;
    } catch (error) {
      request.error = error instanceof TritonError ? error.message : reason(error);
      const busy = isOverload(request.error);
      request.result = busy || isStopRejection(request.error) ? "rejected" : "lost";
      if (busy) await sleep(pollMs);
      return busy;
    }
  };
  const first = Array.from({ length: count }, (_, worker) => sendOne(worker));
  const done = Promise.all(
    first.map(async (firstRequest, worker) => {
      let continues = await firstRequest;
      while (continues && performance.now() < until) continues = await sendOne(worker);
    }),
  );
  return {
    sent,
    warm: Promise.all(first),
    async finish(overMs = 0) {
      until = Math.min(until, performance.now() + overMs);
      await done;
    },
  };
}

const isOverload = (error: string) => /\bstatus 429\b|Exceeds maximum queue size/.test(error);
