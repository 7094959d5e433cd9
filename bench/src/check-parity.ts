import { openInferenceClient } from "../../inference-image/src/client/inference-client.ts";
import type { ProtocolPath } from "../../inference-image/src/contract/environment.ts";
import { formatFraction } from "../report/document.ts";
import { embedBy, embedForms } from "./embed-requests.ts";
import { reason } from "./http-client.ts";
import { inferRows, unit } from "./infer.ts";
import type { CheckResult, VerifyRecord } from "./record.ts";
import { cycle, type Reference } from "./reference.ts";
import { type PathTarget, pathsOf, resultOf, type ServiceUnderTest } from "./service-under-test.ts";
import { cosine, relativeDifference } from "./statistics.ts";

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

/** Every protocol path, every sample image, against the local reference. */
export async function checkParity(
  service: ServiceUnderTest,
  reference: Reference,
  runtime: Runtime,
): Promise<readonly CheckResult[]> {
  const results: CheckResult[] = [];
  for (const target of pathsOf(service)) {
    const { path } = target;
    try {
      const images = await compare(service, target, reference);
      const worst = Math.min(...images.map((image) => image.cosine));
      const farthest = Math.max(...images.map((image) => image.relativeDifference));
      const measured = { answers: images.length, cosine: worst, relativeDifference: farthest };
      const half = roundsToHalf(runtime, path);
      const wrong = images.filter(
        (image) =>
          !(image.cosine >= parityLimits.cosineAtLeast) ||
          !(half || image.relativeDifference <= parityLimits.relativeDifferenceAtMost),
      );
      const numbers = `cosine ${worst.toFixed(6)}, relative difference ${formatFraction(farthest)}`;
      const message =
        wrong.length === 0
          ? `${images.length} answers: ${numbers}`
          : `${wrong.map((image) => image.image).join(", ")} differ from the local reference: ${numbers}; must be ≥ ${parityLimits.cosineAtLeast}${half ? "" : ` and ≤ ${formatFraction(parityLimits.relativeDifferenceAtMost)}`}`;
      const outcome = wrong.length === 0 ? "pass" : "fail";
      results.push(resultOf(service, "parity", outcome, message, { path, measured, images }));
    } catch (error) {
      results.push(resultOf(service, "parity", "fail", reason(error), { path }));
    }
  }
  return results;
}

interface Compared {
  readonly image: string;
  readonly cosine: number;
  readonly relativeDifference: number;
}

/** Every image through the client that users have, and one in each other way to ask. */
async function compare(
  service: ServiceUnderTest,
  target: PathTarget,
  reference: Reference,
): Promise<Compared[]> {
  const images: Compared[] = [];
  const add = (image: string, vector: Float32Array | undefined, expected: Float32Array): void => {
    if (vector === undefined) throw new Error(`${image}: no embedding`);
    images.push({
      image,
      cosine: cosine(vector, expected),
      relativeDifference: relativeDifference(vector, expected),
    });
  };
  const client = await openClient(service, target);
  try {
    for (const { name, bytes, embedding } of reference.images) {
      const [vector] = await client.embed([bytes]);
      add(name, vector, embedding);
    }
  } finally {
    await client.close();
  }
  for (const image of cycle(reference, 1)) {
    if (target.endpoint.protocol === "embed-http") {
      for (const form of embedForms) {
        const [vector] = await embedBy(service.http, target.url, form, [image]);
        add(`${image.name} as ${form}`, vector, image.embedding);
      }
    } else if (target.endpoint.protocol === "oip-http") {
      const transport = service.transport(target, "json");
      const { model } = service.workload.service;
      const [vector] = await inferRows(transport, model, image.tensor, 1, timeoutMs);
      add(`${image.name} as JSON`, vector && unit(vector), image.embedding);
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
