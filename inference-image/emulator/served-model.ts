import type { ModelConfigJson } from "../../client/triton/model-config.ts";
import {
  fromWire,
  type InferRequest,
  isDataType,
  shapeText,
  type WireTensor,
} from "../../client/triton/wire.ts";
import type { ModelConfigTensor } from "../../contract/model-config.ts";
import type { DataType, Tensor, TensorSpec } from "../../contract/tensor.ts";
import { InferenceError, type InferResult } from "../../inference/session/types.ts";
import { type FailureReason, ModelCounters } from "./model-counters.ts";
import type { ModelRunner, RunnerEvents } from "./model-runner.ts";
import { OipError, type OipErrorCode } from "./oip-error.ts";

/** What a model answers to one request. */
export interface ModelResponse {
  readonly id: string;
  /** In the order in which they were asked for. */
  readonly outputs: readonly { readonly tensor: Tensor; readonly binary: boolean }[];
}

export interface ServedModelProps {
  readonly version: string;
  readonly config: ModelConfigJson;
  /** What computes. The model closes it. */
  readonly start: (events: RunnerEvents) => ModelRunner;
  /**
   * Counters of the same version, loaded before: they go on.
   *
   * @default - they begin
   */
  readonly counters?: ModelCounters;
  /** False once the runtime has died: the model cannot answer any more. */
  readonly isAlive: () => boolean;
}

/** Of a request that another model makes. */
export interface InternalRequest {
  readonly id: string;
  readonly signal?: AbortSignal;
  /** What is left of the time that the request may wait. */
  readonly queueTimeoutMs?: number;
}

/** One loaded version of a model: checks requests as Triton does, schedules them, counts. */
export class ServedModel {
  readonly name: string;
  readonly version: string;
  readonly isAlive: () => boolean;
  /** Counted since a version was loaded where none was. */
  readonly counters: ModelCounters;
  readonly config: ModelConfigJson;
  readonly #runner: ModelRunner;
  readonly #inputs: ReadonlyMap<string, TensorSpec>;
  readonly #outputNames: readonly string[];
  /** Requests that wait, the first come first. A batch takes them from the front. */
  readonly #waiting: { readonly items: number }[] = [];

  constructor({ version, config, start, counters, isAlive }: ServedModelProps) {
    this.name = config.name;
    this.version = version;
    this.config = config;
    this.counters = counters ?? new ModelCounters();
    this.isAlive = isAlive;
    this.#inputs = new Map(config.input.map((input) => [input.name, specOf(input)]));
    this.#outputNames = config.output.map(({ name }) => name);
    this.#runner = start({
      started: (items) => {
        let rest = items;
        while (rest > 0 && this.#waiting.length > 0) rest -= this.#waiting.shift()!.items;
      },
      executed: (execution) =>
        this.counters.executed({ ...execution, batchSize: this.#itemsOf(execution.batchSize) }),
    });
  }

  /** Requests that wait for their execution. */
  get pendingRequests(): number {
    return this.#waiting.length;
  }

  /** Items that wait for their execution, here or in a model that comes after this one. */
  get waitingItems(): number {
    return this.#waiting.reduce((sum, { items }) => sum + items, this.#runner.downstreamItems);
  }

  /** Count a request that was refused before it was read. */
  recordRejection(): void {
    this.counters.requestFailed("REJECTED", 0);
  }

  /**
   * Items of a request, before it is checked.
   *
   * @param shapes - Of its inputs.
   */
  itemCount([shape = []]: readonly (readonly number[])[]): number {
    return this.config.max_batch_size > 0 ? (shape[0] ?? 1) : 1;
  }

  /** Inputs as clients see them: with the batch dimension. */
  get inputs(): readonly TensorSpec[] {
    return this.config.input.map((input) => this.#withBatchDimension(specOf(input)));
  }

  get outputs(): readonly TensorSpec[] {
    return this.config.output.map((output) => this.#withBatchDimension(specOf(output)));
  }

  /** @throws {OipError} */
  async infer(request: InferRequest, signal?: AbortSignal): Promise<ModelResponse> {
    const { id, parameters, inputs, outputs, binaryOutputs } = request;
    const asked =
      outputs.length > 0
        ? outputs
        : this.#outputNames.map((name) => ({ name, binary: binaryOutputs }));
    for (const { name } of asked) {
      if (this.#outputNames.includes(name)) continue;
      throw invalid(`unexpected inference output '${name}' for model '${this.name}'`);
    }
    const queueTimeoutMs = timeoutMs(parameters.timeout);
    const items = this.#checkInputs(inputs);
    const tensors = this.#inOrder(inputs).map(fromWire);
    const result = await this.#run(tensors, items, { id, signal, queueTimeoutMs });
    const byName = new Map(result.outputs.map((tensor) => [tensor.name, tensor]));
    return {
      id,
      outputs: asked.map(({ name, binary }) => ({ tensor: byName.get(name)!, binary })),
    };
  }

  /**
   * A request that an ensemble makes. Checked, batched and counted as any other.
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
    const waiting = { items };
    try {
      this.#waiting.push(waiting);
      const result = await this.#runner.infer(tensors, { id, signal, queueTimeoutMs });
      this.counters.requestSucceeded(this.#itemsOf(items), result.timing, totalUs());
      return result;
    } catch (error) {
      const [reason, failure] = this.#failureOf(error, signal);
      this.counters.requestFailed(reason, totalUs());
      throw failure;
    } finally {
      const index = this.#waiting.indexOf(waiting);
      if (index >= 0) this.#waiting.splice(index, 1);
    }
  }

  /** Answers what was taken on, then frees the model. */
  close(): Promise<void> {
    return this.#runner.close();
  }

  /** What counts as batch size: without a batch dimension a request is one inference. */
  #itemsOf(items: number): number {
    return this.config.max_batch_size > 0 ? items : 1;
  }

  #withBatchDimension(spec: TensorSpec): TensorSpec {
    return this.config.max_batch_size > 0 ? { ...spec, dims: [-1, ...spec.dims] } : spec;
  }

  /**
   * Checks names, types and shapes.
   *
   * @returns The batch size.
   */
  #checkInputs(inputs: readonly TensorHead[]): number {
    const model = this.name;
    const given = new Map(inputs.map((input) => [input.name, input]));
    if (given.size !== inputs.length) {
      const twice = inputs.find((input) => given.get(input.name) !== input);
      throw invalid(`input '${twice?.name}' already exists in request`);
    }
    if (inputs.length !== this.#inputs.size) {
      throw invalid(
        `expected ${this.#inputs.size} inputs but got ${inputs.length} inputs for model '${model}'`,
      );
    }
    const specOfInput = ({ name }: TensorHead) => {
      const spec = this.#inputs.get(name);
      if (spec !== undefined) return spec;
      throw invalid(`unexpected inference input '${name}' for model '${model}'`);
    };
    for (const input of inputs) specOfInput(input);

    const items = this.#checkBatch(inputs);
    for (const input of inputs) this.#checkInput(input, specOfInput(input));
    return items;
  }

  #inOrder<Input extends TensorHead>(inputs: readonly Input[]): readonly Input[] {
    return this.#runner.inputNames.map(
      (wanted) => inputs.find(({ name }) => name === wanted) as Input,
    );
  }

  /** The batch size that all inputs share. */
  #checkBatch(inputs: readonly TensorHead[]): number {
    const max = this.config.max_batch_size;
    if (max === 0) return inputs[0]?.shape[0] ?? 1;
    let items: number | undefined;
    for (const { name, shape } of inputs) {
      if (shape.length === 0) {
        throw invalid(
          `input '${name}' has no shape but model requires batch dimension for '${this.name}'`,
        );
      }
      items ??= shape[0]!;
      if (shape[0] !== items) {
        throw invalid(`input '${name}' batch size does not match other inputs for '${this.name}'`);
      }
    }
    if (items === undefined || items > max) {
      throw invalid(`inference request batch-size must be <= ${max} for '${this.name}'`);
    }
    if (!Number.isInteger(items) || items < 1) {
      throw invalid(`inference request batch-size must be >= 1 for '${this.name}', got ${items}`);
    }
    return items;
  }

  #checkInput({ name, dataType, shape }: TensorHead, spec: TensorSpec): void {
    const model = this.name;
    if (dataType !== spec.dataType) {
      throw invalid(
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
    throw invalid(
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
    const as = (code: OipError["code"], message: string) =>
      new OipError(code, message, { cause: error });
    switch (error.code) {
      case "expired":
        return signal?.aborted
          ? ["CANCELED", as("cancelled", "request was cancelled")]
          : ["REJECTED", as("unavailable", "Request timeout expired")];
      case "draining":
        return ["OTHER", as("unavailable", "Server exiting")];
      default:
        if (!this.isAlive()) return ["BACKEND", as("unavailable", `'${this.name}' is gone`)];
        return ["BACKEND", as("internal", `onnx runtime error: ${error.problem}`)];
    }
  }
}

/** What is checked before the elements are looked at. */
type TensorHead = Pick<WireTensor, "name" | "dataType" | "shape">;

/** The protocol's name of a type in a configuration: `TYPE_FP32` is FP32, `TYPE_STRING` is BYTES. */
export function dataTypeOf({
  data_type: type,
}: Pick<ModelConfigTensor, "data_type">): DataType | undefined {
  const name = type === "TYPE_STRING" ? "BYTES" : type.slice("TYPE_".length);
  return isDataType(name) ? name : undefined;
}

/** @throws {Error} when the type cannot be carried; `checkModelConfig` has refused those. */
function specOf(tensor: ModelConfigTensor): TensorSpec {
  const dataType = dataTypeOf(tensor);
  if (dataType === undefined) throw new Error(`'${tensor.name}' has type ${tensor.data_type}`);
  return { name: tensor.name, dataType, dims: tensor.dims };
}

/** Why a request of an ensemble failed, when one of its steps did. */
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

/** The request's `timeout`, in microseconds, as milliseconds; 0 is none. */
function timeoutMs(timeout: unknown = 0): number | undefined {
  if (typeof timeout === "number" && Number.isSafeInteger(timeout) && timeout >= 0) {
    return timeout / 1000 || undefined;
  }
  throw invalid(`Unable to parse 'timeout': must be a whole number from 0 on, got ${timeout}`);
}

function invalid(message: string): OipError {
  return new OipError("invalid-argument", message);
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
