import type { VerifyEvent } from "./check-run.ts";
import type { CheckResult } from "./record.ts";

/** What a person sees while a run goes on. */
export interface Progress {
  readonly tell: (event: VerifyEvent) => void;
  /** A line of its own, outside the run. */
  readonly say: (line: string) => void;
  /** Take the live line away. */
  readonly end: () => void;
}

interface Output {
  readonly isTTY?: boolean;
  readonly columns?: number;
  write(text: string): unknown;
}

const frameMs = 100;
const frames = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];

/** On a terminal one line that moves, elsewhere plain lines; what fails is a line in both. */
export function startProgress(output: Output): Progress {
  return output.isTTY === true ? liveProgress(output) : plainProgress(output);
}

function plainProgress(output: Output): Progress {
  const say = (line: string): void => {
    output.write(`${line}\n`);
  };
  let last = "";
  return {
    say,
    end() {},
    tell(event) {
      if (event.kind === "phase") {
        const line = `${place(event.environment)}${event.text}`;
        // a phase that only counts is one line
        const phase = line.replaceAll(/\d+/g, "");
        if (phase !== last) say(line);
        last = phase;
      }
      if (event.kind === "check" && event.result.outcome === "fail") say(failureLine(event.result));
    },
  };
}

function liveProgress(output: Output): Progress {
  const clear = "\r\u001b[K";
  const startedAt = performance.now();
  let current = "";
  let checks = 0;
  let failed = 0;
  let frame = 0;
  const draw = (): void => {
    const seconds = Math.round((performance.now() - startedAt) / 1_000);
    const counts = `${checks} checks${failed === 0 ? "" : `, ${failed} failed`}, ${seconds} s`;
    const mark = frames[frame++ % frames.length];
    const line = `${mark} ${current}  (${counts})`;
    output.write(`${clear}${line.slice(0, Math.max(20, (output.columns || 80) - 1))}`);
  };
  const timer = setInterval(draw, frameMs);
  timer.unref();
  const say = (line: string): void => {
    output.write(`${clear}${line}\n`);
  };
  return {
    say,
    end() {
      clearInterval(timer);
      output.write(clear);
    },
    tell(event) {
      if (event.kind === "phase") current = `${place(event.environment)}${event.text}`;
      if (event.kind === "check") {
        checks++;
        if (event.result.outcome === "fail") {
          failed++;
          say(failureLine(event.result));
        }
      }
      draw();
    },
  };
}

function place(environment: string | undefined): string {
  return environment === undefined ? "" : `${environment}: `;
}

/** One failed check: what, where, and which container or Deployment. */
export function failureLine({
  id,
  environment,
  service,
  path,
  resource,
  message,
}: CheckResult): string {
  const where = [environment, service, path].filter((part) => part !== undefined).join("/");
  return `✘ ${id} ${where}: ${resource}: ${message}`;
}
