import type { HostVerdict } from "../shared/host-verdict.ts";
import type { Problem } from "../shared/problem.ts";

/** Output of `clipstack doctor --json`, besides the Docker endpoint or the cluster. */
export interface DoctorReport<Facts> {
  /** Incremented when a field changes meaning. */
  readonly schema: 1;
  readonly environment: string;
  /** Whether the environment can be deployed. */
  readonly ready: boolean;
  readonly problems: readonly Problem[];
  /** Facts that could not be read, and possible problems. */
  readonly notes: readonly string[];
  /** Absent if the host or cluster could not be reached. */
  readonly facts?: Facts | undefined;
}

/** Returns the report of a subject: an environment with its Docker endpoint or cluster. */
export function reportOf<Subject, Facts>(subject: Subject, findings: HostVerdict, facts?: Facts) {
  return { ...subject, ready: findings.problems.length === 0, ...findings, facts };
}

/** Renders findings: everything, or only problems and notes for a deployment. */
export function doctorText(
  { environment, ready, problems, notes }: DoctorReport<unknown>,
  where: string,
  preposition: "on" | "in",
  factLines: readonly string[],
  content: "all" | "problems",
): string {
  const verdict = ready
    ? `${environment}: ${where} is ready`
    : `${environment}: ${problems.length} ${problems.length === 1 ? "problem" : "problems"} ${preposition} ${where}`;
  const details = [
    ...problems.map(({ message, fix }) => `${message}\n  fix: ${fix}`),
    ...notes.map((line) => `note: ${line}`),
  ];
  if (content === "problems") return [verdict, ...details].join("\n");
  return [
    `${environment} ${preposition} ${where}`,
    ...factLines,
    "",
    ...details,
    ...(details.length === 0 ? [] : [""]),
    verdict,
  ].join("\n");
}
