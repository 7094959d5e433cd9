import type { LoadShape } from "../record/bench-record.ts";
import type { PreparedRequests } from "./prepared-requests.ts";
import { addRows, type TimedSample } from "./samples.ts";
import { connectionOpener, createSender, type SenderOptions } from "./sender.ts";
import { clockMs } from "./worker-messages.ts";

export interface RunningLoad {
  /** Requests answered or failed so far. */
  readonly samples: readonly TimedSample[];
  /**
   * Sends no more and waits for the open requests.
   *
   * @param cut - Ends the wait; a request that is still open has failed then.
   * @default each request has its own timeout
   */
  stop(cut?: AbortSignal): Promise<void>;
}

/**
 * Sends a load from this process until it is stopped, for checks of whether requests are answered. Use `measureLoad` for
 * figures: its workers share their event loop with nothing else.
 */
export function startLoad(
  requests: PreparedRequests,
  load: LoadShape,
  options: Pick<SenderOptions, "openLimit"> = {},
): RunningLoad {
  const samples: TimedSample[] = [];
  const sender = createSender({
    open: connectionOpener(requests),
    requests: requests.requests.length,
    load,
    index: 0,
    workers: 1,
    ...options,
  });
  sender.start(clockMs());
  return {
    get samples() {
      addRows(samples, sender.take(), sender.codes);
      return samples;
    },
    stop: (cut = new AbortController().signal) => sender.stop(cut),
  };
}
