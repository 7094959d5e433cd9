import type { LoadShape } from "../../contract/load-shape.ts";
import type { PreparedRequests } from "../requests/prepared-requests.ts";
import type { JudgeResponse } from "./http-connection.ts";
import { addRows, type TimedSample } from "./samples.ts";
import { connectionOpener, createSender, type SenderOptions } from "./sender.ts";
import { clockMs } from "./worker-messages.ts";

export interface RunningLoad {
  /** Requests that succeeded or failed so far. */
  readonly samples: readonly TimedSample[];
  /**
   * Sends no more requests and waits for the outstanding ones, each of which has a timeout.
   *
   * @param cut - Ends the wait; requests outstanding then count as failed.
   */
  stop(cut?: AbortSignal): Promise<void>;
}

/**
 * Sends a load from this process until it is stopped, to check that requests succeed. For figures use `measureLoad`, whose
 * workers run in their own processes.
 */
export function startLoad(
  requests: PreparedRequests,
  load: LoadShape,
  {
    judge,
    ...options
  }: Pick<SenderOptions, "openLimit"> & { readonly judge?: JudgeResponse | undefined } = {},
): RunningLoad {
  const samples: TimedSample[] = [];
  const sender = createSender({
    open: connectionOpener(requests, load.channels, judge),
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
