import type { CheckResult, VerifyTarget } from "../../bench/record/record.ts";
import { compareWith, differenceLimit } from "../../target/reference/parity.ts";
import type { TextReference } from "../../target/reference/text-reference.ts";
import { endpointsOf, type TargetService } from "../../target/service/target-service.ts";
import type { Check } from "./check.ts";
import { checkEachEndpoint } from "./check-result.ts";
import { openEndpointClient } from "./endpoint-client.ts";
import { parityFinding } from "./parity.ts";

const timeoutMs = 60_000;

export const textCheck: Check = {
  name: "text",
  question: "Does every endpoint return the same embedding of a text as the local reference?",
  sendsRequests: true,
  runService: (service, { textReference, target }) => checkText(service, textReference, target),
};

/** Compares the embeddings of the sample texts from every endpoint with the local reference; no result without a text tower. */
export function checkText(
  service: TargetService,
  reference: TextReference,
  verifyTarget: VerifyTarget,
): Promise<readonly CheckResult[]> {
  const textsOf = (model: string) => reference.get(model) ?? [];
  return checkEachEndpoint(
    service,
    "text",
    async (target) => {
      const texts = textsOf(target.spec.name);
      const client = await openEndpointClient(service, target, timeoutMs);
      const vectors = await client
        .embedText(texts.map(({ name }) => name))
        .finally(() => client.close());
      const compared = texts.map((text, i) => compareWith(text, vectors[i], `text ${i + 1}`));
      return parityFinding(compared, differenceLimit(verifyTarget, target.endpointName));
    },
    endpointsOf(service, "text").filter(({ spec }) => textsOf(spec.name).length > 0),
  );
}
