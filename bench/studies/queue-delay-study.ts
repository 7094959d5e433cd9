import { reason } from "../../target/requests/http-client.ts";
import type { MeasuredEndpoint } from "../measure/choose-endpoints.ts";
import { controlQueueDelay, type QueueDelayControl } from "./queue-delay.ts";
import {
  clients,
  describeEndpoint,
  type EnvironmentStudy,
  optionalEndpoint,
  requestedOr,
  type StudyRun,
  StudyUnavailable,
} from "./study.ts";

/** Enables model control on a simulated Triton; a deployed one keeps its own options. */
const modelControlArgs = ["--model-control-mode=explicit", "--load-model=*"] as const;

/** Queue delays of Triton's dynamic batcher. */
export const queueDelayStudy: EnvironmentStudy = {
  kind: "environment",
  id: "queue-delay",
  endpointsOf: requestedOr(optionalEndpoint("onnx-http"), optionalEndpoint("trt-http")),
  async run({ environment, needed, requireOffered, open }) {
    requireOffered();
    const source = environment.source({ ...needed, tritonArgs: modelControlArgs });
    await open(source, measureQueueDelays);
  },
};

/** Measures each queue delay with each number of clients, then restores the model, also after an interrupt. */
export async function measureQueueDelays(run: StudyRun): Promise<void> {
  // one endpoint per model: all of its endpoints share a queue
  const endpoints = run.endpoints.filter(
    ({ target, endpoint }, i, all) =>
      target.controlUrl !== undefined &&
      endpoint.payload === "fp32" &&
      endpoint.serialization === "binary" &&
      all.findIndex((other) => other.target.controlUrl === target.controlUrl) === i,
  );
  if (endpoints.length === 0) {
    throw new StudyUnavailable(
      "no Triton endpoint is measured, and embed servers have no model control",
    );
  }
  const notes: string[] = [];
  for (const measured of endpoints) {
    const { controlUrl = "", controlHeader: header, model } = measured.target;
    const { signal } = run.context;
    const control = await controlQueueDelay(controlUrl, model, { header, signal });
    if (measured === endpoints[0]) {
      run.addResult({ study: "queue-delay", environment: run.environment, notes });
    }
    await measureModel(run, measured, control, notes);
  }
}

async function measureModel(
  run: StudyRun,
  measured: MeasuredEndpoint,
  control: QueueDelayControl,
  notes: string[],
): Promise<void> {
  const { controlUrl, model } = measured.target;
  const { signal } = run.context;
  const restoreDescription = `restoring the queue delay of ${model} at ${controlUrl}`;
  const allowImmediateExit = run.context.hold?.(restoreDescription);
  const logInterruption = () =>
    run.context.onEvent({
      kind: "notice",
      text: `interrupted: ${restoreDescription}; please wait`,
    });
  signal.addEventListener("abort", logInterruption);
  try {
    for (const queueDelayUs of run.grid.queueDelaysUs) {
      run.context.onEvent({
        kind: "phase",
        environment: run.environment,
        text: `loading ${model} with a queue delay of ${queueDelayUs} µs`,
      });
      await control.set(queueDelayUs, signal);
      for (const concurrency of run.grid.concurrency["queue-delay"]) {
        const load = clients(concurrency);
        await run.measure("queue-delay", measured, {
          batch: 1,
          load,
          conditions: { queueDelayUs },
        });
      }
    }
  } finally {
    notes.push(await restore(run, measured, control));
    signal.removeEventListener("abort", logInterruption);
    allowImmediateExit?.();
  }
}

/** @returns Note for the record. A failure is also printed, because other users of the Triton server are affected. */
async function restore(
  run: StudyRun,
  measured: MeasuredEndpoint,
  control: QueueDelayControl,
): Promise<string> {
  const { originalUs } = control;
  const original = `The original queue delay of ${describeEndpoint(measured)} is ${originalUs} µs`;
  try {
    await control.restore();
    return `${original}; it was restored afterwards.`;
  } catch (error) {
    run.fail(`queue-delay of ${describeEndpoint(measured)}: ${reason(error)}`);
    return `${original}; it could not be restored: set max_queue_delay_microseconds to ${originalUs} µs again.`;
  } finally {
    await control.close();
  }
}
