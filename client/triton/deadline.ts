import { type CallOptions, TritonError } from "./transport.ts";

/** One signal for the deadline and the caller's own signal. `release` it when the call is over. */
export interface Deadline {
  readonly signal: AbortSignal;
  /** Why the signal went off; `undefined` while it has not. */
  readonly ended: "timeout" | "cancelled" | undefined;
  release(): void;
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

/** The error of a call that its deadline, or the caller, has ended. */
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
