import { openPreparedInfer } from "../../client/triton/prepared-infer.ts";
import { decodeInferResponse, headerLengthField } from "../../client/triton/wire-http.ts";
import { type BenchEndpoint, benchEndpointName } from "../../contract/bench-endpoint.ts";
import { hasEmbedApi } from "../../contract/environment.ts";
import {
  compareWith,
  type EmbeddingAgreement,
  judgeParity,
} from "../../target/reference/parity.ts";
import type { ReferenceItem } from "../../target/reference/reference.ts";
import { rows } from "../../target/requests/embed-requests.ts";
import { jsonOf, openHttpClient, reason } from "../../target/requests/http-client.ts";
import { rowsOf, unit } from "../../target/requests/infer.ts";
import { prepareRequests } from "../../target/requests/prepare.ts";
import type { PreparedRequest, PreparedRequests } from "../../target/requests/prepared-requests.ts";
import { protocolOf } from "../../target/requests/server-protocol.ts";
import type { TargetEndpoint } from "../../target/requests/target-endpoint.ts";
import type { BenchRecord } from "../record/bench-record.ts";

type ParityResult = BenchRecord["parity"][number];

const timeoutMs = 120_000;
/** Maximum batch size of the request that checks the order of rows. */
const batch = 8;

/** Result without comparable embeddings; the record requires numbers. */
const nothingCompared = {
  images: 0,
  minCosine: 0,
  maxRelativeDifference: 0,
  passed: false,
} as const;

export interface ParityOptions {
  /** Limit of the relative difference; undefined: only directions are compared, because FP16 preserves no more. */
  readonly limit: number | undefined;
  readonly signal: AbortSignal;
}

/**
 * Sends each image or text individually and several as one batch, with the requests of the load, and compares the embeddings with
 * the local reference. Only endpoints that pass are timed.
 */
export async function checkBenchParity(
  target: TargetEndpoint,
  endpoint: BenchEndpoint,
  items: readonly ReferenceItem[],
  { limit, signal }: ParityOptions,
): Promise<ParityResult> {
  const { payload, serialization } = endpoint;
  const head = {
    environment: target.environment,
    service: target.service,
    endpoint: target.endpoint,
    payload,
    serialization,
  };
  const sender = openSender(target, signal);
  try {
    const singles = await prepareRequests(target, endpoint, items, 1);
    const size = Math.min(batch, items.length, target.spec.batching.maximum);
    const batched = await prepareRequests(target, endpoint, items, size);
    const compared: EmbeddingAgreement[] = [];
    const compare = (vectors: readonly Float32Array[], first: number): void => {
      for (const [i, vector] of vectors.entries()) {
        compared.push(compareWith(items[(first + i) % items.length]!, vector));
      }
    };
    for (const [i, request] of singles.requests.entries()) {
      compare(await sender.send(singles, request, 1), i);
    }
    const [first] = batched.requests;
    if (first !== undefined) {
      compare(await sender.send(batched, first, batched.imagesPerRequest), 0);
    }
    const invalid = compared.filter(
      ({ cosine, relativeDifference }) =>
        !(Number.isFinite(cosine) && Number.isFinite(relativeDifference)),
    );
    if (invalid.length > 0) {
      const names = [...new Set(invalid.map(({ image }) => image))].join(", ");
      const message = `${names}: returned zeros or non-finite values, which cannot be compared`;
      return { ...head, ...nothingCompared, message };
    }
    const found = judgeParity(compared, limit);
    const hint = found.passed ? "" : "; the reference uses the weights of --weights";
    return { ...head, images: compared.length, ...found, message: `${found.message}${hint}` };
  } catch (error) {
    signal.throwIfAborted();
    return { ...head, ...nothingCompared, message: reason(error) };
  } finally {
    await sender.close();
  }
}

/** Failed parity result in one line: `single-gpu/triton-onnx onnx-http_uint8: …`. */
export function parityFailure({
  environment,
  service,
  message,
  ...endpoint
}: ParityResult): string {
  return `${environment}/${service} ${benchEndpointName(endpoint)}: ${message}`;
}

/** Sender of prepared requests that reads their embeddings. */
export interface Sender {
  /** Returns the embeddings of a request. Throws a one-line error if the response has none. */
  send(
    prepared: PreparedRequests,
    request: PreparedRequest,
    images: number,
  ): Promise<readonly Float32Array[]>;
  close(): Promise<void>;
}

export function openSender(
  { endpoint, url, spec, modality }: TargetEndpoint,
  signal: AbortSignal,
): Sender {
  if (endpoint.endsWith("-grpc")) {
    const grpc = openPreparedInfer(url);
    return {
      async send(_prepared, { body }, images) {
        return rowsOf({ spec, modality }, await grpc.send(body, { timeoutMs, signal }), images).map(
          unit,
        );
      },
      close: async () => grpc.close(),
    };
  }
  const http = openHttpClient();
  return {
    async send(prepared, request, images) {
      const { status, headers, body } = await http.send(`${prepared.url}${prepared.path}`, {
        headers: { ...prepared.headers, ...request.headers },
        body: request.body,
        timeoutMs,
        signal,
      });
      if (status !== 200) {
        throw new Error(`status ${status}: ${body.toString("utf8").slice(0, 200)}`);
      }
      const protocol = protocolOf(endpoint);
      if (protocol !== undefined) {
        const vectors = protocol.read(jsonOf({ body }));
        return checkCount(
          vectors.map((vector) => Float32Array.from(vector)),
          images,
        );
      }
      if (hasEmbedApi(endpoint)) return checkCount(rows(body, spec.embedding.width), images);
      const length = headers[headerLengthField];
      const { outputs } = decodeInferResponse(body, length === undefined ? length : String(length));
      return rowsOf({ spec, modality }, outputs, images).map(unit);
    },
    close: () => http.close(),
  };
}

function checkCount(vectors: readonly Float32Array[], images: number): readonly Float32Array[] {
  if (vectors.length === images) return vectors;
  throw new Error(`expected ${images} embeddings, got ${vectors.length}`);
}
