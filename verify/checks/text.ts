import type { CheckResult } from "../../bench/record/record.ts";
import { reason } from "../../bench/run/http-client.ts";
import {
  compareWith,
  differenceLimit,
  judgeParity,
  type VerifyTarget,
} from "../../bench/run/parity.ts";
import { resultOf, type ServiceUnderTest } from "../../bench/run/service-under-test.ts";
import type { TextReference } from "../../bench/run/text-reference.ts";
import type { Check } from "./check.ts";
import { openEndpointClient } from "./endpoint-client.ts";

const timeoutMs = 60_000;

export const textCheck: Check = {
  name: "text",
  question: "Does every endpoint return the same embedding of a text as the local reference?",
  sendsRequests: true,
  runService: (service, { textReference, target }) => checkText(service, textReference, target),
};

/** Compares the embeddings of the sample texts from every endpoint with the local reference; no result without a text tower. */
export async function checkText(
  service: ServiceUnderTest,
  reference: TextReference,
  verifyTarget: VerifyTarget,
): Promise<readonly CheckResult[]> {
  const results: CheckResult[] = [];
  for (const { endpoint, url } of service.targets) {
    const { name } = endpoint;
    if (name === undefined || url === undefined) continue;
    for (const spec of service.models) {
      const texts = reference.get(spec.name);
      if (spec.towers.text === undefined || texts === undefined) continue;
      const details = {
        endpoint: name,
        ...(service.models.length > 1 && { model: spec.name }),
      };
      try {
        const client = await openEndpointClient(service, { endpoint, url, spec }, timeoutMs);
        const vectors = await client
          .embedText(texts.map((text) => text.name))
          .finally(() => client.close());
        const compared = texts.map((text, i) => compareWith(text, vectors[i], `text ${i + 1}`));
        const { passed, message, minCosine, maxRelativeDifference } = judgeParity(
          compared,
          differenceLimit(verifyTarget, name),
        );
        results.push(
          resultOf(service, "text", passed ? "pass" : "fail", message, {
            ...details,
            measured: {
              answers: compared.length,
              cosine: minCosine,
              relativeDifference: maxRelativeDifference,
            },
          }),
        );
      } catch (error) {
        results.push(resultOf(service, "text", "fail", reason(error), details));
      }
    }
  }
  return results;
}
