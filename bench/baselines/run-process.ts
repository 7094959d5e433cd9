import { type Child, type ChildOptions, startChild } from "../../artefact/child-process.ts";
import { describeExit, waitUntilReady } from "../../artefact/simulation.ts";
import { UserError } from "../../contract/user-error.ts";

const stopPatienceSeconds = 5;
const shownLines = 6;

/** Run a command to its end; its last line is its result. */
export async function runCommand<Result>(
  options: ChildOptions,
  name: string,
  signal: AbortSignal,
): Promise<Result> {
  const child = await runToEnd(options, name, signal);
  return JSON.parse(child.lastLines(1)[0] ?? "") as Result;
}

/**
 * Runs a program to its end.
 *
 * @throws {UserError} unless it ended with code 0
 */
export async function runToEnd(
  options: ChildOptions,
  name: string,
  signal: AbortSignal,
): Promise<Child> {
  const child = startChild(options);
  const stop = () => void child.stop(stopPatienceSeconds);
  signal.addEventListener("abort", stop, { once: true });
  const exit = await child.exited;
  signal.removeEventListener("abort", stop);
  signal.throwIfAborted();
  if (exit.code === 0) return child;
  const lines = child.lastLines(shownLines).join("\n");
  throw new UserError(`${name} ended ${describeExit(exit)}:\n${lines}`);
}

/** A service of the bench's own: started for one measurement, stopped after it. */
export interface Service {
  readonly child: Child;
  readonly url: string;
  /** From its start to the first good answer. */
  readonly readyMs: number;
}

const longestStartSeconds = 120;
/** The time to ready is a figure. */
const pollMs = 10;

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
  const child = startChild(options);
  try {
    const ready = `${url}${readyPath}`;
    const start = await waitUntilReady(child, ready, longestStartSeconds, signal, pollMs);
    if (!start.ok) throw new UserError(`${name} ${start.message}`);
    return await work({ child, url, readyMs: start.readyMs });
  } finally {
    await child.stop(stopPatienceSeconds);
  }
}
