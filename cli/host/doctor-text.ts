import type { Problem } from "../problem.ts";

/** What doctor found of an environment, for people. */
export interface Examined {
  readonly environment: string;
  /** What was looked at: a Docker endpoint, or a cluster. */
  readonly where: string;
  /** `on` a host, `in` a cluster. */
  readonly preposition: "on" | "in";
  readonly ready: boolean;
  readonly problems: readonly Problem[];
  readonly notes: readonly string[];
  /** A line each; none where it could not be reached. */
  readonly facts: readonly string[];
}

/** What a person reads; with `problems` what a deployment shows. */
export function doctorText(examined: Examined, what: "all" | "problems"): string {
  const { environment, where, preposition, ready, problems, notes, facts } = examined;
  const verdict = ready
    ? `${environment}: ${where} has what it needs`
    : `${environment}: ${problems.length} ${problems.length === 1 ? "problem" : "problems"} ${preposition} ${where}`;
  const details = [
    ...problems.map(({ message, fix }) => `${message}\n  fix: ${fix}`),
    ...notes.map((line) => `note: ${line}`),
  ];
  if (what === "problems") return [verdict, ...details].join("\n");
  return [
    `${environment} ${preposition} ${where}`,
    ...facts,
    "",
    ...details,
    ...(details.length === 0 ? [] : [""]),
    verdict,
  ].join("\n");
}
