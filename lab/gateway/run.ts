import type { GatewayLoad, GatewaySubject } from "./loads.ts";
import { type GatewayBench, measureGateway } from "./measure.ts";
import type { GatewayRun } from "./record.ts";

/** One measurement of a plan. */
export interface GatewayStep {
  readonly round: number;
  readonly load: GatewayLoad;
  readonly subject: GatewaySubject;
}

/** The subjects of every load in each round; every second round reverses the subjects, so that a drift favours none. */
export function planGateway(
  loads: readonly GatewayLoad[],
  rounds: number,
  excluded: ReadonlySet<GatewaySubject>,
): readonly GatewayStep[] {
  return Array.from({ length: rounds }, (_, index) => index + 1).flatMap((round) =>
    loads.flatMap((load) => {
      const subjects = load.subjects.filter((subject) => !excluded.has(subject));
      const ordered = round % 2 === 1 ? subjects : [...subjects].reverse();
      return ordered.map((subject) => ({ round, load, subject }));
    }),
  );
}

/** Measures the steps of a plan one at a time; `onRun` is called after each. */
export async function runGateway(
  bench: GatewayBench,
  steps: readonly GatewayStep[],
  onRun: (run: GatewayRun, index: number) => void,
): Promise<readonly GatewayRun[]> {
  const runs: GatewayRun[] = [];
  for (const [index, { load, subject, round }] of steps.entries()) {
    bench.signal.throwIfAborted();
    const run = await measureGateway(bench, load, subject, round);
    runs.push(run);
    onRun(run, index);
  }
  return runs;
}
