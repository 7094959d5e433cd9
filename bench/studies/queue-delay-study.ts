import { controlQueueDelay, type QueueDelayControl } from "./queue-delay.ts";
import { clients, placeOf, type StudyRun, StudyUnavailable } from "./study-run.ts";

/** Options of an embedded Triton that then takes orders; what is deployed has what it has. */
export const modelControlArgs = ["--model-control-mode=explicit", "--load-model=*"] as const;

/**
 * Each queue delay with each number of clients. The model is loaded as it was afterwards, also after an interrupt.
 *
 * @throws {BenchError} where a Triton takes no orders
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
  for (const at of paths) {
    const { controlUrl = "", model } = at.target;
    const control = await controlQueueDelay(controlUrl, model);
    if (notes.length === 0) {
      run.keep({ study: "queue-delay", environment: run.environment, notes });
    }
    notes.push(
      `${placeOf(at)} has a queue delay of ${control.originalUs} µs by itself; it was loaded so again afterwards.`,
    );
    try {
      for (const queueDelayUs of run.grid.queueDelaysUs) {
        run.context.onEvent({
          kind: "phase",
          environment: run.environment,
          text: `load ${model} with a queue delay of ${queueDelayUs} µs`,
        });
        await control.set(queueDelayUs);
        for (const concurrency of run.grid.concurrency["queue-delay"]) {
          const load = clients(concurrency);
          await run.measure("queue-delay", at, { batch: 1, load, conditions: { queueDelayUs } });
        }
      }
    } finally {
      await restore(control);
    }
  }
}

async function restore(control: QueueDelayControl): Promise<void> {
  try {
    await control.restore();
  } finally {
    await control.close();
  }
}
