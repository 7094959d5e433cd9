import type { CheckResult } from "../../bench/record/record.ts";
import { unit } from "../../bench/run/infer.ts";
import {
  type Compared,
  compareWith,
  judgeParity,
  roundsToHalf,
  type VerifyTarget,
} from "../../bench/run/parity.ts";
import { cycle, type Reference } from "../../bench/run/reference.ts";
import {
  checkEachEndpoint,
  type EndpointTarget,
  embeddingsOf,
  formsOf,
  type ServiceUnderTest,
} from "../../bench/run/service-under-test.ts";
import { openInferenceClient } from "../../client/inference-client.ts";

const timeoutMs = 60_000;

/** Every protocol path, every sample image, against the local reference. */
export function checkParity(
  service: ServiceUnderTest,
  reference: Reference,
  runtime: VerifyTarget,
): Promise<readonly CheckResult[]> {
  return checkEachEndpoint(service, "parity", async (target) => {
    const images = await compare(service, target, reference);
    const found = judgeParity(images, roundsToHalf(runtime, target.endpointName));
    const { minCosine, maxRelativeDifference, passed, message } = found;
    return {
      outcome: passed ? "pass" : "fail",
      message,
      measured: {
        answers: images.length,
        cosine: minCosine,
        relativeDifference: maxRelativeDifference,
      },
      images,
    };
  });
}

/** Every image through the client that users have, and one in each other form of request. */
async function compare(
  service: ServiceUnderTest,
  target: EndpointTarget,
  reference: Reference,
): Promise<Compared[]> {
  const images: Compared[] = [];
  const client = await openClient(service, target);
  try {
    for (const image of reference.images) {
      const [vector] = await client.embed([image.bytes]);
      images.push(compareWith(image, vector));
    }
  } finally {
    await client.close();
  }
  const isEmbed = target.endpoint.protocol === "embed-http";
  for (const image of cycle(reference, 1)) {
    for (const form of formsOf(target)) {
      // sent by the client
      if (form === "binary") continue;
      const [vector] = await embeddingsOf(service, target, [image], form);
      const same = isEmbed ? vector : vector && unit(vector);
      images.push(compareWith(image, same, `${image.name} as ${form}`));
    }
  }
  return images;
}

/** The client of this protocol path; remote, so that nothing else can answer in its place. */
function openClient(service: ServiceUnderTest, { endpoint, url }: EndpointTarget) {
  const common = { mode: "remote", model: service.workload.service.model, timeoutMs } as const;
  if (endpoint.protocol === "embed-http") {
    return openInferenceClient({
      ...common,
      backend: "embed",
      serviceUrl: url,
      apiKey: service.apiKey,
    });
  }
  return endpoint.protocol === "oip-grpc"
    ? openInferenceClient({ ...common, backend: "triton_grpc", tritonGrpcUrl: url })
    : openInferenceClient({ ...common, backend: "triton", serviceUrl: url });
}
