import type { CheckResult, VerifyRecord } from "../../bench/record/record.ts";
import { formatFraction } from "../../bench/report/document.ts";
import { unit } from "../../bench/run/infer.ts";
import { cycle, type Reference, type ReferenceImage } from "../../bench/run/reference.ts";
import {
  checkPaths,
  embeddingsOf,
  formsOf,
  type PathTarget,
  type ServiceUnderTest,
} from "../../bench/run/service-under-test.ts";
import { cosine, relativeDifference } from "../../bench/stats/statistics.ts";
import { openInferenceClient } from "../../client/inference-client.ts";
import type { ProtocolPath } from "../../contract/environment.ts";

/** Two embeddings of one image are the same when both hold. */
export const parityLimits = { cosineAtLeast: 0.999, relativeDifferenceAtMost: 0.001 } as const;

/** Where an embedding is computed. */
export type Runtime = VerifyRecord["subject"]["runtime"];

/**
 * Whether only directions can be compared: TensorRT's engines round to FP16, which moves an embedding by more than the
 * limit of the relative difference while its direction stays. Embedded servers compute FP32 in TensorRT's place.
 */
export function roundsToHalf(runtime: Runtime | "endpoints", path: ProtocolPath): boolean {
  return runtime !== "embedded" && path.startsWith("trt-");
}

const timeoutMs = 60_000;

/** Agreement of one embedding with the reference. */
export interface Compared {
  readonly image: string;
  readonly cosine: number;
  readonly relativeDifference: number;
}

export function compareWith(
  { name, embedding }: Pick<ReferenceImage, "name" | "embedding">,
  vector: Float32Array | undefined,
  image = name,
): Compared {
  if (vector === undefined) throw new Error(`${image}: no embedding`);
  return {
    image,
    cosine: cosine(vector, embedding),
    relativeDifference: relativeDifference(vector, embedding),
  };
}

/**
 * Judges embeddings by {@link parityLimits}.
 *
 * @param directionOnly - Ignores the relative difference: {@link roundsToHalf}.
 */
export function judgeParity(compared: readonly Compared[], directionOnly: boolean) {
  const { cosineAtLeast, relativeDifferenceAtMost } = parityLimits;
  const minCosine = Math.min(...compared.map((it) => it.cosine));
  const maxRelativeDifference = Math.max(...compared.map((it) => it.relativeDifference));
  const wrong = compared.filter(
    (it) =>
      !(it.cosine >= cosineAtLeast) ||
      !(directionOnly || it.relativeDifference <= relativeDifferenceAtMost),
  );
  const names = [...new Set(wrong.map(({ image }) => image))].join(", ");
  const numbers = `cosine ${minCosine.toFixed(6)}, relative difference ${formatFraction(maxRelativeDifference)}`;
  const limits = `must be ≥ ${cosineAtLeast}${directionOnly ? "" : ` and ≤ ${formatFraction(relativeDifferenceAtMost)}`}`;
  return {
    minCosine,
    maxRelativeDifference,
    passed: wrong.length === 0,
    message:
      wrong.length === 0
        ? `${compared.length} answers: ${numbers}`
        : `${names} differ from the local reference: ${numbers}; ${limits}`,
  };
}

/** Every protocol path, every sample image, against the local reference. */
export function checkParity(
  service: ServiceUnderTest,
  reference: Reference,
  runtime: Runtime,
): Promise<readonly CheckResult[]> {
  return checkPaths(service, "parity", async (target) => {
    const images = await compare(service, target, reference);
    const found = judgeParity(images, roundsToHalf(runtime, target.path));
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
  target: PathTarget,
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
function openClient(service: ServiceUnderTest, { endpoint, url }: PathTarget) {
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
