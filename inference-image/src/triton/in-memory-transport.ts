import type { ModelSignature } from "../contract/model-signature.ts";
import { elementCount, type Tensor, type TensorSpec } from "../contract/tensor.ts";
import { checkInferAnswer } from "./answers.ts";
import { endedError, startDeadline } from "./deadline.ts";
import {
  type CallOptions,
  type InferCallOptions,
  type ModelMetadata,
  type ModelStatistics,
  type ServerMetadata,
  type Transport,
  TritonError,
} from "./transport.ts";
import { shapeText } from "./wire.ts";

export interface InMemoryModel {
  readonly signature: ModelSignature;
  /**
   * The model: gets inputs that fit the signature, returns its outputs. A {@link TritonError} that it throws reaches
   * the caller as it is, anything else as `rejected`.
   */
  infer(inputs: readonly Tensor[]): readonly Tensor[] | Promise<readonly Tensor[]>;
}

export interface InMemoryTransportOptions {
  readonly models: readonly InMemoryModel[];
  /**
   * Asked at each call: `down` is a server that cannot be reached, `silent` one that never answers.
   *
   * @default () => "up"
   */
  readonly state?: () => "up" | "down" | "silent";
}

/** A Triton that is a function in this process: for tests of what uses a {@link Transport}. */
export function openInMemoryTransport(options: InMemoryTransportOptions): Transport {
  return new InMemoryTransport(options);
}

interface Counts {
  requests: number;
  items: number;
  failures: number;
  readonly batches: Map<number, number>;
}

class InMemoryTransport implements Transport {
  readonly target = "in-memory";
  readonly #models: ReadonlyMap<string, InMemoryModel>;
  readonly #state: () => "up" | "down" | "silent";
  readonly #counts = new Map<string, Counts>();
  #closed = false;

  constructor({ models, state = () => "up" }: InMemoryTransportOptions) {
    this.#models = new Map(models.map((model) => [model.signature.name, model]));
    this.#state = state;
  }

  async infer(
    name: string,
    inputs: readonly Tensor[],
    options: InferCallOptions,
  ): Promise<readonly Tensor[]> {
    const counts = this.#countsOf(name);
    try {
      const outputs = await this.#within(name, options, async () => {
        const model = this.#model(name);
        const items = checkInputs(model.signature, inputs);
        checkOutputNames(model.signature, options.outputs);
        const result = await model.infer(inputs);
        counts.items += items;
        counts.batches.set(items, (counts.batches.get(items) ?? 0) + 1);
        return result;
      });
      counts.requests += 1;
      return checkInferAnswer(name, { id: options.requestId ?? "", outputs }, options);
    } catch (error) {
      counts.failures += 1;
      throw error;
    }
  }

  async live(options: CallOptions): Promise<boolean> {
    return await this.#asked(options, () => true);
  }

  async ready(model: string | undefined, options: CallOptions): Promise<boolean> {
    return await this.#asked(options, () => model === undefined || this.#models.has(model));
  }

  serverMetadata(options: CallOptions): Promise<ServerMetadata> {
    return this.#within("server metadata", options, () => ({
      name: "in-memory",
      version: "0",
      extensions: [],
    }));
  }

  modelMetadata(name: string, options: CallOptions): Promise<ModelMetadata> {
    return this.#within(name, options, () => {
      const { signature } = this.#model(name);
      const batched = (spec: TensorSpec): TensorSpec => ({ ...spec, dims: [-1, ...spec.dims] });
      return {
        name,
        versions: ["1"],
        platform: signature.platform,
        inputs: signature.inputs.map(batched),
        outputs: signature.outputs.map(batched),
      };
    });
  }

  modelConfig(name: string, options: CallOptions): Promise<Readonly<Record<string, unknown>>> {
    return this.#within(name, options, () => {
      const { signature } = this.#model(name);
      const tensor = (spec: TensorSpec) => ({
        name: spec.name,
        data_type: spec.dataType === "BYTES" ? "TYPE_STRING" : `TYPE_${spec.dataType}`,
        dims: spec.dims,
      });
      return {
        name,
        platform: signature.platform,
        max_batch_size: signature.maxBatchSize,
        input: signature.inputs.map(tensor),
        output: signature.outputs.map(tensor),
        dynamic_batching: {
          preferred_batch_size: signature.preferredBatchSizes,
          max_queue_delay_microseconds: signature.maxQueueDelayMicroseconds,
        },
      };
    });
  }

  statistics(name: string, options: CallOptions): Promise<ModelStatistics> {
    return this.#within(name, options, () => {
      this.#model(name);
      const { requests, items, failures, batches } = this.#countsOf(name);
      const times = { count: requests, ns: 0 };
      return {
        name,
        version: "1",
        inferenceCount: items,
        executionCount: requests,
        success: times,
        fail: { count: failures, ns: 0 },
        queue: times,
        computeInput: times,
        computeInfer: times,
        computeOutput: times,
        batches: [...batches].map(([batchSize, executions]) => ({ batchSize, executions })),
      };
    });
  }

  async close(): Promise<void> {
    this.#closed = true;
  }

  #model(name: string): InMemoryModel {
    const model = this.#models.get(name);
    if (model !== undefined) return model;
    throw new TritonError("rejected", `${name}: Request for unknown model: '${name}' is not found`);
  }

  #countsOf(name: string): Counts {
    const counts = this.#counts.get(name) ?? {
      requests: 0,
      items: 0,
      failures: 0,
      batches: new Map(),
    };
    this.#counts.set(name, counts);
    return counts;
  }

  async #asked(options: CallOptions, answer: () => boolean): Promise<boolean> {
    try {
      return await this.#within("server", options, answer);
    } catch (error) {
      if (error instanceof TritonError && error.code !== "cancelled") return false;
      throw error;
    }
  }

  /** The answer, or the error of the deadline or of the caller's signal, whichever is first. */
  async #within<T>(
    subject: string,
    options: CallOptions,
    answer: () => T | Promise<T>,
  ): Promise<T> {
    const deadline = startDeadline(options);
    try {
      return await new Promise<T>((resolve, reject) => {
        const end = () =>
          reject(endedError(deadline.ended ?? "timeout", subject, this.target, options.timeoutMs));
        if (deadline.ended !== undefined) return end();
        deadline.signal.addEventListener("abort", end, { once: true });
        const state = this.#closed ? "down" : this.#state();
        if (state === "down") {
          return reject(new TritonError("unavailable", `${subject}: cannot reach ${this.target}`));
        }
        if (state === "silent") return;
        Promise.resolve().then(answer).then(resolve, reject);
      });
    } catch (error) {
      if (error instanceof TritonError) throw error;
      const reason = error instanceof Error ? error.message : String(error);
      throw new TritonError("rejected", `${subject}: ${reason}`, { cause: error });
    } finally {
      deadline.release();
    }
  }
}

/** @returns The batch size. */
function checkInputs(signature: ModelSignature, inputs: readonly Tensor[]): number {
  const { name, maxBatchSize } = signature;
  const rejected = (message: string) => new TritonError("rejected", `${name}: ${message}`);
  if (inputs.length !== signature.inputs.length) {
    throw rejected(
      `expected ${signature.inputs.length} inputs but got ${inputs.length} inputs for model '${name}'`,
    );
  }
  let items = 0;
  for (const { name: input, dataType, shape, data } of inputs) {
    const spec = signature.inputs.find((candidate) => candidate.name === input);
    if (spec === undefined) {
      throw rejected(`unexpected inference input '${input}' for model '${name}'`);
    }
    items = shape[0] ?? 0;
    if (items < 1 || items > maxBatchSize) {
      throw rejected(`inference request batch-size must be <= ${maxBatchSize} for '${name}'`);
    }
    if (dataType !== spec.dataType) {
      throw rejected(
        `inference input '${input}' data-type is '${dataType}', but model '${name}' expects '${spec.dataType}'`,
      );
    }
    const expected = [-1, ...spec.dims];
    const fits =
      shape.length === expected.length &&
      expected.every((dim, axis) => dim < 0 || dim === shape[axis]);
    if (!fits) {
      throw rejected(
        `unexpected shape for input '${input}' for model '${name}'. Expected ${shapeText(expected)}, got ${shapeText(shape)}`,
      );
    }
    if (dataType === "FP32" && data.length !== elementCount(shape)) {
      throw rejected(
        `input byte size mismatch for input '${input}' for model '${name}'. Expected ${4 * elementCount(shape)}, got ${4 * data.length}`,
      );
    }
  }
  return items;
}

function checkOutputNames(signature: ModelSignature, names: readonly string[] = []): void {
  for (const output of names) {
    if (signature.outputs.some(({ name }) => name === output)) continue;
    throw new TritonError(
      "rejected",
      `${signature.name}: unexpected inference output '${output}' for model '${signature.name}'`,
    );
  }
}
