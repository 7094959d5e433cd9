import { embeddingDims } from "../../inference-image/src/contract/model-signature.ts";
import { embedBy, embedForms } from "./embed-requests.ts";
import { reason } from "./http-client.ts";
import { inferRows } from "./infer.ts";
import type { CheckResult } from "./record.ts";
import { cycle, type Reference } from "./reference.ts";
import { pathsOf, resultOf, type ServiceUnderTest } from "./service-under-test.ts";
import { norm } from "./statistics.ts";

const timeoutMs = 60_000;
/** float32 arithmetic over 512 values, and an answer that may be rounded to 8 decimals. */
const unitTolerance = 1e-4;

/** Width, finiteness, and unit norm where it is promised: the embed API, in every form of request that it takes. */
export async function checkEmbedding(
  service: ServiceUnderTest,
  reference: Reference,
): Promise<readonly CheckResult[]> {
  const results: CheckResult[] = [];
  for (const target of pathsOf(service)) {
    const { path } = target;
    try {
      const norms: number[] = [];
      if (target.endpoint.protocol === "embed-http") {
        for (const form of embedForms) {
          const vectors = await embedBy(service.http, target.url, form, cycle(reference, 1));
          norms.push(...vectors.map((vector) => checkVector(vector, form)));
        }
        const off = Math.max(...norms.map((length) => Math.abs(length - 1)));
        if (off > unitTolerance) throw new Error(`norm must be 1, is off by ${off.toPrecision(2)}`);
      } else {
        const [image] = cycle(reference, 1);
        const data = image?.tensor ?? new Float32Array();
        const { model } = service.workload.service;
        // both encodings of the HTTP protocol; gRPC has one
        const encodings =
          target.endpoint.protocol === "oip-http"
            ? (["binary", "json"] as const)
            : (["binary"] as const);
        for (const encoding of encodings) {
          const transport = service.transport(target, encoding);
          const vectors = await inferRows(transport, model, data, 1, timeoutMs);
          norms.push(...vectors.map((vector) => checkVector(vector, encoding)));
        }
      }
      const smallest = Math.min(...norms);
      const largest = Math.max(...norms);
      results.push(
        resultOf(
          service,
          "embedding",
          "pass",
          `${embeddingDims} finite values in ${norms.length} answers`,
          {
            path,
            measured: { smallestNorm: smallest, largestNorm: largest },
          },
        ),
      );
    } catch (error) {
      results.push(resultOf(service, "embedding", "fail", reason(error), { path }));
    }
  }
  return results;
}

/** Its norm. */
function checkVector(vector: Float32Array, form: string): number {
  if (vector.length !== embeddingDims) {
    throw new Error(
      `${form}: an embedding must have ${embeddingDims} values, got ${vector.length}`,
    );
  }
  const bad = vector.findIndex((value) => !Number.isFinite(value));
  if (bad !== -1) throw new Error(`${form}: value ${bad} of an embedding is ${vector[bad]}`);
  const length = norm(vector);
  if (length === 0) throw new Error(`${form}: an embedding is all zeros`);
  return length;
}
