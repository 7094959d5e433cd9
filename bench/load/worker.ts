/**
 * A process that sends requests and keeps a sample of each: a process of its own, so that it shares an event loop neither
 * with the bench nor with a server. It does what {@link ToWorker} says, and ends with the bench.
 */
import { constants as osConstants, setPriority } from "node:os";
import { type IntervalHistogram, monitorEventLoopDelay } from "node:perf_hooks";
import { connectionOpener, createSender, type Sender } from "./sender.ts";
import { clockMs, type FromWorker, type ToWorker } from "./worker-messages.ts";

const resolutionMs = 5;

let sender: Sender | undefined;
let delay: IntervalHistogram | undefined;

process.on("message", (message: ToWorker) => void receive(message));
process.on("disconnect", () => process.exit());
// Ctrl-C reaches every process of a terminal; the bench says when this one has to end
process.on("SIGINT", () => {});

async function receive(message: ToWorker): Promise<void> {
  if (message.kind === "prepare") {
    const { requests, load, index, workers, priority } = message;
    if (priority === "raised") raisePriority();
    sender = createSender({
      open: connectionOpener(requests),
      requests: requests.requests.length,
      load,
      index,
      workers,
      onMany: () => tell({ kind: "samples", ...taken() }),
    });
    tell({ kind: "prepared" });
  } else if (message.kind === "start") {
    delay = monitorEventLoopDelay({ resolution: resolutionMs });
    delay.enable();
    sender?.start(message.atMs);
  } else if (message.kind === "collect") {
    collected(false);
    if (message.boundary) delay?.reset();
  } else {
    await sender?.stop(AbortSignal.timeout(Math.ceil(message.patienceMs)));
    collected(true);
  }
}

/** So that a server on the same machine does not hold up what measures it. */
function raisePriority(): void {
  try {
    setPriority(osConstants.priority.PRIORITY_HIGH);
  } catch {
    // only for those who may
  }
}

function collected(last: boolean): void {
  const { user, system } = process.cpuUsage();
  tell({
    kind: "collected",
    ...taken(),
    cpuMs: (user + system) / 1_000,
    atMs: clockMs(),
    // the histogram has the time between two looks
    eventLoopDelayP99Ms: Math.max(0, (delay?.percentile(99) ?? 0) / 1e6 - resolutionMs),
    last,
  });
}

function taken() {
  return { samples: sender?.take() ?? new Float64Array(), codes: sender?.codes ?? [] };
}

function tell(message: FromWorker): void {
  process.send?.(message);
}
