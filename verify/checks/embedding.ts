import type { CheckResult } from "../../bench/record/record.ts";
import { cycle, type Reference } from "../../target/reference/reference.ts";
import {
  embeddingsOf,
  encodingsOf,
  type TargetService,
} from "../../target/service/target-service.ts";
import { norm } from "../../target/stats/statistics.ts";
import type { Check } from "./check.ts";
import { checkEachEndpoint } from "./check-result.ts";

/** Tolerance for float32 arithmetic over hundreds of values and responses rounded to 8 decimals. */
const unitTolerance = 1e-4;

export const embeddingCheck: Check = {
  name: "embedding",
  question: "Are embeddings of the right width, finite and normalised?",
  sendsRequests: true,
  runService: (service, { reference }) => checkEmbedding(service, reference),
};

/** Checks width, finiteness and, for the embed API, unit norm, in every payload format of each endpoint. */
export function checkEmbedding(
  service: TargetService,
  reference: Reference,
): Promise<readonly CheckResult[]> {
  return checkEachEndpoint(service, "embedding", async (target) => {
    const { width } = target.spec.embedding;
    const norms: number[] = [];
    for (const encoding of encodingsOf(target)) {
      const vectors = await embeddingsOf(
        service,
        target,
        cycle(reference, target.spec, 1),
        encoding,
      );
      norms.push(...vectors.map((vector) => checkVector(vector, encoding, width)));
    }
    const off = Math.max(...norms.map((length) => Math.abs(length - 1)));
    if (target.endpoint.protocol === "embed-http" && off > unitTolerance) {
      throw new Error(`norm must be 1, got a deviation of ${off.toPrecision(2)}`);
    }
    return {
      message: `${width} finite values in ${norms.length} responses`,
      measured: { smallestNorm: Math.min(...norms), largestNorm: Math.max(...norms) },
    };
  });
}

/** Checks a vector, and returns its norm. */
function checkVector(vector: Float32Array, encoding: string, width: number): number {
  if (vector.length !== width) {
    throw new Error(`${encoding}: an embedding must have ${width} values, got ${vector.length}`);
  }
  const bad = vector.findIndex((value) => !Number.isFinite(value));
  if (bad !== -1)
    throw new Error(`${encoding}: value ${bad} of an embedding must be finite, got ${vector[bad]}`);
  const length = norm(vector);
  if (length === 0) throw new Error(`${encoding}: an embedding must not be all zeros`);
  return length;
}
