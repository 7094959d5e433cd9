import type { Problem } from "./problem.ts";

/** Result of comparing a host or cluster with the requirements of an environment. */
export interface HostVerdict {
  /** Unmet requirements. Empty: the environment can be deployed. */
  readonly problems: readonly Problem[];
  /** Facts that could not be read and possible problems, one line each. */
  readonly notes: readonly string[];
}

export const noFindings: HostVerdict = { problems: [], notes: [] };

/** Concatenates the problems and notes of all verdicts. */
export function merged(...verdicts: readonly HostVerdict[]): HostVerdict {
  return {
    problems: verdicts.flatMap(({ problems }) => problems),
    notes: verdicts.flatMap(({ notes }) => notes),
  };
}

export const problem = (it: Problem): HostVerdict => ({ problems: [it], notes: [] });
export const note = (line: string): HostVerdict => ({ problems: [], notes: [line] });
