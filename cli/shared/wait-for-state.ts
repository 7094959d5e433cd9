import { setTimeout as sleep } from "node:timers/promises";

export interface WaitOptions {
  readonly timeoutMs: number;
  /** Time between two reads. */
  readonly intervalMs: number;
  readonly signal?: AbortSignal;
  /** Receives the state as text whenever it changes, and the time since the start of the wait. */
  readonly onState: (text: string, elapsedMs: number) => void;
}

/** Object to wait for, such as a container or a Deployment. */
export interface AwaitedObject<State extends object, Failure> {
  /** @returns The state, undefined if the object does not exist, or `unreachable` to try again. */
  read(): Promise<State | undefined | "unreachable">;
  text(state: State): string;
  /**
   * Judges a state.
   *
   * @param nowMs - Time of a monotonic clock.
   */
  judge(state: State, nowMs: number): "ready" | "waiting" | Failure;
  /** Failure if the object does not exist. */
  readonly missing: Failure;
  /** Failure after the timeout; `text` is that of the last state. */
  timedOut(state: State | "unreachable", text: string): Failure;
}

/**
 * Polls the state of an object until it is ready, has failed or the timeout has passed.
 *
 * @returns The failure, or undefined once the object is ready.
 */
export async function waitForState<State extends object, Failure>(
  { read, text, judge, missing, timedOut }: AwaitedObject<State, Failure>,
  { timeoutMs, intervalMs, signal, onState }: WaitOptions,
): Promise<Failure | undefined> {
  const startMs = performance.now();
  let lastText = "";
  for (;;) {
    const state = await read();
    signal?.throwIfAborted();
    if (state === undefined) return missing;
    const elapsedMs = performance.now() - startMs;
    if (state !== "unreachable") {
      const stateText = text(state);
      if (stateText !== lastText) onState(stateText, elapsedMs);
      lastText = stateText;
      const verdict = judge(state, performance.now());
      if (verdict === "ready") return undefined;
      if (verdict !== "waiting") return verdict;
    }
    if (elapsedMs >= timeoutMs) return timedOut(state, lastText);
    await sleep(Math.min(intervalMs, timeoutMs - elapsedMs), undefined, { signal });
  }
}
