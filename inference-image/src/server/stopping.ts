import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";

/**
 * How long open connections are left alone at the start of a stop, in milliseconds: a request may be on its way that the
 * process has not read yet. It gets an answer; a connection that is cut gives its client a reset.
 */
export const quietMs = 300;

/** What a stop waits for. */
export interface AcceptedRequests {
  /** Resolves when no request that arrived whole is without its answer. */
  answered(): Promise<void>;
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
): AcceptedRequests {
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
