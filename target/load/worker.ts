/**
 * Worker process that sends requests and records a sample of each. It is a separate process so that nothing else uses its
 * event loop. It executes {@link ToWorker} messages, and exits with its parent.
 */
import { constants as osConstants, setPriority } from "node:os";
import { type IntervalHistogram, monitorEventLoopDelay } from "node:perf_hooks";
import { channelsOfWorker } from "./channels.ts";
import { connectionOpener, createSender, type Sender } from "./sender.ts";
import { clockMs, type FromWorker, type ToWorker } from "./worker-messages.ts";

const resolutionMs = 5;

let sender: Sender | undefined;
let delay: IntervalHistogram | undefined;

process.on("message", (message: ToWorker) => void receive(message));
process.on("disconnect", () => process.exit());
// Ctrl-C reaches every process of a terminal; the parent ends this one
process.on("SIGINT", () => {});

async function receive(message: ToWorker): Promise<void> {
  if (message.kind === "prepare") {
    const { requests, load, index, workers, priority } = message;
    if (priority === "raised") raisePriority();
    sender = createSender({
      open: connectionOpener(requests, channelsOfWorker(load, index, workers)),
      requests: requests.requests.length,
      load,
      index,
      workers,
      onBufferFull: () => send({ kind: "samples", ...newSamples() }),
    });
    send({ kind: "prepared" });
  } else if (message.kind === "start") {
    delay = monitorEventLoopDelay({ resolution: resolutionMs });
    delay.enable();
    sender?.start(message.atMs);
  } else if (message.kind === "collect") {
    reportCollected(false);
    if (message.boundary) delay?.reset();
  } else {
    await sender?.stop(AbortSignal.timeout(Math.ceil(message.patienceMs)));
    reportCollected(true);
  }
}

/** Prevents a server on the same machine from delaying the measurement. */
function raisePriority(): void {
  try {
    setPriority(osConstants.priority.PRIORITY_HIGH);
  } catch {
    // requires a privilege
  }
}

function reportCollected(last: boolean): void {
  const { user, system } = process.cpuUsage();
  send({
    kind: "collected",
    ...newSamples(),
    cpuMs: (user + system) / 1_000,
    atMs: clockMs(),
    // the histogram includes the sampling interval
    eventLoopDelayP99Ms: Math.max(0, (delay?.percentile(99) ?? 0) / 1e6 - resolutionMs),
    last,
  });
}

function newSamples() {
  return { samples: sender?.take() ?? new Float64Array(), codes: sender?.codes ?? [] };
}

function send(message: FromWorker): void {
  process.send?.(message);
}
