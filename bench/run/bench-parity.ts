import { openPreparedInfer } from "../../client/triton/prepared-infer.ts";
import { decodeInferResponse, headerLengthField } from "../../client/triton/wire-http.ts";
import { prepareRequests } from "../load/prepare.ts";
import type { PreparedRequest, PreparedRequests } from "../load/prepared-requests.ts";
import { type BenchEndpoint, type BenchRecord, benchEndpointName } from "../record/bench-record.ts";
import type { BenchTarget } from "./bench-target.ts";
import { rows } from "./embed-requests.ts";
import { openHttpClient, reason } from "./http-client.ts";
import { rowsOf, unit } from "./infer.ts";
import { compareWith, type EmbeddingAgreement, judgeParity } from "./parity.ts";
import type { ReferenceImage } from "./reference.ts";

type ParityResult = BenchRecord["parity"][number];

const timeoutMs = 120_000;
/** Images of the one request that shows that every row is in its place. */
const batch = 8;

/** A record has numbers, also where there is nothing to measure them on. */
const nothingCompared = {
  images: 0,
  minCosine: 0,
  maxRelativeDifference: 0,
  passed: false,
} as const;

export interface ParityOptions {
  /**
   * Compare directions only: FP16 rounds each value, and moves an embedding by more than the limit of the relative
   * difference while its direction stays.
   */
  readonly halfPrecision: boolean;
  readonly signal: AbortSignal;
}

/**
 * Send each image, and all of them as one batch, with the requests that a load sends, and compare the answers with the
 * local reference. What is timed afterwards is right.
 */
export async function checkBenchParity(
  target: BenchTarget,
  endpoint: BenchEndpoint,
  images: readonly ReferenceImage[],
  { halfPrecision, signal }: ParityOptions,
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
    const singles = await prepareRequests(target, endpoint, images, 1);
    const together = await prepareRequests(
      target,
      endpoint,
      images,
      Math.min(batch, images.length),
    );
    const compared: EmbeddingAgreement[] = [];
    const compare = (vectors: readonly Float32Array[], first: number): void => {
      for (const [i, vector] of vectors.entries()) {
        compared.push(compareWith(images[(first + i) % images.length]!, vector));
      }
    };
    for (const [i, one] of singles.requests.entries()) {
      compare(await sender.send(singles, one, 1), i);
    }
    const [first] = together.requests;
    if (first !== undefined) {
      compare(await sender.send(together, first, together.imagesPerRequest), 0);
    }
    const senseless = compared.filter(
      (it) => !(Number.isFinite(it.cosine) && Number.isFinite(it.relativeDifference)),
    );
    if (senseless.length > 0) {
      const names = [...new Set(senseless.map(({ image }) => image))].join(", ");
      const message = `${names}: answered zeros, or values that are no numbers, which have no direction to compare`;
      return { ...head, ...nothingCompared, message };
    }
    const found = judgeParity(compared, halfPrecision);
    const hint = found.passed ? "" : "; the reference is the model of --model";
    return { ...head, images: compared.length, ...found, message: `${found.message}${hint}` };
  } catch (error) {
    signal.throwIfAborted();
    return { ...head, ...nothingCompared, message: reason(error) };
  } finally {
    await sender.close();
  }
}

/** `single-gpu/triton-onnx onnx-http_uint8: …`: one line of a parity result that failed. */
export function parityFailure({
  environment,
  service,
  message,
  ...endpoint
}: ParityResult): string {
  return `${environment}/${service} ${benchEndpointName(endpoint)}: ${message}`;
}

interface Sender {
  /** The vectors of an answer to a prepared request. Throws a one-line error where there are none. */
  send(
    prepared: PreparedRequests,
    one: PreparedRequest,
    images: number,
  ): Promise<readonly Float32Array[]>;
  close(): Promise<void>;
}

function openSender({ endpoint, url }: BenchTarget, signal: AbortSignal): Sender {
  if (endpoint.endsWith("-grpc")) {
    const grpc = openPreparedInfer(url);
    return {
      async send(_prepared, { body }, images) {
        return rowsOf(await grpc.send(body, { timeoutMs, signal }), images).map(unit);
      },
      close: async () => grpc.close(),
    };
  }
  const http = openHttpClient();
  return {
    async send(prepared, one, images) {
      const { status, headers, body } = await http.send(`${prepared.url}${prepared.path}`, {
        headers: { ...prepared.headers, ...one.headers },
        body: one.body,
        timeoutMs,
        signal,
      });
      if (status !== 200) {
        throw new Error(`status ${status}: ${body.toString("utf8").slice(0, 200)}`);
      }
      if (endpoint === "embed-http") return checkCount(rows(body), images);
      const length = headers[headerLengthField];
      const { outputs } = decodeInferResponse(body, length === undefined ? length : String(length));
      return rowsOf(outputs, images).map(unit);
    },
    close: () => http.close(),
  };
}

function checkCount(vectors: readonly Float32Array[], images: number): readonly Float32Array[] {
  if (vectors.length === images) return vectors;
  throw new Error(`expected ${images} embeddings, got ${vectors.length}`);
}
