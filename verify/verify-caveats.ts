import type { VerifyRecord } from "../bench/record/record.ts";
import type { Caveat } from "../report/document/document.ts";
import { runCaveats, subjectCaveats } from "../target/subject/subject-caveats.ts";

/** Limitations of a verification, most severe first. */
export function caveatsOf({
  subject,
  environments,
  checks,
  measurements,
}: VerifyRecord): readonly Caveat[] {
  const run = { ...subject, environments };
  const isP99Unreliable = measurements.some(({ latencyMs }) => latencyMs?.p99Reliable === false);
  const unavailable = environments.flatMap(({ name }): readonly Caveat[] => {
    const own = checks.filter(({ environment }) => environment === name);
    const [first] = own;
    if (first === undefined || own.some(({ outcome }) => outcome !== "skip")) return [];
    return [{ kind: "subject", title: `${name} was skipped`, text: first.message }];
  });
  return [
    ...unavailable,
    ...subjectCaveats(run),
    ...(isP99Unreliable
      ? [
          {
            kind: "figures",
            title: "Short load",
            text: `A p99 marked with * comes from fewer than ${subject.settings.p99MinimumSamples} requests, and is about the slowest of them.`,
          } as const,
        ]
      : []),
    ...runCaveats(run, subject.target === "deployed" ? "subject" : "know"),
  ];
}
