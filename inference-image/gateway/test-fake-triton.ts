import { setTimeout as sleep } from "node:timers/promises";
import { type Metadata, Server, ServerCredentials, status } from "@grpc/grpc-js";
import { onTestFinished } from "vitest";
import { fromWire } from "../../client/triton/wire.ts";
import {
  decodeGrpcRequest,
  inferenceService,
  type ModelInferRequest,
  type ModelInferResponse,
} from "../../client/triton/wire-grpc.ts";
import type { InstanceGroup } from "../../contract/model-config.ts";
import { imageBytes, imageTowerOf, normalisedImage } from "../../contract/model-shapes.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { elementCount } from "../../contract/tensor.ts";
import { type TritonModel, tritonModel } from "../../contract/triton-models.ts";
import type { ImageEmbedder } from "../models/embedder.ts";
import { TritonImageEmbedder } from "./triton-embedder.ts";
import type { TritonEmbedderOptions } from "./triton-tower.ts";

export const fp32Model = tritonModel(defaultModel, "fp32");
export const embeddingWidth = defaultModel.embedding.width;
export const pixelBytes = imageBytes(imageTowerOf(defaultModel), "uint8")!;
const imageElements = elementCount(normalisedImage(imageTowerOf(defaultModel)).dims);

const longMs = 10_000;

interface Failure {
  readonly code: status;
  readonly details: string;
}

/** gRPC server with a scripted model. The embedding of an image with all values `v` points along axis `v`. */
export class FakeTriton {
  /** Batch size of each answered inference. */
  readonly calls: number[] = [];
  /** Number of received inferences. */
  arrived = 0;
  cancelled = 0;
  ready = true;
  failure: Failure | undefined;
  instances: readonly InstanceGroup[] = [];
  /** Norm of the embeddings. */
  normOf: (level: number) => number = () => 3;
  rejection: (level: number) => string | undefined = () => undefined;
  /** Changes responses. */
  corrupt: (response: ModelInferResponse) => object = (response) => response;
  /** Promise that inferences wait for. */
  gate: Promise<void> = Promise.resolve();
  target = "";
  deadline: Date | number | undefined;
  /** Metadata of the last check or inference. */
  metadata: Metadata | undefined;
  readonly #server = new Server({ "grpc.max_receive_message_length": -1 });

  constructor(
    readonly signature: TritonModel = fp32Model,
    readonly maxBatchSize = 32,
  ) {}

  async start(port = 0, credentials = ServerCredentials.createInsecure()): Promise<this> {
    const { signature } = this;
    const spec = ({ name, dataType, dims }: TritonModel["inputs"][number]) => ({
      name,
      datatype: dataType,
      shape: [-1, ...dims],
    });
    type Callback = (error: Failure | null, response?: object) => void;
    this.#server.addService(inferenceService, {
      ModelReady: ({ metadata }: { metadata: Metadata }, callback: Callback) => {
        this.metadata = metadata;
        callback(null, { ready: this.ready });
      },
      ModelMetadata: (_call: unknown, callback: Callback) =>
        callback(null, {
          name: fp32Model.name,
          versions: ["1"],
          platform: signature.platform,
          inputs: signature.inputs.map(spec),
          outputs: signature.outputs.map(spec),
        }),
      ModelConfig: (_call: unknown, callback: Callback) =>
        callback(null, {
          config: { max_batch_size: this.maxBatchSize, instance_group: this.instances },
        }),
      ModelInfer: async (
        call: {
          request: ModelInferRequest;
          metadata: Metadata;
          getDeadline(): Date | number;
          on(event: "cancelled", listener: () => void): void;
        },
        callback: Callback,
      ) => {
        this.arrived += 1;
        this.deadline = call.getDeadline();
        this.metadata = call.metadata;
        call.on("cancelled", () => {
          this.cancelled += 1;
        });
        await this.gate;
        if (this.failure !== undefined) {
          callback(this.failure);
          return;
        }
        const levels = levelsOf(call.request);
        const rejection = this.rejection(levels[0]!);
        if (rejection !== undefined) {
          callback({ code: status.INVALID_ARGUMENT, details: rejection });
          return;
        }
        this.calls.push(levels.length);
        const embeddings = new Float32Array(levels.length * embeddingWidth);
        for (const [row, level] of levels.entries()) {
          embeddings[row * embeddingWidth + level] = this.normOf(level);
        }
        const output = {
          name: "embedding",
          datatype: "FP32",
          shape: [levels.length, embeddingWidth],
        };
        const response = this.corrupt({
          model_name: fp32Model.name,
          model_version: "1",
          id: "",
          outputs: [output],
          raw_output_contents: [Buffer.from(embeddings.buffer)],
        });
        callback(null, response);
      },
    });
    const bound = await new Promise<number>((resolve, reject) => {
      this.#server.bindAsync(`127.0.0.1:${port}`, credentials, (error, value) =>
        error === null ? resolve(value) : reject(error),
      );
    });
    this.target = `127.0.0.1:${bound}`;
    onTestFinished(() => this.stop());
    return this;
  }

  stop(): void {
    this.#server.forceShutdown();
  }
}

/** Returns the level of the first pixel, or the first byte, of each image. */
function levelsOf(request: ModelInferRequest): number[] {
  const { shape, dataType, data } = fromWire(decodeGrpcRequest(request).inputs[0]!);
  const rows = Array.from({ length: shape[0]! }, (_, row) => row);
  if (dataType === "BYTES") return data.map((file) => file[0]!);
  if (dataType === "UINT8") return rows.map((row) => data[row * pixelBytes]!);
  const { mean, std } = imageTowerOf(defaultModel).input;
  return rows.map((row) =>
    Math.round((Number(data[row * imageElements]) * std[0] + mean[0]) * 255),
  );
}

export async function embedderOf(
  tritons: readonly (FakeTriton | string)[],
  options: Partial<TritonEmbedderOptions> & { readonly usable?: number } = {},
): Promise<ImageEmbedder> {
  const healthy = new Map<string, number>();
  const embedder = new TritonImageEmbedder({
    targets: tritons.map((triton) => (typeof triton === "string" ? triton : triton.target)),
    spec: defaultModel,
    model: fp32Model.name,
    timeoutMs: 5_000,
    maxBatchSize: 32,
    ...options,
    observer: {
      onBatch: () => {},
      onDequeue: () => {},
      onAttemptEnd: () => {},
      ...options.observer,
      onHealthChange(target, count, reason) {
        healthy.set(target, count);
        options.observer?.onHealthChange(target, count, reason);
      },
    },
  });
  onTestFinished(() => embedder.close());
  await until(() => healthy.size === tritons.length && (options.usable === 0 || anyOf(healthy)));
  return embedder;
}
const anyOf = (healthy: ReadonlyMap<string, number>) => [...healthy.values()].some((n) => n > 0);

export async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  const startedAt = performance.now();
  while (!(await condition())) {
    if (performance.now() - startedAt > longMs) throw new Error(`not true after ${longMs} ms`);
    await sleep(5);
  }
}

/** Returns an image of one level in the input format of the embedder's model. */
export const image = (value: number) => new Uint8Array(pixelBytes).fill(value);

/** Returns the axis of each embedding. */
export async function axes(embedder: ImageEmbedder, ...values: number[]): Promise<number[]> {
  const vectors = await embedder.embed(values.map(image));
  return vectors.map((vector) => vector.indexOf(1));
}

/** Promise that is pending until it is opened. */
export function gate(): { readonly closed: Promise<void>; open(): void } {
  let open = () => {};
  const closed = new Promise<void>((resolve) => {
    open = resolve;
  });
  onTestFinished(open);
  return { closed, open };
}
