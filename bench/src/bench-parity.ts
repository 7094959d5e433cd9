import { Agent, request } from "undici";
import { openPreparedInfer } from "../../inference-image/src/triton/prepared-infer.ts";
import {
  decodeInferResponse,
  headerLengthField,
} from "../../inference-image/src/triton/wire-http.ts";
import { prepareRequests } from "../load/prepare.ts";
import type { PreparedRequest, PreparedRequests } from "../load/prepared-requests.ts";
import { formatFraction } from "../report/document.ts";
import { type BenchPath, type BenchRecord, benchPathName } from "./bench-record.ts";
import type { BenchTarget } from "./bench-targets.ts";
import { parityLimits } from "./check-parity.ts";
import { rows } from "./embed-requests.ts";
import { reason } from "./http-client.ts";
import { rowsOf, unit } from "./infer.ts";
import type { ReferenceImage } from "./reference.ts";
import { cosine, relativeDifference } from "./statistics.ts";

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
  path: BenchPath,
  images: readonly ReferenceImage[],
  { halfPrecision, signal }: ParityOptions,
): Promise<ParityResult> {
  const { payload, serialization } = path;
  const head = {
    environment: target.environment,
    service: target.service,
    path: target.path,
    payload,
    serialization,
  };
  const sender = openSender(target, signal);
  try {
    const singles = await prepareRequests(target, path, images, 1);
    const together = await prepareRequests(target, path, images, Math.min(batch, images.length));
    const cosines: number[] = [];
    const differences: number[] = [];
    const wrong = new Set<string>();
    const senseless = new Set<string>();
    const compare = (vectors: readonly Float32Array[], first: number): void => {
      for (const [i, vector] of vectors.entries()) {
        const image = images[(first + i) % images.length] as ReferenceImage;
        const angle = cosine(vector, image.embedding);
        const difference = relativeDifference(vector, image.embedding);
        if (!(Number.isFinite(angle) && Number.isFinite(difference))) {
          senseless.add(image.name);
          continue;
        }
        cosines.push(angle);
        differences.push(difference);
        const near = halfPrecision || difference <= parityLimits.relativeDifferenceAtMost;
        if (!(angle >= parityLimits.cosineAtLeast) || !near) wrong.add(image.name);
      }
    };
    for (const [i, one] of singles.requests.entries()) {
      compare(await sender.send(singles, one, 1), i);
    }
    const [first] = together.requests;
    if (first !== undefined) {
      compare(await sender.send(together, first, together.imagesPerRequest), 0);
    }
    if (senseless.size > 0) {
      const names = [...senseless].join(", ");
      const message = `${names}: answered zeros, or values that are no numbers, which have no direction to compare`;
      return { ...head, ...nothingCompared, images: cosines.length, message };
    }
    const minCosine = Math.min(...cosines);
    const maxRelativeDifference = Math.max(...differences);
    const numbers = `cosine ${minCosine.toFixed(6)}, relative difference ${formatFraction(maxRelativeDifference)}`;
    const limits = `must be ≥ ${parityLimits.cosineAtLeast}${halfPrecision ? "" : ` and ≤ ${formatFraction(parityLimits.relativeDifferenceAtMost)}`}`;
    return {
      ...head,
      images: cosines.length,
      minCosine,
      maxRelativeDifference,
      passed: wrong.size === 0,
      message:
        wrong.size === 0
          ? `${cosines.length} answers: ${numbers}`
          : `${[...wrong].join(", ")} differ from the local reference: ${numbers}; ${limits}; the reference is the model of --model`,
    };
  } catch (error) {
    signal.throwIfAborted();
    return { ...head, ...nothingCompared, message: reason(error) };
  } finally {
    await sender.close();
  }
}

/** `single-gpu/triton-onnx onnx-http_u8: …`: one line of a parity result that failed. */
export function parityFailure({ environment, service, message, ...path }: ParityResult): string {
  return `${environment}/${service} ${benchPathName(path)}: ${message}`;
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

function openSender({ path, url }: BenchTarget, signal: AbortSignal): Sender {
  if (path.endsWith("-grpc")) {
    const grpc = openPreparedInfer(url);
    return {
      async send(_prepared, { body }, images) {
        return rowsOf(await grpc.send(body, { timeoutMs, signal }), images).map(unit);
      },
      close: async () => grpc.close(),
    };
  }
  const dispatcher = new Agent();
  return {
    async send(prepared, one, images) {
      const answer = await request(new URL(prepared.path, prepared.url), {
        dispatcher,
        method: "POST",
        headers: { ...prepared.headers, ...one.headers },
        body: one.body,
        headersTimeout: timeoutMs,
        bodyTimeout: timeoutMs,
        signal,
      });
      const body = Buffer.from(await answer.body.arrayBuffer());
      if (answer.statusCode !== 200) {
        throw new Error(`status ${answer.statusCode}: ${body.toString("utf8").slice(0, 200)}`);
      }
      if (path === "embed-http") return checkCount(rows(body), images);
      const length = answer.headers[headerLengthField];
      const { outputs } = decodeInferResponse(body, length === undefined ? length : String(length));
      return rowsOf(outputs, images).map(unit);
    },
    close: () => dispatcher.close(),
  };
}

function checkCount(vectors: readonly Float32Array[], images: number): readonly Float32Array[] {
  if (vectors.length === images) return vectors;
  throw new Error(`expected ${images} embeddings, got ${vectors.length}`);
}
