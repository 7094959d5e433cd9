import { reason } from "../requests/http-client.ts";
import { sampleColumns, sampleWidth } from "./worker-messages.ts";

/** Request with its times on the clock of `clockMs`. */
export interface TimedSample {
  readonly dueMs: number;
  readonly sentMs: number;
  readonly doneMs: number;
  /** Size of the response body. */
  readonly bytes: number;
  /** Empty if the request succeeded. */
  readonly code: string;
}

export function isGood({ code }: TimedSample): boolean {
  return code === "";
}

/** Appends the rows of a sender; `codes[n - 1]` is code n. */
export function addRows(
  samples: TimedSample[],
  rows: Float64Array,
  codes: readonly string[],
): void {
  for (let at = 0; at < rows.length; at += sampleWidth) {
    const value = (column: number) => rows[at + column] ?? 0;
    samples.push({
      dueMs: value(sampleColumns.dueMs),
      sentMs: value(sampleColumns.sentMs),
      doneMs: value(sampleColumns.doneMs),
      bytes: value(sampleColumns.bytes),
      code: codes[value(sampleColumns.code) - 1] ?? "",
    });
  }
}

/** Number of failed requests by code, in readable form. */
export function countCodes(samples: readonly TimedSample[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const sample of samples) {
    if (isGood(sample)) continue;
    const code = codeText(sample.code);
    counts[code] = (counts[code] ?? 0) + 1;
  }
  return counts;
}

/** Code of a failed request in readable form: `connection refused`, `503`, `UNAVAILABLE`. */
export function codeText(code: string): string {
  return reason(Object.assign(new Error(code), { code }));
}
