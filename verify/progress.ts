import type { CheckResult } from "../bench/record/record.ts";
import { environmentPrefix, type Output, startStatusLine } from "../report/status-line.ts";
import type { VerifyEvent } from "./check-run.ts";
import { locationOf } from "./checks/check-result.ts";

/** Progress output of a run. */
export interface Progress {
  readonly onEvent: (event: VerifyEvent) => void;
  /** Prints a line above the status line. */
  readonly print: (line: string) => void;
  /** Removes the status line. */
  readonly end: () => void;
}

/** Starts a status line on a terminal, or plain lines elsewhere; failed checks are always printed as a line. */
export function startProgress(output: Output): Progress {
  let checks = 0;
  let failed = 0;
  const line = startStatusLine(
    output,
    () => `${checks} checks${failed === 0 ? "" : `, ${failed} failed`}`,
  );
  return {
    print: line.print,
    end: line.end,
    onEvent(event) {
      if (event.kind === "phase") line.show(`${environmentPrefix(event.environment)}${event.text}`);
      if (event.kind === "check") {
        checks++;
        if (event.result.outcome === "fail") {
          failed++;
          line.print(failureLine(event.result));
        }
      }
      line.draw();
    },
  };
}

/** Failed check as a line, with its endpoint and resource. */
export function failureLine(result: CheckResult): string {
  return `✘ ${result.id} ${locationOf(result)}: ${result.resource}: ${result.message}`;
}
