import type { ModelConfigJson } from "../../client/triton/model-config.ts";
import type { Tensor } from "../../contract/tensor.ts";
import { Batcher, type Execution } from "../../inference/session/batcher.ts";
import type { InferOptions, InferResult, ModelSession } from "../../inference/session/types.ts";

/** Computes what a served model was asked, after the request was checked. */
export interface ModelRunner {
  /** Names of the inputs, in the order in which `infer` takes them. */
  readonly inputNames: readonly string[];
  /** @throws {InferenceError} or {OipError}; the latter goes to the client as it is. */
  infer(inputs: readonly Tensor[], options: RunOptions): Promise<InferResult>;
  /** Items that are being computed, and go to another model after that. */
  readonly downstreamItems: number;
  /** Answers what was taken on, then frees everything. */
  close(): Promise<void>;
}

export interface RunOptions extends InferOptions {
  /** Of the request, for messages. */
  readonly id: string;
}

/** What a runner tells the model that it runs. */
export interface RunnerEvents {
  /** So many items, the first that came, wait no longer. */
  started(items: number): void;
  executed(execution: Execution): void;
}

/** An ONNX file, with Triton's dynamic batching where the configuration asks for it. Takes the session over. */
export function onnxRunner(
  config: ModelConfigJson,
  session: ModelSession,
  { started, executed }: RunnerEvents,
): ModelRunner {
  const batching = config.dynamic_batching;
  const batcher = new Batcher(
    {
      inputs: session.inputs,
      outputs: session.outputs,
      close: () => session.close(),
      run: (inputs) => {
        started(inputs[0]?.shape[0] ?? 0);
        return session.run(inputs);
      },
    },
    {
      maxBatchSize: config.max_batch_size > 0 ? config.max_batch_size : Number.MAX_SAFE_INTEGER,
      preferredBatchSizes: batching?.preferred_batch_size ?? [],
      maxQueueDelayMicroseconds: batching?.max_queue_delay_microseconds,
      dispatch: batching !== undefined && config.max_batch_size > 0 ? "delayed" : "single",
      onExecution: executed,
    },
  );
  return {
    inputNames: session.inputs.map(({ name }) => name),
    infer: (inputs, options) => batcher.infer(inputs, options),
    downstreamItems: 0,
    async close() {
      await batcher.drain();
      await session.close();
    },
  };
}
