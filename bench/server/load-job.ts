/** What the process of the load generator is told and what it tells: files that it shares with the bench. */

export interface LoadJob {
  /** Address of the service, without a path. */
  readonly url: string;
  readonly path: string;
  /** Files of JSON bodies; each connection sends them in turn, starting at another one. */
  readonly bodies: readonly string[];
  readonly connections: number;
  /** Answers before this are not counted. */
  readonly warmupSeconds: number;
  /** How long it then goes on; longer where a connection has fewer than {@link minimumAnswers} answers. */
  readonly seconds: number;
  /** File for the {@link LoadResult}. */
  readonly result: string;
}

/** A rate needs intervals: what every connection must have seen after the warm-up. */
export const minimumAnswers = 3;

/** No load goes on for longer, however slow the service is. */
export const longestSeconds = 60;

export interface Answer {
  readonly connection: number;
  /** Since the first request was sent. */
  readonly atMs: number;
  readonly latencyMs: number;
  readonly status: number;
  /** Durations of the answer's `Server-Timing`, in milliseconds, by name. */
  readonly timing?: Readonly<Record<string, number>>;
}

export interface LoadResult {
  readonly answers: readonly Answer[];
  /** Requests without an answer: connection errors and timeouts. */
  readonly failures: number;
  /** Processor time of the load generator, and how long it ran. */
  readonly cpuMs: number;
  readonly wallMs: number;
}

/** The durations of a `Server-Timing` header (https://www.w3.org/TR/server-timing/), by name. */
export function parseServerTiming(header: string): Readonly<Record<string, number>> {
  return Object.fromEntries(
    [...header.matchAll(/([\w!#$%&'*+.^`|~-]+)[^,]*?;\s*dur="?([\d.]+)"?/g)].map(
      ([, name, duration]) => [name, Number(duration)],
    ),
  );
}
