import type { Answer } from "./load-job.ts";

/**
 * Answers a second of a closed loop: for each connection the answers after its first, by the time between its first and
 * its last, summed. Unlike a count by a length of time, it is right where answers come in bursts, as batches do.
 *
 * @param answers - Of one load; those before `warmupMs` and those that are not 200 do not count.
 * @returns `undefined` where a connection has fewer than two.
 */
export function answersPerSecond(
  answers: readonly Answer[],
  connections: number,
  warmupMs: number,
): number | undefined {
  const times = Array.from({ length: connections }, (): number[] => []);
  for (const { connection, atMs } of counted(answers, warmupMs)) times[connection]?.push(atMs);
  let sum = 0;
  for (const at of times) {
    const [first, last] = [at[0], at.at(-1)];
    if (first === undefined || last === undefined || last <= first) return undefined;
    sum += (1_000 * (at.length - 1)) / (last - first);
  }
  return sum;
}

/** The answers that count: well, and after the warm-up. */
export function counted(answers: readonly Answer[], warmupMs: number): readonly Answer[] {
  return answers.filter(({ atMs, status }) => atMs >= warmupMs && status === 200);
}
