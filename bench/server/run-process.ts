import { setTimeout as sleep } from "node:timers/promises";
import { request } from "undici";
import { BenchError } from "../src/bench-error.ts";
import { type Child, type ChildOptions, startChild } from "../src/child-process.ts";
import { howEnded } from "../src/embedded.ts";

const stopPatienceSeconds = 5;
const shownLines = 6;

/** Run a command to its end; its last line is its result. */
export async function runCommand<Result>(
  options: ChildOptions,
  name: string,
  signal: AbortSignal,
): Promise<Result> {
  const child = startChild(options);
  await ended(child, name, signal);
  return JSON.parse(child.lastLines(1)[0] ?? "") as Result;
}

async function ended(child: Child, name: string, signal: AbortSignal): Promise<void> {
  const stop = () => void child.stop(stopPatienceSeconds);
  signal.addEventListener("abort", stop, { once: true });
  const exit = await child.exited;
  signal.removeEventListener("abort", stop);
  signal.throwIfAborted();
  if (exit.code !== 0) throw failed(child, name);
}

function failed(child: Child, name: string): BenchError {
  const how = child.exit === undefined ? "" : ` ${howEnded(child.exit)}`;
  return new BenchError(`${name} ended${how}:\n${child.lastLines(shownLines).join("\n")}`);
}

/** A service of the bench's own: started for one measurement, stopped after it. */
export interface Service {
  readonly child: Child;
  readonly url: string;
  /** From its start to the first good answer. */
  readonly readyMs: number;
}

const pollMs = 10;
const longestStartMs = 120_000;

/**
 * Start a service, let `work` use it, and stop it.
 *
 * @param readyPath - Answers 200 when the service can take requests.
 */
export async function withService<T>(
  options: ChildOptions,
  {
    name,
    url,
    readyPath,
  }: { readonly name: string; readonly url: string; readonly readyPath: string },
  signal: AbortSignal,
  work: (service: Service) => Promise<T>,
): Promise<T> {
  const startedAt = performance.now();
  const child = startChild(options);
  try {
    while (!(await isReady(`${url}${readyPath}`))) {
      signal.throwIfAborted();
      if (child.exit !== undefined) throw failed(child, name);
      if (performance.now() - startedAt > longestStartMs) {
        throw new BenchError(`${name} was not ready in ${longestStartMs / 1_000} s`);
      }
      await sleep(pollMs);
    }
    return await work({ child, url, readyMs: performance.now() - startedAt });
  } finally {
    await child.stop(stopPatienceSeconds);
  }
}

async function isReady(url: string): Promise<boolean> {
  try {
    const { statusCode, body } = await request(url, { headersTimeout: 2_000 });
    await body.dump();
    return statusCode === 200;
  } catch {
    return false;
  }
}
