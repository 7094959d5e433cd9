import { setImmediate as yieldToEventLoop } from "node:timers/promises";
import {
  decodeInferResponse,
  encodeInferRequest,
  encodeInferResponse,
  headerLengthField,
} from "../../client/triton/wire-http.ts";
import { type Serialization, serializations } from "../../contract/bench-endpoint.ts";
import { embeddingTensor, imageTowerOf } from "../../contract/model-shapes.ts";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { tritonModelName } from "../../contract/triton-models.ts";
import { inputTensor, stack } from "../../target/requests/infer.ts";
import { median } from "../../target/stats/statistics.ts";
import type { StudyResult } from "../record/study-result.ts";

export type ClientCost = Extract<
  StudyResult,
  { readonly study: "serialization" }
>["client"][number];

export interface ClientSerializationOptions {
  readonly spec: ModelSpec;
  readonly batches: readonly number[];
  /** Model input of one image, repeated to fill a batch. */
  readonly tensor: Float32Array;
  readonly signal: AbortSignal;
}

/** JSON of a batch of 32 is 95 MB and takes seconds, so few runs are made. */
const minRuns = 3;
const maxMs = 1_500;
const maxRuns = 200;

/** Client time to encode the tensors of one request and to decode those of its response, without a server. */
export async function measureSerialization({
  spec,
  batches,
  tensor,
  signal,
}: ClientSerializationOptions): Promise<readonly ClientCost[]> {
  const costs: ClientCost[] = [];
  for (const batch of batches) {
    const data = stack(Array(batch).fill({ tensor }));
    for (const serialization of serializations) {
      costs.push(await measureOne(spec, serialization, batch, data, signal));
    }
  }
  return costs;
}

async function measureOne(
  spec: ModelSpec,
  serialization: Serialization,
  batch: number,
  data: Float32Array,
  signal: AbortSignal,
): Promise<ClientCost> {
  const tensor = inputTensor(imageTowerOf(spec), data, batch);
  const request = () => encodeInferRequest([tensor], { encoding: serialization });
  const response = responseOf(spec, serialization, batch);
  const bytes = request().byteLength;
  const encodeMs = await medianMs(request, signal);
  const decodeMs = await medianMs(
    () => decodeInferResponse(response.body, response.headerLength),
    signal,
  );
  return { serialization, batch, encodeMs, decodeMs, bytes };
}

/** Response of a Triton: `[batch, width]`. */
function responseOf(spec: ModelSpec, serialization: Serialization, batch: number) {
  const { width } = spec.embedding;
  const { name } = embeddingTensor(spec, imageTowerOf(spec));
  const data = Float32Array.from({ length: batch * width }, (_, i) => Math.sin(i) / 22);
  const { chunks, headers } = encodeInferResponse(
    { id: "", modelName: tritonModelName(spec, "fp32"), modelVersion: "1" },
    [
      {
        tensor: { name, dataType: "FP32", shape: [batch, width], data },
        binary: serialization === "binary",
      },
    ],
  );
  return { body: Buffer.concat(chunks), headerLength: headers[headerLengthField] };
}

/** Median time of `work`, after one warm-up run. */
async function medianMs(work: () => unknown, signal: AbortSignal): Promise<number> {
  work();
  const times: number[] = [];
  const endsAt = performance.now() + maxMs;
  while (times.length < minRuns || (times.length < maxRuns && performance.now() < endsAt)) {
    // handle interrupts between two runs
    await yieldToEventLoop();
    signal.throwIfAborted();
    const startedAt = performance.now();
    work();
    times.push(performance.now() - startedAt);
  }
  return median(times) ?? 0;
}
