import { setImmediate as turn } from "node:timers/promises";
import {
  decodeInferResponse,
  encodeInferRequest,
  encodeInferResponse,
  headerLengthField,
} from "../../client/triton/wire-http.ts";
import { embeddingDims, openclipVitB32 } from "../../contract/model-signature.ts";
import { type Serialization, type StudyResult, serializations } from "../record/bench-record.ts";
import { inputTensor } from "../run/infer.ts";
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

/** JSON of a batch of 32 is 95 MB and takes seconds: no more of it than the median needs. */
const minimumRuns = 3;
const longestMs = 1_500;
const mostRuns = 200;

/**
 * What a client's own processor spends on the tensors of one request: written before it is sent, and read from the answer. No
 * server is asked.
 */
export async function measureSerialization({
  batches,
  tensor,
  signal,
}: ClientSerializationOptions): Promise<readonly ClientCost[]> {
  const costs: ClientCost[] = [];
  for (const batch of batches) {
    const data = new Float32Array(tensor.length * batch);
    for (let image = 0; image < batch; image++) data.set(tensor, image * tensor.length);
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
  const answer = answerOf(serialization, batch);
  const bytes = request().byteLength;
  const encodeMs = await medianMs(request, signal);
  const decodeMs = await medianMs(
    () => decodeInferResponse(answer.body, answer.headerLength),
    signal,
  );
  return { serialization, batch, encodeMs, decodeMs, bytes };
}

/** What a Triton answers: `[batch, 512]`. */
function answerOf(serialization: Serialization, batch: number) {
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

/** Median time of `work`, after one run that is not counted. */
async function medianMs(work: () => unknown, signal: AbortSignal): Promise<number> {
  work();
  const times: number[] = [];
  const endsAt = performance.now() + longestMs;
  while (times.length < minimumRuns || (times.length < mostRuns && performance.now() < endsAt)) {
    // so that Ctrl-C is seen between two runs
    await turn();
    signal.throwIfAborted();
    const startedAt = performance.now();
    work();
    times.push(performance.now() - startedAt);
  }
  return median(times) ?? 0;
}
