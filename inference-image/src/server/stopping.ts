import { setTimeout as sleep } from "node:timers/promises";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";

/**
 * How long open connections are left alone at the start of a stop, in milliseconds: a request may be on its way that the
 * process has not read yet. It gets an answer; a connection that is cut gives its client a reset.
 */
export const quietMs = 300;

/** How long a stop waits for requests that have begun to arrive, in milliseconds: 32 images as floats are 19 MB. */
export const arrivalMs = 3_000;

/** What a stop waits for. */
export interface AcceptedRequests {
  /** Resolves when no request that arrived whole is without its answer. */
  answered(): Promise<void>;
}

/** What an HTTP server's stop waits for. */
export interface TrackedRequests extends AcceptedRequests {
  /** Resolves when no request is still arriving, after {@link arrivalMs} at the latest. */
  arrived(): Promise<void>;
}

/** In the metrics, the status of a request whose client hung up before it had its answer: nginx' number. */
const clientClosedRequest = 499;

/**
 * Follow the requests of an HTTP server. One whose body is still coming is not accepted: its client may never send the
 * rest.
 *
 * @param onOver - told of each request that was answered, or whose client hung up (Fastify's onResponse is silent then)
 */
export function trackRequests(
  app: FastifyInstance,
  onOver: (request: FastifyRequest, reply: FastifyReply, status: number) => void = () => {},
): TrackedRequests {
  const open = new Set<FastifyRequest>();
  const waiting: (() => void)[] = [];
  const allAnswered = () => [...open].every(({ raw }) => raw.complete === false);

  app.addHook("onRequest", async (request, reply) => {
    open.add(request);
    const over = (status: number) => {
      if (!open.delete(request)) return;
      onOver(request, reply, status);
      if (allAnswered()) for (const resolve of waiting.splice(0)) resolve();
    };
    reply.raw.once("finish", () => over(reply.statusCode));
    reply.raw.once("close", () => over(clientClosedRequest));
  });
  return {
    answered: () =>
      new Promise((resolve) => {
        if (allAnswered()) resolve();
        else waiting.push(resolve);
      }),
    async arrived() {
      const until = performance.now() + arrivalMs;
      const arriving = () => [...open].some(({ raw }) => !raw.complete);
      while (arriving() && performance.now() < until) await sleep(arrivalMs / 100);
    },
  };
}

/** Counts what is under way, where that is not a request of Fastify's. */
export class CallCounter implements AcceptedRequests {
  #open = 0;
  readonly #waiting: (() => void)[] = [];

  async during<T>(call: () => T | Promise<T>): Promise<T> {
    this.#open += 1;
    try {
      return await call();
    } finally {
      this.#open -= 1;
      if (this.#open === 0) for (const resolve of this.#waiting.splice(0)) resolve();
    }
  }

  answered(): Promise<void> {
    return new Promise((resolve) => {
      if (this.#open === 0) resolve();
      else this.#waiting.push(resolve);
    });
  }
}
