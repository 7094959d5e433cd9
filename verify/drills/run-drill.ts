import { Interrupted } from "../../artefact/interrupt.ts";
import { messageOf } from "../../contract/user-error.ts";
import { describeCommit, describeMachine } from "../../target/readings/machine.ts";
import { reason } from "../../target/requests/http-client.ts";
import type { Drill, DrillOptions, DrillRun } from "./drill.ts";
import { type DrillRecord, drillRecordSchemaVersion } from "./drill-record.ts";

/** Time that open requests have once the deployment is restored. */
const drainLoadMs = 5_000;

/**
 * Runs a drill, and restores the deployment.
 *
 * @param open - Checks that the deployment is ready, and opens the run.
 * @throws {Interrupted} if the signal is aborted; the message lists what could not be restored.
 */
export async function runDrill<Run extends DrillRun>(
  drill: Drill<Run>,
  { signal, onStep, repository }: DrillOptions,
  open: () => Promise<Run>,
): Promise<DrillRecord> {
  const startedAt = new Date();
  let run: Run | undefined;
  const reportInterruption = () =>
    onStep?.(`interrupted: restoring the ${run?.place}; Ctrl-C again stops without restoring`);
  try {
    run = await open();
    const restored = `the ${run.place} is restored`;
    await run.observe();
    await drill.prepare?.(run);
    signal.addEventListener("abort", reportInterruption, { once: true });
    const problem = await run.act(drill).then(
      () => undefined,
      (error: unknown) => error,
    );
    run.beginRestoring();
    // sends no more requests; open ones are drained once the deployment is restored
    const drained = new AbortController();
    const ended = run.load.end(drained.signal).catch(() => {});
    if (problem !== undefined && run.changed && !signal.aborted) {
      run.check("the drill completes", false, reason(problem));
    }
    await restore(drill, run, restored);
    const cut = setTimeout(() => drained.abort(), signal.aborted ? 0 : drainLoadMs);
    await ended;
    clearTimeout(cut);
    if (signal.aborted) {
      const last = run.checks.find(({ claim }) => claim === restored);
      const verdict = last?.passed ? restored : `the ${run.place} is not restored`;
      throw new Interrupted(`${verdict}: ${last?.message}`);
    }
    if (problem !== undefined && !run.changed) throw problem;
    return await recordOf(drill, run, startedAt, repository);
  } catch (error) {
    if (signal.aborted && !(error instanceof Interrupted)) {
      throw new Interrupted("nothing was changed", { cause: error });
    }
    throw error;
  } finally {
    signal.removeEventListener("abort", reportInterruption);
    await run?.close();
  }
}

async function restore<Run extends DrillRun>(
  drill: Drill<Run>,
  run: Run,
  claim: string,
): Promise<void> {
  try {
    await run.withRetries(async () => drill.restore?.(run));
    try {
      await run.settle();
    } finally {
      await run.withRetries(async () => drill.cleanUp?.(run));
    }
    const { wrong, text } = await run.differences();
    run.check(claim, wrong.length === 0, wrong.join("; ") || text);
  } catch (error) {
    run.check(claim, false, messageOf(error));
  }
}

/** Record of a finished run. */
export async function recordOf(
  { name }: { readonly name: DrillRecord["drill"] },
  run: DrillRun,
  startedAt: Date,
  repository: string,
): Promise<DrillRecord> {
  const { subject, ...observed } = await run.record();
  return {
    schema: drillRecordSchemaVersion,
    kind: "drill",
    drill: name,
    startedAt: startedAt.toISOString(),
    finishedAt: new Date().toISOString(),
    subject: { ...(await describeCommit(repository)), machine: describeMachine(), ...subject },
    load: run.load.record,
    ...observed,
    steps: run.steps,
    checks: run.checks,
    passed: run.checks.every(({ passed }) => passed),
  };
}
