import type { ModelConfigJson } from "../client/triton/model-config.ts";
import {
  fromWire,
  type InferRequest,
  isDataType,
  shapeText,
  type WireTensor,
} from "../client/triton/wire.ts";
import type { ModelConfigTensor } from "../contract/model-config.ts";
import type { DataType, Tensor, TensorSpec } from "../contract/tensor.ts";
import { messageOf } from "../contract/user-error.ts";
import type { InferResult } from "../inference/session/types.ts";
import { InferenceError } from "../inference/threads/inference-error.ts";
import { type FailureReason, ModelCounters } from "./model-counters.ts";
import type { ModelRunner, RunnerEvents } from "./model-runner.ts";
import { invalidArgument, OipError, type OipErrorCode } from "./oip-error.ts";

/** Response of a model to one request. */
export interface ModelResponse {
  readonly id: string;
  /** In the requested order. */
  readonly outputs: readonly { readonly tensor: Tensor; readonly binary: boolean }[];
}

export interface ServedModelProps {
  readonly version: string;
  readonly config: ModelConfigJson;
  /** Starts the runner that executes the model. The model closes it. */
  readonly start: (events: RunnerEvents) => ModelRunner;
  /**
   * Counters of a previous load of the same version, which continue.
   *
   * @default - new counters
   */
  readonly counters?: ModelCounters;
  /** Returns false once the runtime has exited unexpectedly. */
  readonly isAlive: () => boolean;
}

/** Options of a request from an ensemble. */
export interface InternalRequest {
  readonly id: string;
  readonly signal?: AbortSignal;
  /** Remaining time that the request may wait in the queue. */
  readonly queueTimeoutMs?: number;
}

/** Loaded version of a model: validates requests as Triton does, schedules and counts them. */
export class ServedModel {
  readonly name: string;
  readonly version: string;
  readonly isAlive: () => boolean;
  /** Statistics since the first load. */
  readonly counters: ModelCounters;
  readonly config: ModelConfigJson;
  readonly #runner: ModelRunner;
  readonly #inputs: ReadonlyMap<string, TensorSpec>;
  readonly #outputNames: readonly string[];
  /** Queued requests in order of arrival. A batch removes them from the front. */
  readonly #queue: { readonly items: number }[] = [];

  constructor({ version, config, start, counters, isAlive }: ServedModelProps) {
    this.name = config.name;
    this.version = version;
    this.config = config;
    this.counters = counters ?? new ModelCounters();
    this.isAlive = isAlive;
    this.#inputs = new Map(config.input.map((input) => [input.name, specOf(input)]));
    this.#outputNames = config.output.map(({ name }) => name);
    this.#runner = start({
      onStart: (items) => {
        let rest = items;
        while (rest > 0 && this.#queue.length > 0) rest -= this.#queue.shift()!.items;
      },
      onExecution: (execution) =>
        this.counters.executed({ ...execution, batchSize: this.#itemsOf(execution.batchSize) }),
    });
  }

  get pendingRequests(): number {
    return this.#queue.length;
  }

  /** Number of items queued here or for a model that processes them next. */
  get waitingItems(): number {
    return this.#queue.reduce((sum, { items }) => sum + items, this.#runner.downstreamItems);
  }

  /** Counts a request that was rejected before it was read. */
  recordRejection(): void {
    this.counters.requestFailed("REJECTED", 0);
  }

  /**
   * Number of items of a request that is not validated yet.
   *
   * @param shapes - Shapes of its inputs.
   */
  itemCount([shape = []]: readonly (readonly number[])[]): number {
    return this.config.max_batch_size > 0 ? (shape[0] ?? 1) : 1;
  }

  /** Inputs with the batch dimension, as in requests. */
  get inputs(): readonly TensorSpec[] {
    return this.config.input.map((input) => this.#withBatchDimension(specOf(input)));
  }

  get outputs(): readonly TensorSpec[] {
    return this.config.output.map((output) => this.#withBatchDimension(specOf(output)));
  }

  /** @throws {OipError} */
  async infer(request: InferRequest, signal?: AbortSignal): Promise<ModelResponse> {
    const { id, parameters, inputs, outputs, binaryOutputs } = request;
    const requested =
      outputs.length > 0
        ? outputs
        : this.#outputNames.map((name) => ({ name, binary: binaryOutputs }));
    for (const { name } of requested) {
      if (this.#outputNames.includes(name)) continue;
      throw invalidArgument(`unexpected inference output '${name}' for model '${this.name}'`);
    }
    const queueTimeoutMs = timeoutMs(parameters.timeout);
    const items = this.#checkInputs(inputs);
    const tensors = this.#inOrder(inputs).map(fromWire);
    const result = await this.#run(tensors, items, { id, signal, queueTimeoutMs });
    const byName = new Map(result.outputs.map((tensor) => [tensor.name, tensor]));
    return {
      id,
      outputs: requested.map(({ name, binary }) => ({ tensor: byName.get(name)!, binary })),
    };
  }

  /**
   * Runs a request from an ensemble, which is validated, batched and counted like any other.
   *
   * @param inputs - In any order.
   * @throws {OipError}
   */
  async inferTensors(inputs: readonly Tensor[], request: InternalRequest): Promise<InferResult> {
    return await this.#run(this.#inOrder(inputs), this.#checkInputs(inputs), request);
  }

  async #run(
    tensors: readonly Tensor[],
    items: number,
    { id, signal, queueTimeoutMs }: InternalRequest,
  ): Promise<InferResult> {
    const startedAt = performance.now();
    const totalUs = () => (performance.now() - startedAt) * 1000;
    this.counters.lastInferenceMs = Date.now();
    const queued = { items };
    try {
      this.#queue.push(queued);
      const result = await this.#runner.infer(tensors, { id, signal, queueTimeoutMs });
      this.counters.requestSucceeded(this.#itemsOf(items), result.timing, totalUs());
      return result;
    } catch (error) {
      const [reason, failure] = this.#failureOf(error, signal);
      this.counters.requestFailed(reason, totalUs());
      throw failure;
    } finally {
      const index = this.#queue.indexOf(queued);
      if (index >= 0) this.#queue.splice(index, 1);
    }
  }

  close(): Promise<void> {
    return this.#runner.close();
  }

  /** Batch size for the statistics: without a batch dimension a request is one inference. */
  #itemsOf(items: number): number {
    return this.config.max_batch_size > 0 ? items : 1;
  }

  #withBatchDimension(spec: TensorSpec): TensorSpec {
    return this.config.max_batch_size > 0 ? { ...spec, dims: [-1, ...spec.dims] } : spec;
  }

  /**
   * Validates names, types and shapes.
   *
   * @returns The batch size.
   */
  #checkInputs(inputs: readonly TensorHead[]): number {
    const model = this.name;
    const byName = new Map(inputs.map((input) => [input.name, input]));
    if (byName.size !== inputs.length) {
      const duplicate = inputs.find((input) => byName.get(input.name) !== input);
      throw invalidArgument(`input '${duplicate?.name}' already exists in request`);
    }
    if (inputs.length !== this.#inputs.size) {
      throw invalidArgument(
        `expected ${this.#inputs.size} inputs but got ${inputs.length} inputs for model '${model}'`,
      );
    }
    const specOfInput = ({ name }: TensorHead) => {
      const spec = this.#inputs.get(name);
      if (spec !== undefined) return spec;
      throw invalidArgument(`unexpected inference input '${name}' for model '${model}'`);
    };
    for (const input of inputs) specOfInput(input);

    const items = this.#checkBatch(inputs);
    for (const input of inputs) this.#checkInput(input, specOfInput(input));
    return items;
  }

  #inOrder<Input extends TensorHead>(inputs: readonly Input[]): readonly Input[] {
    return this.#runner.inputNames.map(
      (inputName) => inputs.find(({ name }) => name === inputName) as Input,
    );
  }

  #checkBatch(inputs: readonly TensorHead[]): number {
    const max = this.config.max_batch_size;
    if (max === 0) return inputs[0]?.shape[0] ?? 1;
    let items: number | undefined;
    for (const { name, shape } of inputs) {
      if (shape.length === 0) {
        throw invalidArgument(
          `input '${name}' has no shape but model requires batch dimension for '${this.name}'`,
        );
      }
      items ??= shape[0]!;
      if (shape[0] !== items) {
        throw invalidArgument(
          `input '${name}' batch size does not match other inputs for '${this.name}'`,
        );
      }
    }
    if (items === undefined || items > max) {
      throw invalidArgument(`inference request batch-size must be <= ${max} for '${this.name}'`);
    }
    if (!Number.isInteger(items) || items < 1) {
      throw invalidArgument(
        `inference request batch-size must be >= 1 for '${this.name}', got ${items}`,
      );
    }
    return items;
  }

  #checkInput({ name, dataType, shape }: TensorHead, spec: TensorSpec): void {
    const model = this.name;
    if (dataType !== spec.dataType) {
      throw invalidArgument(
        `inference input '${name}' data-type is '${dataType}', but model '${model}' expects '${spec.dataType}'`,
      );
    }
    const batching = this.config.max_batch_size > 0;
    const dims = batching ? shape.slice(1) : shape;
    const fits =
      dims.length === spec.dims.length &&
      dims.every((dim, axis) =>
        spec.dims[axis]! < 0 ? Number.isInteger(dim) && dim >= 0 : dim === spec.dims[axis],
      );
    if (fits) return;
    throw invalidArgument(
      `unexpected shape for input '${name}' for model '${model}'. Expected ${shapeText(this.#withBatchDimension(spec).dims)}, got ${shapeText(shape)}`,
    );
  }

  #failureOf(error: unknown, signal: AbortSignal | undefined): [FailureReason, OipError] {
    if (error instanceof OipError) {
      const backend = this.config.ensemble_scheduling === undefined;
      return [backend ? "BACKEND" : reasonOfCode[error.code], error];
    }
    if (!(error instanceof InferenceError)) {
      return ["OTHER", new OipError("internal", messageOf(error), { cause: error })];
    }
    const oipError = (code: OipError["code"], message: string) =>
      new OipError(code, message, { cause: error });
    switch (error.code) {
      // also thrown for a request that the client cancelled
      case "expired":
        return signal?.aborted
          ? ["CANCELED", oipError("cancelled", "request was cancelled")]
          : ["REJECTED", oipError("unavailable", "Request timeout expired")];
      case "draining":
        return ["OTHER", oipError("unavailable", "Server exiting")];
      default:
        if (!this.isAlive())
          return ["BACKEND", oipError("unavailable", `the runtime of '${this.name}' has exited`)];
        return ["BACKEND", oipError("internal", `onnx runtime error: ${error.problem}`)];
    }
  }
}

/** Fields that are validated before the elements are read. */
type TensorHead = Pick<WireTensor, "name" | "dataType" | "shape">;

/** Data type of a tensor in a configuration: `TYPE_FP32` is FP32, `TYPE_STRING` is BYTES. */
export function dataTypeOf({
  data_type: type,
}: Pick<ModelConfigTensor, "data_type">): DataType | undefined {
  const name = type === "TYPE_STRING" ? "BYTES" : type.slice("TYPE_".length);
  return isDataType(name) ? name : undefined;
}

/** @throws {Error} for an unsupported type, which `checkModelConfig` rejects earlier */
function specOf(tensor: ModelConfigTensor): TensorSpec {
  const dataType = dataTypeOf(tensor);
  if (dataType === undefined) throw new Error(`'${tensor.name}' has type ${tensor.data_type}`);
  return { name: tensor.name, dataType, dims: tensor.dims };
}

/** Failure reason of an ensemble request by the error of its failed step. */
const reasonOfCode: Readonly<Record<OipErrorCode, FailureReason>> = {
  cancelled: "CANCELED",
  overloaded: "REJECTED",
  "too-slow": "OTHER",
  unavailable: "REJECTED",
  "invalid-argument": "OTHER",
  "not-found": "OTHER",
  unsupported: "OTHER",
  internal: "BACKEND",
};

/** Converts the request's `timeout` from microseconds to milliseconds; 0 is none. */
function timeoutMs(timeout: unknown = 0): number | undefined {
  if (typeof timeout === "number" && Number.isSafeInteger(timeout) && timeout >= 0) {
    return timeout / 1000 || undefined;
  }
  throw invalidArgument(
    `Unable to parse 'timeout': must be a whole number of at least 0, got ${timeout}`,
  );
}
