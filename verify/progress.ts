import type { CheckResult } from "../bench/record/record.ts";
import { type Output, place, startStatusLine } from "../bench/run/status-line.ts";
import type { VerifyEvent } from "./check-run.ts";

/** What a person sees while a run goes on. */
export interface Progress {
  readonly tell: (event: VerifyEvent) => void;
  /** A line of its own, outside the run. */
  readonly say: (line: string) => void;
  /** Take the live line away. */
  readonly end: () => void;
}

/** On a terminal one line that moves, elsewhere plain lines; what fails is a line in both. */
export function startProgress(output: Output): Progress {
  let checks = 0;
  let failed = 0;
  const line = startStatusLine(
    output,
    () => `${checks} checks${failed === 0 ? "" : `, ${failed} failed`}`,
  );
  return {
    say: line.say,
    end: line.end,
    tell(event) {
      if (event.kind === "phase") line.show(`${place(event.environment)}${event.text}`);
      if (event.kind === "check") {
        checks++;
        if (event.result.outcome === "fail") {
          failed++;
          line.say(failureLine(event.result));
        }
      }
      line.draw();
    },
  };
}

/** One failed check: what, where, and which container or Deployment. */
export function failureLine({
  id,
  environment,
  service,
  endpoint,
  resource,
  message,
}: CheckResult): string {
  const where = [environment, service, endpoint].filter((part) => part !== undefined).join("/");
  return `✘ ${id} ${where}: ${resource}: ${message}`;
}
