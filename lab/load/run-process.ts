import { type Child, type ChildOptions, startChild } from "../../artefact/child-process.ts";
import { describeExit, waitUntilReady } from "../../artefact/simulation.ts";
import { UserError } from "../../contract/user-error.ts";

const stopPatienceSeconds = 5;
const errorLines = 6;

/** Runs a command to its end and parses its last output line as JSON. */
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
 * @param onStart - Called once the process exists.
 */
export async function runToEnd(
  options: ChildOptions,
  name: string,
  signal: AbortSignal,
  onStart: (child: Child) => void = () => {},
): Promise<Child> {
  const child = startChild(options);
  onStart(child);
  const stop = () => void child.stop(stopPatienceSeconds);
  signal.addEventListener("abort", stop, { once: true });
  const exit = await child.exited;
  signal.removeEventListener("abort", stop);
  signal.throwIfAborted();
  if (exit.code === 0) return child;
  const lines = child.lastLines(errorLines).join("\n");
  throw new UserError(`${name} ended ${describeExit(exit)}:\n${lines}`);
}

/** Service started for one measurement. */
export interface Service {
  readonly child: Child;
  readonly url: string;
  /** Time from start to the first successful response. */
  readonly readyMs: number;
}

const startTimeoutSeconds = 120;
/** Short, because the time to ready is a figure. */
const pollMs = 10;

/**
 * Starts a service, calls `work` and stops the service.
 *
 * @param readyPath - Route that returns 200 once the service accepts requests.
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
    const start = await waitUntilReady(child, ready, startTimeoutSeconds, signal, pollMs);
    if (!start.ok) throw new UserError(`${name} ${start.message}`);
    return await work({ child, url, readyMs: start.readyMs });
  } finally {
    await child.stop(stopPatienceSeconds);
  }
}
