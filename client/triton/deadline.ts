import { type CallOptions, TritonError } from "./transport.ts";

/** Signal that combines a deadline and the caller's signal. Call `release` when the call has ended. */
export interface Deadline {
  readonly signal: AbortSignal;
  /** Reason of the abort; `undefined` before it. */
  readonly ended: "timeout" | "cancelled" | undefined;
  release(): void;
}

/** Signal that is aborted after a time, which may be a fraction of a millisecond: `AbortSignal.timeout` rejects those. */
export function abortedAfter(milliseconds: number): AbortSignal {
  return AbortSignal.timeout(Math.max(0, Math.ceil(milliseconds)));
}

export function startDeadline({ timeoutMs, signal }: CallOptions): Deadline {
  const controller = new AbortController();
  let ended: Deadline["ended"];
  const end = (reason: "timeout" | "cancelled") => {
    ended ??= reason;
    controller.abort();
  };
  const timer = setTimeout(() => end("timeout"), timeoutMs);
  const onAbort = () => end("cancelled");
  signal?.addEventListener("abort", onAbort, { once: true });
  if (signal?.aborted) onAbort();
  return {
    signal: controller.signal,
    get ended() {
      return ended;
    },
    release() {
      clearTimeout(timer);
      signal?.removeEventListener("abort", onAbort);
    },
  };
}

/** Creates the error of a call ended by its deadline or its caller. */
export function endedError(
  ended: "timeout" | "cancelled",
  subject: string,
  target: string,
  timeoutMs: number,
): TritonError {
  return ended === "timeout"
    ? new TritonError("timeout", `${subject}: no response from ${target} in ${timeoutMs} ms`)
    : new TritonError("cancelled", `${subject}: the call to ${target} was cancelled`);
}
