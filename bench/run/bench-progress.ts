import { formatMs, formatRate } from "../../report/document/number-format.ts";
import { environmentPrefix, startStatusLine } from "../../report/status-line.ts";
import type { BenchEvent } from "../measure/bench-events.ts";
import { parityFailure } from "../measure/bench-parity.ts";
import type { LoadPoint } from "../record/bench-record.ts";
import { inUnit } from "../report/text-items.ts";

/** Progress output of a run. */
export interface BenchProgress {
  readonly onEvent: (event: BenchEvent) => void;
  readonly print: (line: string) => void;
  /** Removes the live line. */
  readonly end: () => void;
}

/**
 * Prints one line per load point after its last round; on a terminal, also a live line with the current one.
 *
 * @param measurementCount - Number of load points times rounds, if known.
 */
export function startBenchProgress(
  output: Parameters<typeof startStatusLine>[0],
  measurementCount?: number,
): BenchProgress {
  let measured = 0;
  const of = measurementCount === undefined ? "" : ` of ${measurementCount}`;
  const line = startStatusLine(output, () => `${measured}${of} measurements`);
  return {
    print: line.print,
    end: line.end,
    onEvent(event) {
      switch (event.kind) {
        case "phase":
          line.show(`${environmentPrefix(event.environment)}${event.text}`);
          break;
        case "notice":
          line.print(event.text);
          break;
        case "parity":
          if (!event.result.passed) line.print(`✘ parity ${parityFailure(event.result)}`);
          break;
        case "round":
          measured++;
          break;
        case "window":
          if (output.isTTY === true) line.show(windowText(event));
          break;
        case "point":
          measured++;
          line.print(loadPointText(event.point));
      }
      line.draw();
    },
  };
}

function windowText({ pointId, window, index }: Extract<BenchEvent, { kind: "window" }>): string {
  const line = `${pointId}, window ${index + 1}: ${formatRate(window.imagesPerSecond)} images/s`;
  return inUnit(line, pointId.includes("_text "));
}

/** `onnx-http b8 c4: 118.2 images/s, p50 212.1 ms, p99 240.9 ms; drifting; 3 failed` */
export function loadPointText(point: LoadPoint): string {
  const { id, imagesPerSecond, latencyMs, stability, errors, invalid } = point;
  const times =
    latencyMs === undefined
      ? "no response"
      : `${formatRate(imagesPerSecond)} images/s, p50 ${formatMs(latencyMs.p50)} ms, p99 ${formatMs(latencyMs.p99)} ms${latencyMs.p99Reliable ? "" : " (few samples)"}`;
  const failed = Object.entries(errors).map(([code, count]) => `${count} × ${code}`);
  const remarks = [
    ...(stability.verdict === "stable" ? [] : [stability.verdict]),
    ...failed,
    ...invalid,
  ];
  return inUnit([`${id}: ${times}`, ...remarks].join("; "), point.payload === "text");
}
