import type { ModelConfigJson } from "../client/triton/model-config.ts";
import type { Tensor } from "../contract/tensor.ts";
import { CallCounter } from "../http/drain.ts";
import { Batcher, type Execution } from "../inference/session/batcher.ts";
import type { InferOptions, InferResult, ModelSession } from "../inference/session/types.ts";
import { InferenceError } from "../inference/threads/inference-error.ts";

/** Executes validated requests of a served model. */
export interface ModelRunner {
  /** Names of the inputs, in the order of the tensors passed to `infer`. */
  readonly inputNames: readonly string[];
  /** @throws {InferenceError} or {OipError}; the latter is sent to the client unchanged. */
  infer(inputs: readonly Tensor[], options: RunOptions): Promise<InferResult>;
  /** Number of items in execution that another model processes next. */
  readonly downstreamItems: number;
  /** Finishes accepted requests, then frees all resources. */
  close(): Promise<void>;
}

export interface RunOptions extends InferOptions {
  /** Request id, for messages. */
  readonly id: string;
}

/** Events of a runner for its served model. */
export interface RunnerEvents {
  /** Called when the oldest items, in this number, have left the queue. */
  onStart(items: number): void;
  onExecution(execution: Execution): void;
}

/** Rejects requests after `close()`, which waits for those in execution. */
export function drainable(infer: ModelRunner["infer"]): Pick<ModelRunner, "infer" | "close"> {
  const calls = new CallCounter();
  let closing = false;
  return {
    infer: async (inputs, options) => {
      if (closing) throw new InferenceError("draining", "the model is draining");
      return await calls.during(() => infer(inputs, options));
    },
    async close() {
      closing = true;
      await calls.answered();
    },
  };
}

/** Runs an ONNX model, with Triton's dynamic batching if configured. The runner closes the session. */
export function onnxRunner(
  config: ModelConfigJson,
  session: ModelSession,
  { onStart: started, onExecution: executed }: RunnerEvents,
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
