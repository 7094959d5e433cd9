import type { Target } from "./embedded-plan.ts";
import { reason } from "./http-client.ts";
import type { CheckResult } from "./record.ts";
import type { LocalModel, Reference } from "./reference.ts";
import { pathsOf, resultOf, type ServiceUnderTest } from "./service-under-test.ts";
import { cosine, relativeDifference } from "./statistics.ts";

/** Two embeddings of one image are the same when both hold. */
export const parityLimits = { cosineAtLeast: 0.999, relativeDifferenceAtMost: 0.001 } as const;

/** Opens the client that users of a protocol path have. */
export type OpenPathClient = (target: Target) => Promise<LocalModel>;

/** Every protocol path, every sample image, against the local reference. */
export async function checkParity(
  service: ServiceUnderTest,
  reference: Reference,
  openClient: OpenPathClient,
): Promise<readonly CheckResult[]> {
  const results: CheckResult[] = [];
  for (const target of pathsOf(service)) {
    const { path } = target;
    try {
      const images = await compare(await openClient(target), reference);
      const worst = Math.min(...images.map((image) => image.cosine));
      const farthest = Math.max(...images.map((image) => image.relativeDifference));
      const measured = { images: images.length, cosine: worst, relativeDifference: farthest };
      const wrong = images.filter(
        (image) =>
          !(image.cosine >= parityLimits.cosineAtLeast) ||
          !(image.relativeDifference <= parityLimits.relativeDifferenceAtMost),
      );
      const numbers = `cosine ${worst.toFixed(6)}, relative difference ${percent(farthest)}`;
      const message =
        wrong.length === 0
          ? `${images.length} images: ${numbers}`
          : `${wrong.map((image) => image.image).join(", ")} differ from the local reference: ${numbers}; must be ≥ ${parityLimits.cosineAtLeast} and ≤ ${percent(parityLimits.relativeDifferenceAtMost)}`;
      const outcome = wrong.length === 0 ? "pass" : "fail";
      results.push(resultOf(service, "parity", outcome, message, { path, measured, images }));
    } catch (error) {
      results.push(resultOf(service, "parity", "fail", reason(error), { path }));
    }
  }
  return results;
}

async function compare(client: LocalModel, reference: Reference) {
  try {
    const images: { image: string; cosine: number; relativeDifference: number }[] = [];
    for (const { name, bytes, embedding } of reference.images) {
      const [vector] = await client.embed([bytes]);
      if (vector === undefined) throw new Error(`${name}: no embedding`);
      images.push({
        image: name,
        cosine: cosine(vector, embedding),
        relativeDifference: relativeDifference(vector, embedding),
      });
    }
    return images;
  } finally {
    await client.close();
  }
}

export function percent(fraction: number): string {
  return `${(fraction * 100).toPrecision(2)} %`;
}
