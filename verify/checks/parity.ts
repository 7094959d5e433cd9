import type { CheckResult, VerifyTarget } from "../../bench/record/record.ts";
import {
  compareWith,
  decodesWithDali,
  differenceLimit,
  type EmbeddingAgreement,
  judgeParity,
} from "../../target/reference/parity.ts";
import { cycle, type Reference } from "../../target/reference/reference.ts";
import { unit } from "../../target/requests/infer.ts";
import {
  type EndpointTarget,
  embeddingsOf,
  encodingsOf,
  type TargetService,
} from "../../target/service/target-service.ts";
import type { Check } from "./check.ts";
import { checkEachEndpoint, type EndpointFinding } from "./check-result.ts";
import { openEndpointClient } from "./endpoint-client.ts";
import { checkWeights } from "./weights.ts";

const timeoutMs = 60_000;

export const parityCheck: Check = {
  name: "parity",
  question: "Does every endpoint return the same embedding as the local reference?",
  sendsRequests: true,
  runEnvironment: ({ environment, deployment }) =>
    deployment === undefined
      ? []
      : checkWeights(environment, deployment.blocks, deployment.inspection, deployment.models),
  runService: (service, { reference, target }) => checkParity(service, reference, target),
};

/** Compares the embedding of every sample image from every endpoint with the local reference. */
export function checkParity(
  service: TargetService,
  reference: Reference,
  verifyTarget: VerifyTarget,
): Promise<readonly CheckResult[]> {
  return checkEachEndpoint(service, "parity", async (target) => {
    const images = await compare(service, target, reference);
    const { endpointName } = target;
    const payload = endpointName === "embed-http" ? "jpeg" : "fp32";
    const limit = differenceLimit(
      verifyTarget,
      endpointName,
      decodesWithDali(verifyTarget, payload, service.workload.service.jpegKind),
    );
    return { ...parityFinding(images, limit), images };
  });
}

/** Result of a comparison with the local reference. */
export function parityFinding(
  compared: readonly EmbeddingAgreement[],
  limit: ReturnType<typeof differenceLimit>,
): EndpointFinding {
  const { minCosine, maxRelativeDifference, passed, message } = judgeParity(compared, limit);
  const measured = { cosine: minCosine, relativeDifference: maxRelativeDifference };
  return {
    outcome: passed ? "pass" : "fail",
    message,
    measured: { answers: compared.length, ...measured },
  };
}

/** Sends every image through the published client, and one image in each other payload format. */
async function compare(
  service: TargetService,
  target: EndpointTarget,
  reference: Reference,
): Promise<EmbeddingAgreement[]> {
  const images: EmbeddingAgreement[] = [];
  const client = await openEndpointClient(service, target, timeoutMs);
  try {
    for (const image of reference.get(target.spec.name) ?? []) {
      const [vector] = await client.embed([image.bytes]);
      images.push(compareWith(image, vector));
    }
  } finally {
    await client.close();
  }
  const isEmbed = target.endpoint.protocol === "embed-http";
  for (const image of cycle(reference, target.spec, 1)) {
    for (const form of encodingsOf(target)) {
      // already sent by the client
      if (form === "binary") continue;
      const [vector] = await embeddingsOf(service, target, [image], form);
      const normalised = isEmbed ? vector : vector && unit(vector);
      images.push(compareWith(image, normalised, `${image.name} as ${form}`));
    }
  }
  return images;
}
