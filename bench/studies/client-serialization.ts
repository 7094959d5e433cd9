import { setImmediate as yieldToEventLoop } from "node:timers/promises";
import {
  decodeInferResponse,
  encodeInferRequest,
  encodeInferResponse,
  headerLengthField,
} from "../../client/triton/wire-http.ts";
import { embeddingDims, openclipVitB32 } from "../../contract/model-signature.ts";
import { type Serialization, serializations } from "../record/bench-endpoint.ts";
import type { StudyResult } from "../record/study-result.ts";
import { inputTensor, stack } from "../run/infer.ts";
import { median } from "../stats/statistics.ts";

export type ClientCost = Extract<
  StudyResult,
  { readonly study: "serialization" }
>["client"][number];

export interface ClientSerializationOptions {
  readonly batches: readonly number[];
  /** `[3, 224, 224]` of one image, repeated to fill a batch. */
  readonly tensor: Float32Array;
  readonly signal: AbortSignal;
}

/** JSON of a batch of 32 is 95 MB and takes seconds, so few runs are made. */
const minRuns = 3;
const maxMs = 1_500;
const maxRuns = 200;

/** Client time to encode the tensors of one request and to decode those of its response, without a server. */
export async function measureSerialization({
  batches,
  tensor,
  signal,
}: ClientSerializationOptions): Promise<readonly ClientCost[]> {
  const costs: ClientCost[] = [];
  for (const batch of batches) {
    const data = stack(Array(batch).fill({ tensor }));
    for (const serialization of serializations) {
      costs.push(await measureOne(serialization, batch, data, signal));
    }
  }
  return costs;
}

async function measureOne(
  serialization: Serialization,
  batch: number,
  data: Float32Array,
  signal: AbortSignal,
): Promise<ClientCost> {
  const request = () => encodeInferRequest([inputTensor(data, batch)], { encoding: serialization });
  const response = responseOf(serialization, batch);
  const bytes = request().byteLength;
  const encodeMs = await medianMs(request, signal);
  const decodeMs = await medianMs(
    () => decodeInferResponse(response.body, response.headerLength),
    signal,
  );
  return { serialization, batch, encodeMs, decodeMs, bytes };
}

/** Response of a Triton: `[batch, 512]`. */
function responseOf(serialization: Serialization, batch: number) {
  const [output] = openclipVitB32.outputs;
  const data = Float32Array.from({ length: batch * embeddingDims }, (_, i) => Math.sin(i) / 22);
  const { chunks, headers } = encodeInferResponse(
    { id: "", modelName: openclipVitB32.name, modelVersion: "1" },
    [
      {
        tensor: { name: output.name, dataType: "FP32", shape: [batch, embeddingDims], data },
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
