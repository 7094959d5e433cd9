import type { Problem } from "../shared/problem.ts";

/** Findings about an environment, to be rendered as text. */
export interface DoctorSummary {
  readonly environment: string;
  /** Docker endpoint or cluster. */
  readonly where: string;
  readonly preposition: "on" | "in";
  readonly ready: boolean;
  readonly problems: readonly Problem[];
  readonly notes: readonly string[];
  /** One line each; empty if the target could not be reached. */
  readonly facts: readonly string[];
}

/** Renders findings: everything, or only problems and notes for a deployment. */
export function doctorText(summary: DoctorSummary, content: "all" | "problems"): string {
  const { environment, where, preposition, ready, problems, notes, facts } = summary;
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
    ...facts,
    "",
    ...details,
    ...(details.length === 0 ? [] : [""]),
    verdict,
  ].join("\n");
}
