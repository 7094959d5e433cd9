import type { Review } from "../review.ts";

/** A review for programs: `schema` is bumped when a field changes meaning. No secret is in it. */
export function jsonReport(review: Review): string {
  return `${JSON.stringify(review, undefined, 2)}\n`;
}
