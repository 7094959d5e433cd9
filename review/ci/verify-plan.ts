import { z } from "zod";
import type { StackChange } from "../input/change.ts";
import { fingerprintOf, planDifferences, rejectionReasons } from "../input/fingerprint.ts";
import { parseJson } from "../input/json-file.ts";
import { changeOfPlan, type PlanFile } from "../input/plan-json.ts";
import { ReviewError } from "../input/review-error.ts";
import { commentMarker, plansMarker } from "../report/comment-markdown.ts";

const reviewReport = z.object({
  schema: z.literal(2),
  verdict: z.object({}).loose(),
  stacks: z.array(z.object({ stack: z.string(), fingerprint: z.string() })),
});

/**
 * Lists the differences between fresh and reviewed plans, one line each. Reviewed plans are compared value by value; a review in JSON
 * or Markdown contains only fingerprints, which omit secrets.
 *
 * @param reviewed - Files with reviewed plans or their reviews.
 * @throws {ReviewError} if a file is neither a plan nor a review.
 */
export function verifyPlans(
  reviewed: readonly PlanFile[],
  fresh: readonly StackChange[],
): readonly string[] {
  const plans: StackChange[] = [];
  const fingerprints = new Map<string, string>();
  for (const file of reviewed) {
    const found = fingerprintsIn(file);
    if (found === undefined) plans.push(changeOfPlan(file));
    else for (const [stack, fingerprint] of found) fingerprints.set(stack, fingerprint);
  }
  const planLines = planDifferences(
    plans,
    fresh.filter(({ stack }) => !fingerprints.has(stack)),
  );
  const fingerprintLines = [...fingerprints].flatMap(([stack, fingerprint]) => {
    const change = fresh.find((it) => it.stack === stack);
    if (change === undefined) return [`${stack}: was reviewed but has no new plan`];
    return fingerprintOf(change) === fingerprint
      ? []
      : [`${stack}: differs from the reviewed change`];
  });
  return [...fresh.flatMap(rejectionReasons), ...planLines, ...fingerprintLines].sort();
}

function fingerprintsIn({ fileName, text }: PlanFile): ReadonlyMap<string, string> | undefined {
  const review = text.replace(/^\uFEFF/, "").trimEnd();
  if (review.startsWith(commentMarker)) return fingerprintsOfComment(review, fileName);
  const json = parseJson(text, fileName);
  if (typeof json !== "object" || json === null || !("verdict" in json)) return undefined;
  const result = reviewReport.safeParse(json);
  if (!result.success) throw new ReviewError(`${fileName}: must be a review of a supported schema`);
  return new Map(result.data.stacks.map(({ stack, fingerprint }) => [stack, fingerprint]));
}

/** Reads the fingerprints only from the last line, because quoted plans may contain anything. */
function fingerprintsOfComment(text: string, fileName: string): ReadonlyMap<string, string> {
  const last = text.slice(text.lastIndexOf("\n") + 1);
  const marked = /^<!-- clipstack-plans ((?:\S+:[0-9a-f]{64} ?)+)-->$/.exec(last);
  if (marked === null || text.split(plansMarker).length !== 2) {
    throw new ReviewError(
      `${fileName}: must end with the line that identifies the plans, as written by clipstack review`,
    );
  }
  const pairs = (marked[1] ?? "").trim().split(" ");
  return new Map(
    pairs.map((pair) => [nameIn(pair.slice(0, pair.lastIndexOf(":"))), pair.slice(-64)] as const),
  );
}

function nameIn(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
