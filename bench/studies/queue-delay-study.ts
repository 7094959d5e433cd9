import { reason } from "../run/http-client.ts";
import { controlQueueDelay, type QueueDelayControl } from "./queue-delay.ts";
import { clients, placeOf, type StudyPath, type StudyRun, StudyUnavailable } from "./study-run.ts";

/** Options of an embedded Triton that then takes orders; what is deployed has what it has. */
export const modelControlArgs = ["--model-control-mode=explicit", "--load-model=*"] as const;

/**
 * Each queue delay with each number of clients. The model is loaded as it was afterwards, also after an interrupt.
 *
 * @throws {UserError} where a Triton takes no orders
 */
export async function studyQueueDelay(run: StudyRun): Promise<void> {
  // one way to each model: a queue is the same behind all of them
  const paths = run.paths.filter(
    ({ target, path }, i, all) =>
      target.controlUrl !== undefined &&
      path.payload === "fp32" &&
      path.serialization === "binary" &&
      all.findIndex((other) => other.target.controlUrl === target.controlUrl) === i,
  );
  if (paths.length === 0) {
    throw new StudyUnavailable("no Triton is measured; an embed server has no model control");
  }
  const notes: string[] = [];
  let kept = false;
  for (const at of paths) {
    const { controlUrl = "", controlHeader: header, model } = at.target;
    const { signal } = run.context;
    const control = await controlQueueDelay(controlUrl, model, { header, signal });
    if (!kept) run.keep({ study: "queue-delay", environment: run.environment, notes });
    kept = true;
    const restoring = `putting back the queue delay of ${model} at ${controlUrl}`;
    const release = run.context.hold?.(restoring);
    const tell = () =>
      run.context.onEvent({ kind: "notice", text: `interrupted: ${restoring}, wait` });
    signal.addEventListener("abort", tell);
    try {
      for (const queueDelayUs of run.grid.queueDelaysUs) {
        run.context.onEvent({
          kind: "phase",
          environment: run.environment,
          text: `load ${model} with a queue delay of ${queueDelayUs} µs`,
        });
        await control.set(queueDelayUs, signal);
        for (const concurrency of run.grid.concurrency["queue-delay"]) {
          const load = clients(concurrency);
          await run.measure("queue-delay", at, { batch: 1, load, conditions: { queueDelayUs } });
        }
      }
    } finally {
      notes.push(await restore(run, at, control));
      signal.removeEventListener("abort", tell);
      release?.();
    }
  }
}

/** @returns What the record says of it. A failure is told besides: whoever serves with that Triton must know it. */
async function restore(run: StudyRun, at: StudyPath, control: QueueDelayControl): Promise<string> {
  const { originalUs } = control;
  const own = `${placeOf(at)} has a queue delay of ${originalUs} µs by itself`;
  try {
    await control.restore();
    return `${own}; it was loaded so again afterwards.`;
  } catch (error) {
    run.fail(`queue-delay of ${placeOf(at)}: ${reason(error)}`);
    return `${own}; it could not be loaded so again.`;
  } finally {
    await control.close();
  }
}
